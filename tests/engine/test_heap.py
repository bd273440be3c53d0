"""Freed memory goes back to the operating system."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

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


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_freed_memory_is_released() -> None:
    """200 MB in small blocks, of which 1 in 100 stays."""
    child = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=True)
    released, kept = child.stdout.split()
    assert float(released) > 100
    assert kept == "100"
