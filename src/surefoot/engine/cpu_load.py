"""How many CPUs the rest of the machine leaves to this process, measured while it computes.

The measurement costs microseconds: it reads counters of the kernel before and after each computation and compares them
over a window. Only Linux has these counters; elsewhere all CPUs count as free.
"""

from __future__ import annotations

import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from surefoot.engine.threads import usable_cpus

WINDOW = 0.25
"""Seconds over which the load is averaged. The kernel counts in ticks of 10 ms."""
GAP = 2.0
"""After so many seconds without a computation, the load may have changed: the run queue decides until the next window
ends."""
WAITING = 0.1
"""The share of the time that the computing thread may wait for a CPU before that counts as contention."""


@dataclass(frozen=True)
class Counters:
    """What the kernel has counted, in seconds."""

    at: float
    busy: float | None
    """CPU time of everybody on the CPUs that this process may use, including what the hypervisor took."""
    process: float
    """CPU time of this process."""
    thread: float
    """CPU time of this thread."""
    waited: float
    """How long this thread was ready to run but had no CPU."""
    runnable: float = 0.0
    """Other tasks that are ready to run now, scaled to the CPUs that this process may use."""


def read_counters(root: Path = Path("/")) -> Counters:
    """Read the counters now. What this machine does not count is None or 0."""
    busy, runnable = None, 0.0
    try:
        text = (root / "proc" / "stat").read_text()
        cpus = os.sched_getaffinity(0)
        busy, runnable = parse_stat(text, cpus, os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, LookupError, AttributeError):  # not Linux, or a format that is not known
        pass
    try:
        waited = int((root / "proc" / "thread-self" / "schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        waited = 0.0
    return Counters(time.monotonic(), busy, time.process_time(), time.thread_time(), waited, runnable)


def parse_stat(text: str, cpus: set[int], ticks: int) -> tuple[float, float]:
    """Return the busy seconds of these CPUs and the number of other runnable tasks per their share of all CPUs.

    >>> parse_stat("cpu0 100 0 50 900 7 0 0 10 0 0\\nprocs_running 3\\n", {0}, 100)
    (1.6, 2.0)
    """
    rows = {int(number): rest for number, rest in re.findall(r"^cpu(\d+) (.*)$", text, re.MULTILINE)}
    busy = 0
    for cpu in cpus:
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, rows[cpu].split()[:8])
        busy += user + nice + system + irq + softirq + steal
    found = re.search(r"^procs_running (\d+)$", text, re.MULTILINE)
    others = max(0, int(found[1]) - 1) if found else 0
    return busy / ticks, others * len(cpus) / len(rows)


def own_runnable(root: Path = Path("/")) -> int:
    """How many other threads of this process are ready to run, or run: those of torch spin for a while after work."""
    running = 0
    for file in (root / "proc" / "self" / "task").glob("*/stat"):
        try:
            # The state follows the name, which may contain anything, in parentheses.
            running += file.read_text().rpartition(")")[2].split()[0] == "R"
        except (OSError, IndexError):  # the thread has ended
            continue
    return max(0, running - 1)


@dataclass
class LoadMeter:
    """Averages the load over windows. One meter serves all threads of a process."""

    read: Callable[[], Counters] = read_counters
    cpus: Callable[[], int] = usable_cpus
    own: Callable[[], int] = own_runnable
    free: float = math.inf
    """How many CPUs this process can keep busy, by the last window."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _start: Counters | None = None
    _ours: float = 0.0
    _waited: float = 0.0
    _computed: float = 0.0
    _this_thread: threading.local = field(default_factory=threading.local, repr=False)

    def before(self) -> Counters:
        """Call this before a computation; then `free` is up to date."""
        now = self.read()
        with self._lock:
            start = self._start
            if start is None or now.at - start.at > GAP:
                self.free = max(0.0, self.cpus() - max(0.0, now.runnable - self.own()))
                self._restart(now)
            else:
                # Between its computations this thread prepares them or computes something else, like the policy of a
                # trainer, with torch's threads. Neither is load of others.
                last: Counters = getattr(self._this_thread, "last", now)
                self._ours += min(now.process - last.process, self.cpus() * (now.thread - last.thread))
        return now

    def after(self, before: Counters, threads: int) -> None:
        """Call this after a computation with this many threads."""
        now = self.read()
        with self._lock:
            elapsed = now.at - before.at
            # Other threads of this process, for example those of a trainer, are others.
            self._ours += min(now.process - before.process, threads * elapsed)
            self._waited += now.waited - before.waited
            self._computed += elapsed
            self._this_thread.last = now
            start = self._start
            if start is not None and now.at - start.at >= WINDOW:
                self.free = self._estimate(start, now, threads)
                self._restart(now)

    @contextmanager
    def measured(self, threads: int) -> Iterator[None]:
        """Measure a computation with this many threads."""
        before = self.before()
        try:
            yield
        finally:
            self.after(before, threads)

    def _restart(self, now: Counters) -> None:
        self._start, self._ours, self._waited, self._computed = now, 0.0, 0.0, 0.0

    def _estimate(self, start: Counters, now: Counters, threads: int) -> float:
        free = float(self.cpus())
        if start.busy is not None and now.busy is not None:
            free -= max(0.0, now.busy - start.busy - self._ours) / (now.at - start.at)
        waiting = self._waited / self._computed if self._computed else 0.0
        if waiting > WAITING:
            free = min(free, threads * (1.0 - waiting))
        return max(0.0, free)


METER = LoadMeter()
"""The meter of this process."""
