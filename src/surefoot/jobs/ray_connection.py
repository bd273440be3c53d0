"""Connects to a Ray cluster, or starts one on this machine, and tells what its nodes have."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from surefoot.errors import JobError, MissingDependencyError, OptionError

logger = logging.getLogger("surefoot")

OBJECT_STORE_BYTES = 128 << 20
"""Of a cluster that we start. Units and journal entries are small: results are in files."""

CLIENT_SCHEME = "ray://"
ANSWER_SECONDS = 10.0

LOCAL_SETTINGS = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # without it, Ray replaces 127.0.0.1 by the machine's address
    "RAY_USAGE_STATS_ENABLED": "0",
}


@dataclass(frozen=True)
class Demand:
    """What one worker needs on its node."""

    cpus: int
    gpus: float

    def fits(self, node: Node) -> bool:
        """Whether the node has this, used or not."""
        return node.cpus >= self.cpus and node.gpus >= self.gpus

    def __str__(self) -> str:
        return _amounts(self.cpus, self.gpus)


@dataclass(frozen=True)
class Node:
    """A node that is alive, with all that it has."""

    id: str
    cpus: float
    gpus: float

    def __str__(self) -> str:
        return _amounts(self.cpus, self.gpus)


def _amounts(cpus: float, gpus: float) -> str:
    named = ((cpus, "CPU"), (gpus, "GPU"))
    return " and ".join(f"{count:g} {name}{'s' * (count > 1)}" for count, name in named if count) or "no CPU"


def require_ray() -> Any:
    """Import Ray."""
    try:
        import ray
    except ImportError as error:
        raise MissingDependencyError(
            f'Jobs on Ray need the package ray ({error}). Run: pip install "surefoot[ray]"'
        ) from error
    return ray


@contextmanager
def connected(address: str | None) -> Iterator[bool]:
    """Hold a connection to the cluster at `address`, and tell whether it is one of our own.

    Without an address, this is the connection that the process has, else the cluster that Ray finds, else a new one on
    this machine, which ends with the connection. What others have opened stays open.
    """
    ray = require_ray()
    if ray.is_initialized():
        if address is not None:
            raise OptionError(
                f"This process is connected to a Ray cluster already, so {address} cannot be used. Use on='ray' for "
                "the connection that it has, or call ray.shutdown() first."
            )
        yield False
        return
    with _quiet(ray):
        own = _open(ray, address)
        try:
            yield own
        finally:
            ray.shutdown()


@contextmanager
def _quiet(ray: Any) -> Iterator[None]:
    """Keep Ray's reports about dead processes out of standard output, where it prints them whatever its log level."""
    worker = ray._private.worker
    printer = getattr(worker, "print_to_stdstream", None)
    worker.print_to_stdstream = lambda data, *_, **__: logger.debug("Ray: %s", data)
    try:
        yield
    finally:
        worker.print_to_stdstream = printer


def _open(ray: Any, address: str | None) -> bool:
    """Connect, and tell whether a cluster was started for it."""
    named = address or os.environ.get("RAY_ADDRESS")
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        found = _find_cluster(ray, named)
        if found is not None:
            ray.init(found, **quiet)
            return False
        with _on_loopback(ray):
            ray.init(
                "local",
                _node_ip_address="127.0.0.1",
                include_dashboard=False,
                object_store_memory=OBJECT_STORE_BYTES,
                **quiet,
            )
        return True
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise JobError(
            f"The Ray cluster {named or 'of this machine'} cannot be used: {error} Check its address, and that this "
            "machine has the versions of Python and Ray that the cluster has. Finished units are kept."
        ) from error


def _find_cluster(ray: Any, named: str | None) -> str | None:
    """Return the address of a cluster that answers: the one that is named, else that of `ray start` here, or None."""
    if named is not None and named.startswith(CLIENT_SCHEME):
        if find_spec("grpc") is None:
            raise MissingDependencyError(f'{named} needs the client of Ray. Run: pip install "ray[client]"')
        _require_answer(named.removeprefix(CLIENT_SCHEME))
        return named
    found: str | None = ray._private.services.canonicalize_bootstrap_address(None if named == "auto" else named)
    if found is None:
        return None
    try:
        _require_answer(found)
    except OSError:
        if named in (None, "auto"):
            return None  # of a cluster that has ended
        raise
    return found


def _require_answer(address: str) -> None:
    """Raise if nobody listens. Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWER_SECONDS).close()
    except (OSError, ValueError) as error:
        raise ConnectionError(f"No connection to {address} ({error}).") from error


@contextmanager
def _on_loopback(ray: Any) -> Iterator[None]:
    """Make a cluster that starts meanwhile listen on loopback only. Ray reads the variable when it is imported."""
    constants = ray._private.ray_constants
    before = {name: os.environ.get(name) for name in LOCAL_SETTINGS}
    allowed = constants.ENABLE_RAY_CLUSTER
    os.environ.update(LOCAL_SETTINGS)
    constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = allowed
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def live_nodes() -> list[Node]:
    """Return the nodes of the cluster that are alive."""
    nodes = [node for node in require_ray().nodes() if node["Alive"]]
    return [
        Node(node["NodeID"], node["Resources"].get("CPU", 0.0), node["Resources"].get("GPU", 0.0)) for node in nodes
    ]


def cpus_per_worker(nodes: Sequence[Node], workers: int) -> int:
    """Return the most CPUs per worker with which all workers find room at the same time; at least 1."""
    largest = int(max((node.cpus for node in nodes), default=1))
    shares = range(largest, 1, -1)
    return next((share for share in shares if sum(int(node.cpus) // share for node in nodes) >= workers), 1)
