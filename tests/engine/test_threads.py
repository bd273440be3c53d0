"""The CPUs that a process may use, and the threads that it starts. Files with limits are as the kernel writes them."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import surefoot
from surefoot.cli.main import main
from surefoot.engine import thread_limit, threads
from surefoot.engine.cpu_load import Counters, LoadMeter
from surefoot.errors import OptionError
from surefoot.scoring.local import load_local

PLAIN = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "MKL_"))}
ITEM = ("What is 2 + 3?", ["2 + 3 = 5.", "So the answer is 5."])
V2 = {"proc/self/cgroup": "0::/\n"}
V1 = {"proc/self/cgroup": "5:memory:/\n3:cpu,cpuacct:/\n"}


@pytest.fixture(autouse=True)
def _nothing_chosen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The environment sets no threads, and torch has two. Both are restored."""
    for name in (*threads.THREAD_VARIABLES, *threads.WAIT_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(thread_limit, "_fixed", 0)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def in_child(program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=PLAIN | variables, capture_output=True, text=True, timeout=120, check=True)


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        # Version 2: "QUOTA PERIOD" in microseconds, or "max" without a limit.
        ({**V2, "sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2.0),
        ({**V2, "sys/fs/cgroup/cpu.max": "25000 50000\n"}, 0.5),
        ({**V2, "sys/fs/cgroup/cpu.max": "max 100000\n"}, math.inf),
        ({**V2}, math.inf),  # the root cgroup has no such file
        ({**V2, "sys/fs/cgroup/unified/cpu.max": "300000 100000\n"}, 3.0),
        ({**V2, "sys/fs/cgroup/cpu.max": "unlimited\n"}, math.inf),
        ({**V2, "sys/fs/cgroup/cpu.max": "100000 0\n"}, math.inf),
        # The smallest limit on the way to the root applies.
        (
            {
                "proc/self/cgroup": "0::/jobs/one\n",
                "sys/fs/cgroup/jobs/cpu.max": "150000 100000\n",
                "sys/fs/cgroup/jobs/one/cpu.max": "400000 100000\n",
            },
            1.5,
        ),
        (
            {
                "proc/self/cgroup": "0::/jobs/one\n",
                "sys/fs/cgroup/jobs/cpu.max": "max 100000\n",
                "sys/fs/cgroup/jobs/one/cpu.max": "400000 100000\n",
                "sys/fs/cgroup/jobs/two/cpu.max": "100000 100000\n",
            },
            4.0,
        ),
        # In a container, the path may be that of the host.
        ({"proc/self/cgroup": "0::/docker/4f3a\n", "sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2.0),
        ({"proc/self/cgroup": "0::/../other\n", "sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2.0),
        # Version 1: two files, and -1 without a limit.
        (
            {
                **V1,
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "250000\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            },
            2.5,
        ),
        (
            {
                **V1,
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            },
            math.inf,
        ),
        (
            {
                "proc/self/cgroup": "2:cpuset:/\n1:cpu:/docker/4f3a\n0::/\n",
                "sys/fs/cgroup/cpu/docker/4f3a/cpu.cfs_quota_us": "100000\n",
                "sys/fs/cgroup/cpu/docker/4f3a/cpu.cfs_period_us": "100000\n",
            },
            1.0,
        ),
        # Other controllers have their own trees.
        (
            {
                "proc/self/cgroup": "2:cpuset:/small\n1:cpu:/\n",
                "sys/fs/cgroup/cpu/small/cpu.cfs_quota_us": "100000\n",
                "sys/fs/cgroup/cpu/small/cpu.cfs_period_us": "100000\n",
            },
            math.inf,
        ),
        ({**V1}, math.inf),
        ({}, math.inf),  # not Linux
    ],
)
def test_the_quota_is_read_from_the_cgroup(files: dict[str, str], cpus: float, tmp_path: Path) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    assert threads.cpu_quota(tmp_path) == cpus


@pytest.mark.parametrize(
    ("available", "quota", "usable"), [(64, 2.0, 2), (64, 2.9, 2), (64, 0.3, 1), (4, math.inf, 4), (2, 16.0, 2)]
)
@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no affinity mask")
def test_usable_cpus(available: int, quota: float, usable: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(available)))
    monkeypatch.setattr(threads, "cpu_quota", lambda: quota)
    assert threads.usable_cpus() == usable


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no affinity mask")
def test_the_affinity_mask_limits_the_cpus() -> None:
    program = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); "
        "from surefoot.engine.threads import default_workers, threads_per_worker, usable_cpus; "
        "print(usable_cpus(), threads_per_worker(1), default_workers())"
    )
    assert in_child(program).stdout == "1 1 1\n"


@pytest.mark.parametrize(
    ("cpus", "workers", "variables", "expected"),
    [
        (8, 1, {}, 8),
        (8, 2, {}, 4),
        (8, 3, {}, 2),
        (8, 8, {}, 1),
        (8, 20, {}, 1),
        (2, 2, {}, 1),
        (8, 2, {"OMP_NUM_THREADS": "3"}, 3),
        (8, 2, {"OMP_NUM_THREADS": "3,1"}, 3),
        (8, 2, {"MKL_NUM_THREADS": "1"}, 1),
        # torch takes MKL's number if both are set.
        (8, 2, {"OMP_NUM_THREADS": "3", "MKL_NUM_THREADS": "1"}, 1),
        # OpenMP ignores these.
        (8, 2, {"OMP_NUM_THREADS": ""}, 4),
        (8, 2, {"OMP_NUM_THREADS": "0"}, 4),
        (8, 2, {"OMP_NUM_THREADS": "many"}, 4),
    ],
)
def test_threads_per_worker(
    cpus: int, workers: int, variables: dict[str, str], expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "usable_cpus", lambda: cpus)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert threads.threads_per_worker(workers) == expected


@pytest.mark.parametrize(("cpus", "chosen", "expected"), [(8, None, 8), (8, "2", 4), (8, "3", 2), (2, "4", 1)])
def test_default_workers(cpus: int, chosen: str | None, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "usable_cpus", lambda: cpus)
    if chosen is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", chosen)
    assert threads.default_workers() == expected


def test_no_worker_is_an_error() -> None:
    with pytest.raises(OptionError, match="workers=0 is not possible. Pass 1 or more."):
        threads.threads_per_worker(0)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "2000 None"),
        ({"GOMP_SPINCOUNT": "7"}, "7 None"),
        ({"OMP_WAIT_POLICY": "active"}, "None active"),
    ],
)
def test_commands_spin_briefly_unless_the_user_has_chosen(variables: dict[str, str], expected: str) -> None:
    program = (
        "import os, sys; from surefoot.cli.main import main; main(['--version']); assert 'torch' not in sys.modules; "
        "print(os.environ.get('GOMP_SPINCOUNT'), os.environ.get('OMP_WAIT_POLICY'))"
    )
    assert in_child(program, **variables).stdout.splitlines()[-1] == expected


