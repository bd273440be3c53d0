"""Memory that this process holds although it does not need it."""

from __future__ import annotations

import ctypes
import gc
import os
import sys

KERNEL_CACHE = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
KERNELS = 64
"""How many kernels oneDNN keeps. A forward pass needs about ten, and each pack has another number of rows."""
MALLOC_SETTINGS = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")
"""Environment variables with which users tune glibc's memory themselves."""
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's `mallopt`."""
LARGEST, ACCEPTED = 2**31 - 1, 2**25
"""The largest number that `mallopt` takes, and the largest threshold that every version of glibc accepts."""


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


def keep_freed_blocks() -> None:
    """Let the C library (glibc) keep freed memory for the next allocation, in this process.

    Otherwise it returns large blocks to the operating system as soon as they are freed. Code that allocates blocks of
    the same sizes again and again, such as training, then spends much time on page faults. The process stays as large
    as it once was. Nothing changes if the user has set one of `MALLOC_SETTINGS`.
    """
    if any(name in os.environ for name in MALLOC_SETTINGS):
        return
    try:
        set_parameter = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return
    if not set_parameter(MMAP_THRESHOLD, LARGEST):
        set_parameter(MMAP_THRESHOLD, ACCEPTED)
    set_parameter(TRIM_THRESHOLD, LARGEST)
