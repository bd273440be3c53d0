"""Memory that this process has freed but still holds."""

from __future__ import annotations

import ctypes
import gc


def release_freed_memory() -> None:
    """Return freed memory to the operating system, where the C library can do that (glibc).

    Loading a model frees many blocks between those that stay; glibc keeps them for later.

    >>> release_freed_memory()
    """
    gc.collect()
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # another C library
        return
    trim(0)
