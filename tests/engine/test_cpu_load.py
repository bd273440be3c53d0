"""How many CPUs are free, from counters as the kernel writes them and from hand-written sequences of them."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from surefoot.engine.cpu_load import GAP, WINDOW, Counters, LoadMeter, own_runnable, parse_stat, read_counters

# user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice; in ticks (man 5 proc_stat).
STAT = """cpu  1000 40 200 9000 50 7 8 30 0 0
cpu0 600 10 100 4000 20 3 4 10 0 0
cpu1 300 20 60 3000 20 2 3 15 0 0
cpu2 100 10 40 2000 10 2 1 5 0 0
ctxt 22
procs_running 7
procs_blocked 0
"""


@pytest.mark.parametrize(
    ("cpus", "busy", "runnable"),
    [
        ({0}, 7.27, 2.0),  # 600 + 10 + 100 + 3 + 4 + 10 ticks of 10 ms; 6 others on 3 CPUs
        ({0, 1}, 11.27, 4.0),
        ({0, 1, 2}, 12.85, 6.0),
    ],
)
def test_the_counters_of_the_usable_cpus(cpus: set[int], busy: float, runnable: float) -> None:
    assert list(parse_stat(STAT, cpus, 100)) == pytest.approx([busy, runnable])


@pytest.mark.parametrize(
    "files", [{}, {"proc/stat": "cpu0 what\n"}, {"proc/stat": "", "proc/thread-self/schedstat": ""}]
)
def test_a_machine_that_does_not_count(files: dict[str, str], tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = read_counters(tmp_path)
    assert (found.busy, found.waited, found.runnable) == (None, 0.0, 0.0)


@pytest.mark.parametrize(
    ("stats", "others"),
    [
        (["7 (python) R 1 1", "8 (python) R 1 1", "9 (pool (R) ) S 1 1"], 1),  # man 5 proc_pid_stat
        (["7 (python) R 1 1"], 0),
        (["7 (python) S 1 1", ""], 0),
        ([], 0),
    ],
)
def test_own_threads_that_run(stats: list[str], others: int, tmp_path: Path) -> None:
    for number, text in enumerate(stats):
        file = tmp_path / "proc" / "self" / "task" / str(number) / "stat"
        file.parent.mkdir(parents=True)
        file.write_text(text)
    assert own_runnable(tmp_path) == others


@pytest.mark.parametrize(("runnable", "own", "free"), [(1.0, 1, 2.0), (2.0, 1, 1.0), (0.0, 3, 2.0), (1.0, 0, 1.0)])
def test_threads_of_torch_that_spin_are_not_others(runnable: float, own: int, free: float) -> None:
    """After a matrix product they wait for the next one, which is a load of our own."""
    meter = LoadMeter(lambda: Counters(0.0, 0.0, 0.0, 0.0, 0.0, runnable), lambda: 2, lambda: own)
    meter.before()
    assert meter.free == free


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not count this")
def test_this_machine_counts_the_time_of_this_process() -> None:
    before = read_counters()
    while time.process_time() - before.process < 0.3:
        pass
    after = read_counters()
    assert before.busy is not None
    assert after.busy is not None
    assert after.thread - before.thread == pytest.approx(0.3, abs=0.1)
    assert after.busy - before.busy > 0.2
    assert after.busy - before.busy <= len(os.sched_getaffinity(0)) * (after.at - before.at + 0.1)
    assert 0 <= after.waited - before.waited <= after.at - before.at


def meter_after(*readings: Counters, threads: int, cpus: int = 2) -> LoadMeter:
    """A meter that has seen computations: each one begins and ends with a reading."""
    waiting = list(readings)
    meter = LoadMeter(read=lambda: waiting.pop(0), cpus=lambda: cpus)
    while waiting:
        with meter.measured(threads):
            pass
    return meter


@pytest.mark.parametrize(
    ("end", "threads", "free"),
    [
        # One second of computing. Nobody else runs.
        (Counters(1.0, busy=2.0, process=2.0, thread=1.0, waited=0.0), 2, 2.0),
        (Counters(1.0, busy=1.0, process=1.0, thread=1.0, waited=0.0), 1, 2.0),
        # Others use 0.3 CPUs, or a whole one.
        (Counters(1.0, busy=1.3, process=1.0, thread=1.0, waited=0.0), 1, 1.7),
        (Counters(1.0, busy=2.0, process=1.0, thread=1.0, waited=0.0), 1, 1.0),
        # Another thread of this process computes: with one thread, no more than one second is ours.
        (Counters(1.0, busy=2.0, process=2.0, thread=1.0, waited=0.0), 1, 1.0),
        # With two threads the CPU time looks the same, but the thread waited for a CPU half of the time.
        (Counters(1.0, busy=2.0, process=2.0, thread=0.5, waited=0.5), 2, 1.0),
        # Short waits are normal.
        (Counters(1.0, busy=2.0, process=2.0, thread=0.9, waited=0.05), 2, 2.0),
        # The kernel does not count: nothing is known about others.
        (Counters(1.0, busy=None, process=1.0, thread=1.0, waited=0.0), 1, 2.0),
        # Less than a window: still the first guess.
        (Counters(WINDOW / 2, busy=2.0, process=0.1, thread=0.1, waited=0.1), 2, 2.0),
    ],
)
def test_what_others_leave(end: Counters, threads: int, free: float) -> None:
    assert meter_after(Counters(0.0, 0.0, 0.0, 0.0, 0.0), end, threads=threads).free == pytest.approx(free)


@pytest.mark.parametrize(
    ("process", "thread", "free"),
    [
        (0.8, 0.8, 2.0),  # it prepares the next computation
        (1.6, 0.8, 2.0),  # it computes something else with two threads of torch, like a policy
        (0.8, 0.0, 1.2),  # it waits, and another thread of this process computes
        (0.8, 0.2, 1.6),  # both: no more than two threads of torch can work for this one
    ],
)
def test_what_a_thread_does_between_computations_is_no_load_of_others(
    process: float, thread: float, free: float
) -> None:
    """0.1 s of computing with one thread, 0.8 s of something else in a process that uses `process` s of CPU time, and
    0.1 s of computing. Nobody else runs on the two CPUs."""
    zero = Counters(0.0, 0.0, 0.0, 0.0, 0.0)
    pause = Counters(0.1, 0.1, 0.1, 0.1, 0.0)
    again = Counters(0.9, 0.1 + process, 0.1 + process, 0.1 + thread, 0.0)
    end = Counters(1.0, 0.2 + process, 0.2 + process, 0.2 + thread, 0.0)
    assert meter_after(zero, pause, again, end, threads=1).free == pytest.approx(free)


def test_after_a_pause_the_run_queue_decides() -> None:
    zero = Counters(0.0, 0.0, 0.0, 0.0, 0.0)
    end = Counters(0.1, 0.1, 0.1, 0.1, 0.0)
    later = Counters(0.2 + GAP, 0.1, 0.1, 0.1, 0.0, runnable=1.0)
    meter = meter_after(zero, end, later, later, threads=2)
    assert meter.free == 1.0
