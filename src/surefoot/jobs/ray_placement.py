"""Watches workers that the cluster has no room for: says what is missing, and stops a job that cannot start."""

from __future__ import annotations

import json
import logging
import time

from surefoot.errors import JobError
from surefoot.jobs.ray_connection import Demand, Node, live_nodes, require_ray

logger = logging.getLogger("surefoot")

CHECK_SECONDS = 1.0
WARN_SECONDS = 10.0
"""How long workers may wait before a warning."""
REPEAT_SECONDS = 600.0
"""How often the warning is repeated."""


class PlacementWatch:
    """Observes how many workers wait for a node. The time starts again when nodes join or a worker is placed."""

    def __init__(self, demand: Demand, patience: float) -> None:
        self._demand, self._patience = demand, patience
        self._nodes: frozenset[str] = frozenset()
        self._placing = 0
        self._since, self._checked = time.monotonic(), -CHECK_SECONDS
        self._warned: float | None = None

    def check(self, placing: int, workers: int) -> None:
        """Look at the pool, which has `workers` actors, of which `placing` have no node yet."""
        now = time.monotonic()
        if placing < self._placing or not placing:
            self._since = now
        self._placing = placing
        if not placing or now < self._checked + CHECK_SECONDS:
            return
        self._checked = now
        nodes = live_nodes()
        if found := frozenset(node.id for node in nodes) - self._nodes:
            self._nodes |= found
            self._since = now
        waited = now - self._since
        possible = any(self._demand.fits(node) for node in nodes)
        if placing == workers and not possible and waited >= self._patience and not autoscaler_adds_nodes():
            raise JobError(
                f"{self._missing(nodes)} Add such a node to the cluster, or ask for less (gpus_per_worker=...). "
                "Finished units are kept."
            )
        if waited >= WARN_SECONDS and (self._warned is None or now >= self._warned + REPEAT_SECONDS):
            self._warned = now
            reason = "Other jobs use the nodes that have it." if possible else self._missing(nodes)
            logger.warning("%d of %d workers wait for room. %s", placing, workers, reason)

    def _missing(self, nodes: list[Node]) -> str:
        largest = max(nodes, key=lambda node: (node.gpus, node.cpus), default=None)
        has = "The Ray cluster has no nodes." if largest is None else f"The largest node has {largest}."
        return f"A worker needs {self._demand} on one node, and no node of the Ray cluster has that. {has}"


def autoscaler_adds_nodes() -> bool:
    """Whether an autoscaler is starting nodes. False if Ray does not say: it has no public function for this."""
    ray = require_ray()
    try:
        from ray.autoscaler.v2.sdk import get_cluster_status
        from ray.experimental.internal_kv import _internal_kv_get

        if told := _internal_kv_get("__autoscaling_status"):
            report = json.loads(told).get("autoscaler_report") or {}
            if report.get("pending_nodes") or report.get("pending_launches"):
                return True
        status = get_cluster_status(ray.get_runtime_context().gcs_address)
        return bool(status.pending_nodes or status.pending_launches)
    except Exception:  # names and formats differ between versions of Ray
        return False
