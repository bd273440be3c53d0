"""Tells linear from quadratic time without a limit in seconds, which would depend on the machine."""

from __future__ import annotations

import time
from collections.abc import Callable

PARTS = 4


def is_linear(work: Callable[[int], object], size: int) -> bool:
    """Whether work of this size takes about four times as long as a quarter of it: quadratic work takes sixteen times.

    CPU time, and the better of two runs, so that a busy machine does not count.
    """
    small, large = (min(_seconds(work, each) for _ in range(2)) for each in (size // PARTS, size))
    return large < 2.2 * PARTS * small + 0.05


def _seconds(work: Callable[[int], object], size: int) -> float:
    began = time.process_time()
    work(size)
    return time.process_time() - began