@pytest.mark.parametrize(("variables", "expected"), [({}, "64"), ({"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "7"}, "7")])
def test_commands_keep_few_kernels_unless_the_user_has_chosen(variables: dict[str, str], expected: str) -> None:
    program = (
        "import os; from surefoot.cli.main import main; main(['--version']); "
        "print(os.environ.get('ONEDNN_PRIMITIVE_CACHE_CAPACITY'))"
    )
    assert in_child(program, **variables).stdout.splitlines()[-1] == expected


@pytest.mark.skipif(sys.platform != "linux", reason="torch has another OpenMP runtime")
def test_libgomp_reads_how_long_to_spin() -> None:
    """OMP_DISPLAY_ENV lets libgomp print its settings when torch loads it."""
    program = "from surefoot.cli.main import main; main(['--version']); import torch"
    said = in_child(program, OMP_DISPLAY_ENV="verbose").stderr
    assert "GOMP_SPINCOUNT = '2000'" in said


def test_the_environment_stays_as_it_is_once_torch_is_imported() -> None:
    threads.spin_briefly()
    assert not any(name in os.environ for name in threads.WAIT_VARIABLES)


@pytest.mark.parametrize(
    ("cpus", "variables", "options", "expected"),
    [
        (1, {}, [], 1),
        (2, {}, [], 2),
        (64, {}, [], 2),  # a smaller number may have been chosen
        (1, {"OMP_NUM_THREADS": "2"}, [], 2),
        (1, {}, ["--threads", "2"], 2),
    ],
)
def test_a_command_uses_as_many_threads_as_cpus(
    cpus: int,
    variables: dict[str, str],
    options: list[str],
    expected: int,
    tiny: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "usable_cpus", lambda: cpus)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert main(["score", "--question", ITEM[0], "--solution", ITEM[1][0], "--model", str(tiny), *options]) == 0
    assert torch.get_num_threads() == expected


@pytest.mark.parametrize(("cpus", "variables", "expected"), [(1, {}, 1), (2, {}, 2), (1, {"OMP_NUM_THREADS": "2"}, 2)])
def test_a_loaded_model_uses_as_many_threads_as_cpus_and_changes_nothing(
    cpus: int, variables: dict[str, str], expected: int, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    still = Counters(0.0, None, 0.0, 0.0, 0.0)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    scorer = load_local(tiny, device="cpu")
    monkeypatch.setattr(scorer.engine._threads, "_meter", LoadMeter(read=lambda: still, cpus=lambda: cpus))
    seen: list[int] = []
    scorer.engine.backbone.register_forward_hook(lambda *_: seen.append(torch.get_num_threads()))
    scorer.score(*ITEM)
    assert seen == [expected]
    assert torch.get_num_threads() == 2
    assert dict(os.environ) == before


def test_scores_do_not_depend_on_the_number_of_threads() -> None:
    """Five steps: with MKL, a matrix product with five rows is rounded differently by one and by two threads."""
    torch.set_num_threads(1)
    scorer = surefoot.load("mini")
    steps = [f"{number} + 4 = {number + 4}." for number in range(5)]
    found = []
    for number in (1, 2):
        torch.set_num_threads(number)
        found.append(scorer.score("What is 4 + 4?", steps).step_scores)
    assert len(found[0]) == 5
    assert found[0] == pytest.approx(found[1], rel=0, abs=1e-5)
