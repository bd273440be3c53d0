"""Bulk jobs on a real Ray cluster of two nodes: the same files as those of one process, also after faults."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import surefoot
from helpers.bulk import content, sums, write_jsonl
from helpers.ray_cluster import LOOPBACK, SECONDS, RayCluster, local_cluster, ray_folder, wait_for
from surefoot.errors import JobError, LoadError, MissingDependencyError, OptionError
from surefoot.jobs import ray_cluster, ray_placement
from surefoot.jobs.bulk import BulkReport
from surefoot.jobs.folder import Entry, Journal
from surefoot.jobs.plan import Unit
from surefoot.jobs.ray_connection import Node, connected, cpus_per_worker

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="uses /proc and SIGKILL")


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with local_cluster() as running:
        yield running


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows: list[Any] = list(sums(questions=24, solutions=2))
    rows[5:5] = ["{bad"]
    rows[30:30] = ['{"question": "What?"}']
    return write_jsonl(tmp_path_factory.mktemp("in") / "in.jsonl", rows)


@pytest.fixture(scope="module")
def expected(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What one process writes, with one thread, as the workers have."""
    import torch

    out, threads = tmp_path_factory.mktemp("one") / "out", torch.get_num_threads()
    torch.set_num_threads(1)
    surefoot.bulk(source, out, model="mini", unit_rows=4)
    torch.set_num_threads(threads)
    found = content(out)
    assert len(found) == 12 + 2  # parts of two questions each, and the errors of two units
    return found


def run(source: Path, out: Path, **options: Any) -> BulkReport:
    given: dict[str, Any] = {"model": "mini", "workers": 2} | options
    return surefoot.bulk(source, out, unit_rows=4, on="ray", **given)


@pytest.fixture
def after_units(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], bool]], None]:
    """Lets a test do something when some units are in the journal and the workers are scoring others.

    The action is repeated after every unit until it returns True. The driver waits meanwhile.
    """

    def install(count: int, action: Callable[[], bool]) -> None:
        append, done = Journal.append, False

        def hooked(journal: Journal, entry: Entry) -> None:
            nonlocal done
            append(journal, entry)
            if not done and len(journal.entries) >= count:
                done = action()

        monkeypatch.setattr(Journal, "append", hooked)

    return install


def has_warned(caplog: pytest.LogCaptureFixture, text: str) -> bool:
    return any(text in record.message for record in caplog.records)


