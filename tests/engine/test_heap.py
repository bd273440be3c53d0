"""Freed memory goes back to the operating system, or stays where it is needed again."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from surefoot.engine.heap import MALLOC_SETTINGS

SCRIPT = """
import re
from pathlib import Path
from surefoot.engine.heap import release_freed_memory

def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 1000

blocks = [bytes(20_000) for _ in range(10_000)]
pins = blocks[::100]  # what stays keeps the C library from shrinking the heap by itself
del blocks
before = resident()
release_freed_memory()
print(before - resident(), len(pins))
"""

FAULTS = """
import resource
from surefoot.engine.heap import keep_freed_blocks

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        blocks = [bytearray(size << 20) for size in (20, 40, 60)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

keep_freed_blocks()
faults()  # the heap grows
print(faults())
"""
needs_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")


@needs_glibc
def test_freed_memory_is_released() -> None:
    """200 MB in small blocks, of which 1 in 100 stays."""
    child = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=True)
    released, kept = child.stdout.split()
    assert float(released) > 100
    assert kept == "100"


def _faults(**environment: str) -> int:
    """Page faults of five rounds that allocate 120 MB each, after a first one."""
    variables = {name: value for name, value in os.environ.items() if name not in MALLOC_SETTINGS}
    child = [sys.executable, "-c", FAULTS]
    return int(subprocess.run(child, env=variables | environment, capture_output=True, timeout=120, check=True).stdout)


@needs_glibc
def test_freed_blocks_are_used_again() -> None:
    """Mapping them anew costs at least 60 faults per round, even in pages of 2 MB."""
    assert _faults() < 100


@needs_glibc
def test_settings_of_the_user_stay() -> None:
    assert _faults(MALLOC_MMAP_THRESHOLD_="131072") > 200
