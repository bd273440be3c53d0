"""Bulk jobs on Ray: how long it takes until a lost worker, or a lost node, is replaced.

    python bench/ray_faults.py               # three rounds per fault
    python bench/ray_faults.py --rounds 1

Starts a cluster of two nodes on loopback with Ray's default settings, scores with mini, and kills with SIGKILL once ten
units are finished. A lost node is followed by a new one. Needs Linux and pip install "surefoot[ray]".
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import surefoot

NODE = {"num_cpus": 1, "node_ip_address": "127.0.0.1", "object_store_memory": 80 << 20}
SCORING = b"UnitWorker.score"
FINISHED = 10
SECONDS = 300.0


class LossTimes(logging.Handler):
    """Notes when a worker was reported as lost."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "was lost" in record.getMessage():
            self.times.append(time.monotonic())


def scoring_processes() -> set[int]:
    """Return the processes that score a unit: Ray puts the method that runs in their titles."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if SCORING in path.read_bytes():
                found.add(int(path.parent.name))
        except OSError:
            continue  # it has ended
    return found


def until(condition: Callable[[], bool]) -> float:
    """Wait until a condition holds, and return the time."""
    limit = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > limit:
            raise SystemExit("The job does not go on.")
        time.sleep(0.02)
    return time.monotonic()


def both_workers() -> set[int]:
    """Return the processes of both workers, once both have scored."""
    known: set[int] = set()
    while len(known) < 2:
        known |= scoring_processes()
        time.sleep(0.02)
    return known


def measure(fault: Callable[[], None], source: Path, out: Path) -> tuple[float, float]:
    """Return the seconds from a fault until its unit is given away, and until another worker scores in its place."""
    losses, journal = LossTimes(), out / "_surefoot" / "journal.jsonl"
    logging.getLogger("surefoot").addHandler(losses)
    job = threading.Thread(target=surefoot.bulk, args=(source, out), kwargs={"unit_rows": 8, "on": "ray", "workers": 2})
    job.start()
    until(lambda: journal.is_file() and journal.read_bytes().count(b"\n") >= FINISHED)
    known = both_workers()
    started = time.monotonic()
    fault()
    replaced = until(lambda: bool(scoring_processes() - known))
    job.join()
    logging.getLogger("surefoot").removeHandler(losses)
    return losses.times[0] - started, replaced - started


def kill_worker() -> None:
    """Kill a worker that scores."""
    until(lambda: bool(scoring_processes()))
    os.kill(min(scoring_processes()), signal.SIGKILL)


def replace_node(cluster: Any) -> None:
    """Kill the node without the driver, and start another one."""
    (node,) = cluster.worker_nodes
    cluster.remove_node(node, allow_graceful=False)
    cluster.add_node(**NODE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=3000)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))  # paths of sockets have to be short
    (folder / "ray").mkdir()
    os.environ |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_TMPDIR": str(folder), "RAY_USAGE_STATS_ENABLED": "0"}
    from ray.cluster_utils import Cluster

    source = folder / "rows.jsonl"
    rows = [{"question": f"What is {at} + 3?", "solution": f"{at} + 3 = {at + 3}."} for at in range(options.rows)]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    head = {"include_dashboard": False, "temp_dir": str(folder / "ray")}
    cluster = Cluster(initialize_head=True, head_node_args=NODE | head)
    try:
        cluster.add_node(**NODE)
        os.environ["RAY_ADDRESS"] = cluster.address
        faults = {"worker": kill_worker, "node": lambda: replace_node(cluster)}
        for round in range(options.rounds):
            for name, fault in faults.items():
                lost, replaced = measure(fault, source, folder / f"{name}-{round}")
                print(f"{name}: its unit is given away after {lost:.1f} s, a new worker scores after {replaced:.1f} s")
    finally:
        cluster.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