def test_a_list_of_models_is_an_ensemble_in_every_worker(
    cluster: RayCluster, source: Path, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative folder is found by actors, which work in other folders."""
    monkeypatch.chdir(checkpoint.parent)
    run(source, tmp_path / "ray", model=["mini", checkpoint.name], load={"combine": "min"})
    found = Journal(tmp_path / "ray").model
    ensemble = surefoot.load(["mini", checkpoint], combine="min")
    assert found is not None
    assert (found.name, found.fingerprint) == (ensemble.name, ensemble.fingerprint)


def test_a_killed_worker_costs_only_its_unit(
    cluster: RayCluster,
    source: Path,
    expected: dict[str, bytes],
    tmp_path: Path,
    after_units: Callable[[int, Callable[[], bool]], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    listeners: set[str] = set()

    def scoring() -> list[int]:
        return [pid for node in cluster.nodes for pid in cluster.actors(node, b"UnitWorker.score")]

    def kill() -> bool:
        listeners.update(cluster.listeners())
        wait_for(lambda: bool(scoring()))  # the other worker may still be loading the model
        os.kill(scoring()[0], signal.SIGKILL)
        return True

    after_units(1, kill)
    report = run(source, tmp_path / "out")
    assert content(tmp_path / "out") == expected
    assert (report.units, report.rows, report.bad_rows) == (12, 48, 2)
    assert has_warned(caplog, "goes to another one")
    assert listeners <= LOOPBACK
    assert not ray.is_initialized()
    wait_for(lambda: not any(map(cluster.actors, cluster.nodes)))


DRIVER = """
import os, signal, sys
import surefoot
from surefoot.jobs.folder import Journal

append = Journal.append

def append_and_die(journal, entry):
    append(journal, entry)
    if len(journal.entries) == 2:
        os.kill(os.getpid(), signal.SIGKILL)

Journal.append = append_and_die
surefoot.bulk(sys.argv[1], sys.argv[2], model="mini", unit_rows=4, on="ray", workers=1)
"""


def test_a_killed_driver_continues_and_a_lost_node_costs_only_its_unit(
    cluster: RayCluster,
    source: Path,
    expected: dict[str, bytes],
    tmp_path: Path,
    after_units: Callable[[int, Callable[[], bool]], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    out = tmp_path / "out"
    killed = subprocess.run([sys.executable, "-c", DRIVER, str(source), str(out)], timeout=SECONDS, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not content(out).items() - expected.items()

    pools: list[ray_cluster.ActorPool] = []

    class Watched(ray_cluster.ActorPool):
        def __init__(self, *options: Any) -> None:
            super().__init__(*options)
            pools.append(self)

    def lose_node() -> bool:
        """Lose the node once its worker has a unit. Until it has loaded the model, the driver waits for it here."""
        node, patience = cluster.worker_node, time.monotonic() + 30
        if any(each.stage == "scoring" and each.node == node.node_id for each in pools[-1]._calls.values()):
            cluster.lose_node()
            return True
        idle = False
        while not idle and time.monotonic() < patience:
            time.sleep(0.3)
            idle = bool(cluster.actors(node)) and not cluster.actors(node, b"UnitWorker.")
        return False

    monkeypatch.setattr(ray_cluster, "ActorPool", Watched)
    after_units(3, lose_node)
    try:
        report = run(source, out)
    finally:
        cluster.add_node()
    assert report.resumed_units == 2
    assert content(out) == expected
    assert has_warned(caplog, "A worker was lost")
    assert not list(out.rglob(".*.tmp"))
    wait_for(lambda: not any(map(cluster.actors, cluster.nodes)))  # also those of the killed driver


def test_an_error_of_the_model_arrives_as_it_is(cluster: RayCluster, source: Path, tmp_path: Path) -> None:
    with pytest.raises(LoadError) as here:
        surefoot.load(str(tmp_path / "missing"))
    with pytest.raises(LoadError) as there:
        run(source, tmp_path / "out", model=str(tmp_path / "missing"))
    assert type(there.value) is type(here.value)
    assert str(there.value) == str(here.value)
    assert not ray.is_initialized()


def test_resources_that_do_not_exist_raise(
    cluster: RayCluster,
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("SUREFOOT_RAY_WAIT", "2")
    monkeypatch.setattr(ray_placement, "WARN_SECONDS", 1.0)
    with pytest.raises(JobError, match="A worker needs 1 CPU and 2 GPUs on one node, and no node .* has 1 CPU"):
        run(source, tmp_path / "out", gpus_per_worker=2)
    assert has_warned(caplog, "2 of 2 workers wait for room")


def crashing_worker() -> type[ray_cluster.UnitWorker]:
    class Crashing(ray_cluster.UnitWorker):
        def load(self, settings: ray_cluster.WorkerSettings) -> None:
            pass

        def score(self, unit: Unit) -> Entry:
            os._exit(1)

    return Crashing


def broken_worker() -> type[ray_cluster.UnitWorker]:
    class Broken(ray_cluster.UnitWorker):
        def __init__(self) -> None:
            raise ImportError("No module named 'surefoot'")

    return Broken


@pytest.mark.parametrize(
    ("worker", "message"),
    [
        (crashing_worker, "3 workers died while they scored unit 0"),
        (broken_worker, "3 times in a row: ImportError: No module named 'surefoot'"),
    ],
)
def test_workers_that_always_die_stop_the_job(
    worker: Callable[[], type[ray_cluster.UnitWorker]],
    message: str,
    cluster: RayCluster,
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ray_cluster, "UnitWorker", worker())
    monkeypatch.setattr(ray_cluster, "MAX_PAUSE", 0.1)
    with pytest.raises(JobError, match=message):
        run(source, tmp_path / "out", workers=1)


def test_a_worker_with_another_version_is_rejected(tmp_path: Path) -> None:
    settings = ray_cluster.WorkerSettings(str(tmp_path), "mini", {}, None, None, version="0.0.1")
    with pytest.raises(JobError, match="started the job 0.0.1. Install the same version on all nodes"):
        ray_cluster.UnitWorker().load(settings)


OWN_CLUSTER = """
import os
import ray
from helpers.ray_cluster import LOOPBACK, RayCluster
from surefoot.errors import OptionError
from surefoot.jobs.ray_connection import LOCAL_SETTINGS, connected

own, before = RayCluster(), dict(os.environ)
with connected(None) as started:
    assert started
    assert own.listeners() <= LOOPBACK
    try:
        with connected("127.0.0.1:1"):
            raise AssertionError
    except OptionError as error:
        assert "connected to a Ray cluster already" in str(error)
    with connected(None) as again:
        assert not again
    assert ray.is_initialized()
assert not ray.is_initialized()
own.require_ended()
assert all(os.environ.get(name) == before.get(name) for name in LOCAL_SETTINGS)
"""


def test_a_cluster_that_starts_for_a_job_is_on_loopback_and_ends_with_it() -> None:
    """In a process of its own, because Ray then requires a token of every cluster that the process connects to."""
    folder = ray_folder()
    (Path(folder) / "ray" / "ray_current_cluster").write_text("127.0.0.1:1")  # of a cluster that has ended
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")} | {
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "RAY_AUTH_TOKEN": "0" * 32,  # else Ray writes one to the home folder
        "RAY_TMPDIR": folder,
    }
    subprocess.run([sys.executable, "-c", OWN_CLUSTER], env=environment, timeout=SECONDS, check=True)
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("address", "error", "message"),
    [
        ("127.0.0.1:1", JobError, "127.0.0.1:1 cannot be used: No connection to .*:1 "),
        ("nonsense", JobError, "nonsense cannot be used: Invalid address"),
        pytest.param(
            "ray://127.0.0.1:1",
            MissingDependencyError,
            'pip install "ray.client."',
            marks=pytest.mark.skipif(find_spec("grpc") is not None, reason="Ray's client is installed"),
        ),
    ],
)
def test_an_address_without_a_cluster_raises_at_once(address: str, error: type[Exception], message: str) -> None:
    started = time.monotonic()
    with pytest.raises(error, match=message), connected(address):
        pass
    assert time.monotonic() - started < 30


def test_without_ray_the_error_says_what_to_install(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependencyError, match='pip install "surefoot.ray."'):
        run(source, tmp_path / "out")


@pytest.mark.parametrize(
    ("nodes", "workers", "cpus"),
    [
        ([8], 1, 8),
        ([8], 2, 4),
        ([8], 3, 2),
        ([8], 16, 1),
        ([8, 8], 2, 8),
        ([8, 2], 2, 4),  # both on the first node
        ([8, 2], 5, 2),
        ([0, 4], 1, 4),
        ([0], 2, 1),  # nodes that have not joined yet
        ([], 2, 1),
    ],
)
def test_workers_share_the_cpus(nodes: list[int], workers: int, cpus: int) -> None:
    assert cpus_per_worker([Node(str(at), count, 0) for at, count in enumerate(nodes)], workers) == cpus


@pytest.mark.parametrize("gpus", [-1.0, 1.5])
def test_impossible_numbers_of_gpus(gpus: float, source: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="gpus_per_worker"):
        run(source, tmp_path / "out", gpus_per_worker=gpus)
