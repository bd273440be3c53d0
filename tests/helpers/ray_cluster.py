"""A real Ray cluster of one or two nodes on this machine, which listens on loopback only."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

SECONDS = 120.0
"""After which a test gives up."""

LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
"""127.0.0.1 in IPv4 and in IPv6, and ::1, as in /proc/net."""

NODE = {"num_cpus": 1, "node_ip_address": "127.0.0.1", "object_store_memory": 80 << 20}
HEALTH = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 1000, "health_check_failure_threshold": 3}


@dataclass
class RayCluster:
    """The cluster and the processes that it has had."""

    cluster: Any = None
    others: set[int] = field(default_factory=lambda: _descendants(os.getpid()))
    """Processes that were there before."""
    seen: set[int] = field(default_factory=set)

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    @property
    def nodes(self) -> list[Any]:
        return list(self.cluster.list_all_nodes())

    @property
    def worker_node(self) -> Any:
        """The node without the driver."""
        (node,) = self.cluster.worker_nodes
        return node

    def actors(self, node: Any, title: bytes = b"UnitWorker") -> list[int]:
        """The process ids of the workers of a job on a node. Ray puts the method that runs in their titles."""
        self.note_processes()
        (raylet,) = node.all_processes["raylet"]
        return [pid for pid in _descendants(raylet.process.pid) if title in _command(pid)]

    def add_node(self) -> None:
        self.cluster.add_node(**NODE)

    def lose_node(self) -> None:
        """Kill the node without the driver and its workers, as a power failure would.

        Without their raylet, workers would end by themselves, but on a fast machine they finish a whole job before.
        """
        workers = self.actors(self.worker_node)
        self.cluster.remove_node(self.worker_node, allow_graceful=False)
        for pid in workers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def note_processes(self) -> None:
        self.seen |= _descendants(os.getpid()) - self.others

    def listeners(self) -> set[str]:
        """The addresses on which processes of the cluster listen."""
        self.note_processes()
        addresses = _listening_sockets()
        found = {addresses[socket] for pid in self.seen for socket in _sockets(pid) if socket in addresses}
        assert found
        return found

    def require_ended(self) -> None:
        """Wait until no process is left."""
        self.note_processes()
        wait_for(lambda: not any(b"ray" in _command(pid) for pid in self.seen))


def ray_folder() -> str:
    """Create a folder for RAY_TMPDIR. Sockets are in it, and their paths may not be longer than 107 bytes."""
    folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")
    (Path(folder) / "ray").mkdir()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # Ray creates folders in it at exit
    return folder


@contextmanager
def local_cluster(nodes: int = 2, cpus: int = 1) -> Iterator[RayCluster]:
    """Start a cluster to which `on="ray"` connects, with `cpus` per node. Nothing of it is left at the end."""
    folder = ray_folder()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_TMPDIR", folder)
        import ray
        from ray.cluster_utils import Cluster

        patch.setattr(ray._private.ray_constants, "ENABLE_RAY_CLUSTER", False)  # if Ray was imported before
        head = {"include_dashboard": False, "temp_dir": f"{folder}/ray", "_system_config": HEALTH}
        running = RayCluster()
        running.cluster = Cluster(initialize_head=True, head_node_args=NODE | head | {"num_cpus": cpus})
        try:
            for _ in range(nodes - 1):
                running.add_node()
            patch.setenv("RAY_ADDRESS", running.address)
            yield running
        finally:
            running.note_processes()
            ray.shutdown()
            running.cluster.shutdown()
            running.require_ended()
            shutil.rmtree(folder)


def wait_for(condition: Callable[[], bool]) -> float:
    """Wait until a condition holds, and return how long that took."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() < started + SECONDS
        time.sleep(0.05)
    return time.monotonic() - started


def _descendants(root: int) -> set[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue  # it has ended
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {root}


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _sockets(pid: int) -> list[str]:
    try:
        return [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return []


def _listening_sockets() -> dict[str, str]:
    found = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A":
                found[f"socket:[{words[9]}]"] = words[1].partition(":")[0]
    return found
