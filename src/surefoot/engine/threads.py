"""How many CPU threads a process should use, and how long they spin while they wait for each other.

torch's threads belong to the whole process, in which other code may train. Only the processes that Surefoot starts
(commands, the service, workers) therefore call `spin_briefly` and `limit_threads`; elsewhere `thread_limit` limits the
threads of single computations. What the user sets in the environment is never changed. This module does not import
torch until a function needs it.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from surefoot.errors import OptionError

SPIN_COUNT = 2_000
"""Iterations for which a waiting OpenMP thread spins, about 0.1 ms. libgomp's default is 300,000, about 9 ms: longer
than a time slice, so a thread whose partner waits for a CPU spins until it loses its own. See docs/engine.md."""
THREAD_VARIABLES = ("MKL_NUM_THREADS", "OMP_NUM_THREADS")
"""In the order in which torch's builds with MKL prefer them."""
WAIT_VARIABLES = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


def usable_cpus() -> int:
    """Return how many CPUs this process can keep busy: those of its affinity mask, at most its cgroup's quota.

    A container with a quota of 2 CPUs on a machine with 64 has 2. A fraction of a CPU does not count, unless it is all
    that there is: more threads than the quota would all be paused at the end of every period.

    >>> usable_cpus()
    2
    """
    available = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return max(1, math.floor(min(available, cpu_quota())))


def cpu_quota(root: Path = Path("/")) -> float:
    """Return how many CPUs the cgroups of this process allow, for version 1 and 2; infinity if they set no limit."""
    return min((quota for folder in _cgroup_folders(root) for quota in _quotas(folder)), default=math.inf)


def _cgroup_folders(root: Path) -> Iterator[Path]:
    """The folders with this process's CPU limits, and all folders above them, whose limits apply, too.

    In a container, the path may be that of the host, where this process does not find it. The container's own limits
    are then at the top.
    """
    mounts = root / "sys" / "fs" / "cgroup"
    try:
        lines = (root / "proc" / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for mount in (mounts / controllers, mounts / ("cpu" if controllers else "unified")):
            for depth in range(len(parts) + 1):
                yield mount.joinpath(*parts[:depth])


def _quotas(folder: Path) -> Iterator[float]:
    """The quota in this folder, in CPUs, if there is one: microseconds of CPU time per period."""
    try:
        if (limit := folder / "cpu.max").is_file():
            quota, period = limit.read_text().split()
        else:
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        if quota != "max" and int(quota) > 0 and int(period) > 0:
            yield int(quota) / int(period)
    except (OSError, ValueError):  # there is no limit, or its format is unknown
        return


def chosen_threads() -> int | None:
    """Return the number of threads that the user has set in the environment, if there is one."""
    values = [os.environ.get(name, "").split(",")[0].strip() for name in THREAD_VARIABLES]
    return next((int(value) for value in values if value.isdecimal() and int(value) > 0), None)


def threads_per_worker(workers: int) -> int:
    """Return the number of threads for each of several worker processes, so that together they fit the usable CPUs.

    A number in the environment (OMP_NUM_THREADS, MKL_NUM_THREADS) takes precedence.

    >>> threads_per_worker(2)  # with 2 usable CPUs
    1
    """
    if workers < 1:
        raise OptionError(f"workers={workers} is not possible. Pass 1 or more.")
    return chosen_threads() or max(1, usable_cpus() // workers)


def default_workers() -> int:
    """Return how many worker processes score a long list fastest on the CPU: one per usable CPU, with one thread each.

    Processes do not wait for each other, while threads do after every operation. Each worker loads the model, so use
    fewer if memory does not suffice. If the environment sets a number of threads, workers have that many.

    >>> default_workers()
    2
    """
    return max(1, usable_cpus() // (chosen_threads() or 1))


def spin_briefly() -> None:
    """Let waiting OpenMP threads sleep soon. Call it in a process of ours, before torch is imported.

    It does nothing if torch is imported already, because libgomp reads the variable only once, or if the user has
    chosen how threads wait. Child processes inherit the setting. Other OpenMP runtimes ignore it.
    """
    if "torch" not in sys.modules and not any(name in os.environ for name in WAIT_VARIABLES):
        os.environ["GOMP_SPINCOUNT"] = str(SPIN_COUNT)


def limit_threads() -> None:
    """Let torch use no more threads than there are usable CPUs, unless the environment sets a number.

    Call it in a process of ours, before the first computation.
    """
    import torch

    if chosen_threads() is None and torch.get_num_threads() > usable_cpus():
        torch.set_num_threads(usable_cpus())
