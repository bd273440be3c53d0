"""Memory that this process holds although it does not need it."""

from __future__ import annotations

import ctypes
import gc
import os
import sys

KERNEL_CACHE = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
KERNELS = 64
"""How many kernels oneDNN keeps. A forward pass needs about ten, and each pack has another number of rows."""


def keep_few_kernels() -> None:
    """Limit the kernels that oneDNN keeps, 1,024 by default, which took 0.3 GB. Call it before torch is imported.

    It does nothing in a process that may have used oneDNN already, or if the user has chosen a number.
    """
    if "torch" not in sys.modules:
        os.environ.setdefault(KERNEL_CACHE, str(KERNELS))


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
