"""The number of CPU threads during a computation: as many as there are free CPUs, or a fixed number.

Threads that wait for each other need a CPU each: see docs/engine.md. torch's threads belong to the whole process, so
the number is changed for the computing thread only, and restored when the computation ends. Other threads of the
process, and those that it starts meanwhile, keep their number.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from surefoot.engine.cpu_load import METER, LoadMeter
from surefoot.engine.threads import chosen_threads

_fixed = 0
"""How many callers need the same number of threads all the time."""


class ThreadLimit:
    """Chooses the number of threads for each computation: `threads`, or what `meter` says."""

    def __init__(self, threads: int | None = None, meter: LoadMeter = METER) -> None:
        self.threads = threads
        self._meter = meter

    @contextmanager
    def applied(self, *, adapt: bool = True) -> Iterator[int]:
        """Compute with the chosen number of threads. With `adapt=False` the load of the machine does not matter.

        >>> with ThreadLimit(1).applied():
        ...     torch.get_num_threads()
        1
        """
        current = torch.get_num_threads()
        if self.threads is not None or current == 1 or not adapt or _fixed or chosen_threads() is not None:
            with threads_here(self.threads or current):
                yield self.threads or current
            return
        before = self._meter.before()
        # Half a CPU is worth a thread: with another load of 0.3, two threads on two CPUs are faster than one.
        threads = max(1, int(min(self._meter.free, current) + 0.5))
        try:
            with threads_here(threads):
                yield threads
        finally:
            self._meter.after(before, threads)


@contextmanager
def threads_here(threads: int) -> Iterator[None]:
    """Let torch use this many threads for the operations of the calling thread, and restore the number."""
    before = torch.get_num_threads()
    if threads == before:
        yield
        return
    torch.set_num_threads(threads)
    # The number belongs to this thread, but torch also remembers it for threads to come: a new one corrects that.
    _in_new_thread(before)
    try:
        yield
    finally:
        meanwhile = _in_new_thread(None)
        torch.set_num_threads(before)
        if meanwhile != before:  # other code has changed the number for new threads
            _in_new_thread(meanwhile)


@contextmanager
def fixed_threads(threads: int | None = None) -> Iterator[None]:
    """Compute with the same number of threads all the time, so that the last digits do not change.

    Without a number it is torch's. It is restored at the end.

    >>> with fixed_threads(1):
    ...     scores = scorer.score_many(items)
    """
    global _fixed
    _fixed += 1
    try:
        with threads_here(threads or torch.get_num_threads()):
            yield
    finally:
        _fixed -= 1


def fix_threads(threads: int | None = None) -> None:
    """Compute with the same number of threads from now on. Call it in a process of ours.

    >>> fix_threads(1)
    """
    global _fixed
    _fixed += 1
    if threads is not None:
        torch.set_num_threads(threads)


def _in_new_thread(threads: int | None) -> int:
    """Set torch's number of threads in a new thread, if there is one, and return what it had there."""
    found: list[int] = []

    def work() -> None:
        found.append(torch.get_num_threads())
        if threads is not None:
            torch.set_num_threads(threads)

    helper = threading.Thread(target=work)
    helper.start()
    helper.join()
    return found[0]
