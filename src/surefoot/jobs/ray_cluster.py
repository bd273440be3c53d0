"""Runs the units of a job on a Ray cluster: one actor per worker, which loads the model and scores one unit at a time.

The actors write parts into the folder of the job, which all nodes share; only the driver writes the journal. An actor
that is lost costs the unit in progress: another one scores it again, and a new actor takes its place.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from surefoot._version import __version__
from surefoot.engine.threads import spin_briefly
from surefoot.errors import JobError, OptionError
from surefoot.jobs.folder import Entry, ModelIdentity
from surefoot.jobs.local import MAX_ATTEMPTS, check_attempts, load_unit_scorer
from surefoot.jobs.plan import Unit
from surefoot.jobs.ray_connection import Demand, connected, cpus_per_worker, live_nodes, require_ray
from surefoot.jobs.ray_placement import PlacementWatch
from surefoot.jobs.unit import UnitScorer
from surefoot.scoring.load_options import DEFAULT_MODEL
from surefoot.scoring.scorer_like import ModelLike, computes_here

logger = logging.getLogger("surefoot")

CHECK_SECONDS = 1.0
"""How often the pool is looked at while no call ends."""
MAX_PAUSE = 60.0
"""The longest pause before another actor is started if actors die while they start."""
KILL_SECONDS = 10.0
DEFAULT_WAIT = 600.0
WAIT_VARIABLE = "SUREFOOT_RAY_WAIT"
PATH_OPTIONS = ("base", "cache", "calibration", "generator", "tokenizer")
"""Options of `surefoot.load` that may be paths."""

Stage = Literal["placing", "loading", "scoring"]


@dataclass(frozen=True)
class WorkerSettings:
    """What an actor needs to score units of a job, on any node and in any working directory."""

    out: str
    model: ModelLike
    load: Mapping[str, Any]
    expected: ModelIdentity | None
    threads: int | None
    version: str = __version__


class UnitWorker:
    """An actor: a process on a node of the cluster, with its own copy of the model."""

    def __init__(self) -> None:
        self._scorer: UnitScorer | None = None

    def node(self) -> str:
        """Return the id of the node, once the actor runs."""
        return str(require_ray().get_runtime_context().get_node_id())

    def load(self, settings: WorkerSettings) -> None:
        """Load the model and the job."""
        if settings.version != __version__:
            raise JobError(
                f"A worker has Surefoot {__version__}, and the process that started the job {settings.version}. "
                "Install the same version on all nodes of the cluster."
            )
        spin_briefly()
        self._scorer = load_unit_scorer(
            settings.out, settings.model, settings.load, settings.expected, settings.threads
        )

    def score(self, unit: Unit) -> Entry:
        """Score a unit and write its files."""
        assert self._scorer is not None
        return self._scorer.run(unit)


def run_on_ray(
    out: Path,
    units: Sequence[Unit],
    model: ModelLike,
    load: Mapping[str, Any],
    expected: ModelIdentity | None,
    *,
    address: str | None,
    workers: int,
    gpus: float,
    wait: float | None = None,
) -> Iterator[Entry]:
    """Score units on a Ray cluster and yield their entries as they finish.

    `address` is `ray://HOST:PORT` (Ray's client), `HOST:PORT`, or None for the cluster that Ray finds; if there is
    none, one starts on this machine. A job whose workers fit on no node stops after `wait` seconds, by default those
    in the environment variable SUREFOOT_RAY_WAIT, or 600.
    """
    if gpus < 0 or (gpus > 1 and gpus != int(gpus)):
        raise OptionError(f"gpus_per_worker={gpus} is not possible. Pass a whole number, or a fraction below 1.")
    patience = _wait_seconds() if wait is None else wait
    with connected(address) as own:
        nodes = live_nodes()
        here = computes_here(model) and "generator" not in load
        demand = Demand(1 if gpus or not here else cpus_per_worker(nodes, min(workers, len(units))), gpus)
        options = dict(load)
        if not gpus and here and "device" not in options:
            options["device"] = "cpu"  # Ray hides no GPU from actors that have none
            if any(node.gpus for node in nodes):
                logger.warning("The workers use no GPU. The cluster has some: pass gpus_per_worker=1 to use them.")
        settings = WorkerSettings(
            str(out.absolute()),
            _located(model),
            {name: _located(value) if name in PATH_OPTIONS else value for name, value in options.items()},
            expected,
            demand.cpus if here else None,
        )
        pool = ActorPool(settings, demand, workers, PlacementWatch(demand, 0.0 if own else patience))
        try:
            yield from pool.run(units)
        finally:
            pool.close()


def _wait_seconds() -> float:
    given = os.environ.get(WAIT_VARIABLE, "")
    try:
        return float(given or DEFAULT_WAIT)
    except ValueError as error:
        raise OptionError(f"{WAIT_VARIABLE}={given!r} is not a number of seconds.") from error


def _located(value: Any) -> Any:
    """Return the absolute path of a file or folder, and anything else as it is: actors work in other folders."""
    if isinstance(value, list | tuple):
        return [_located(each) for each in value]
    if not isinstance(value, str | Path) or value == DEFAULT_MODEL:
        return value
    path = Path(value).expanduser()
    return str(path.absolute()) if path.exists() or isinstance(value, Path) else value


@dataclass
class Member:
    """An actor of the pool. It always has one call in progress."""

    actor: Any
    started: float
    stage: Stage = "placing"
    node: str | None = None
    unit: Unit | None = None


class ActorPool:
    """Gives units to whichever actor is ready, and keeps as many actors as there are units to score."""

    def __init__(self, settings: WorkerSettings, demand: Demand, workers: int, watch: PlacementWatch) -> None:
        self._ray = require_ray()
        self._create = (
            self._ray.remote(UnitWorker)
            .options(num_cpus=demand.cpus, num_gpus=demand.gpus, max_restarts=0, max_task_retries=0)
            .remote
        )
        self._settings, self._workers, self._watch = settings, workers, watch
        self._calls: dict[Any, Member] = {}
        self._failed_starts = 0
        self._last_failure = self._next_start = 0.0

    def run(self, units: Sequence[Unit]) -> Iterator[Entry]:
        """Score units and yield their entries as they finish."""
        waiting = list(reversed(units))
        deaths: Counter[int] = Counter()
        while waiting or self._count("scoring"):
            self._resize(len(waiting) + self._count("scoring"))
            self._watch.check(self._count("placing"), len(self._calls))
            for call in self._ended_calls():
                member = self._calls.pop(call)
                try:
                    result = self._ray.get(call)
                except self._ray.exceptions.RayTaskError as error:
                    self._kill([member])
                    raise _original(error) from error
                except self._ray.exceptions.ActorUnschedulableError as error:
                    raise JobError(
                        f"Ray finds no node for a worker: {_short(error)} Finished units are kept."
                    ) from error
                except self._ray.exceptions.RayError as error:
                    self._kill([member])
                    self._report_loss(member, error)
                    if member.unit is not None:
                        deaths[member.unit.number] += not getattr(error, "preempted", False)
                        check_attempts(deaths)
                        waiting.append(member.unit)
                    continue
                if member.stage == "placing":
                    member.node = result
                self._continue(member, waiting)
                if isinstance(result, Entry):
                    yield result

    def _ended_calls(self) -> list[Any]:
        if not self._calls:
            time.sleep(CHECK_SECONDS)
            return []
        ended: list[Any] = self._ray.wait(list(self._calls), num_returns=1, timeout=CHECK_SECONDS)[0]
        return ended

    def _count(self, stage: Stage) -> int:
        return sum(member.stage == stage for member in self._calls.values())

    def _resize(self, most: int) -> None:
        """Start actors until each unit has one, up to the number of workers, or release those that are not needed."""
        target = min(self._workers, most)
        while len(self._calls) < target and time.monotonic() >= self._next_start:
            member = Member(self._create(), time.monotonic())
            self._calls[member.actor.node.remote()] = member
        for stage in ("placing", "loading"):
            surplus = [call for call, member in self._calls.items() if member.stage == stage]
            self._kill([self._calls.pop(call) for call in surplus[: max(0, len(self._calls) - target)]])

    def _continue(self, member: Member, waiting: list[Unit]) -> None:
        """Give an actor what comes after the call that it has finished."""
        if member.stage == "placing":
            member.stage = "loading"
            self._calls[member.actor.load.remote(self._settings)] = member
            return
        self._failed_starts = 0
        if waiting:
            member.stage, member.unit = "scoring", waiting.pop()
            self._calls[member.actor.score.remote(member.unit)] = member
        else:
            self._kill([member])

    def _report_loss(self, member: Member, error: Any) -> None:
        reason = _short(error)
        if member.unit is not None:
            logger.warning("A worker was lost: %s Unit %d goes to another one.", reason, member.unit.number)
            return
        # Actors that were started together often die together: that is one failure.
        if member.started >= self._last_failure:
            self._last_failure = time.monotonic()
            self._failed_starts += _is_own_failure(member, error)
            self._next_start = self._last_failure + min(MAX_PAUSE, 2.0**self._failed_starts)
        if self._failed_starts >= MAX_ATTEMPTS and not self._count("scoring"):
            raise JobError(
                f"Workers die before they have loaded the model, {MAX_ATTEMPTS} times in a row: {reason} Check that "
                "all nodes have Surefoot and enough memory. Finished units are kept."
            ) from error
        logger.warning("A worker was lost before it had loaded the model: %s It is started again.", reason)

    def _kill(self, members: Sequence[Member]) -> None:
        for member in members:
            self._ray.kill(member.actor)

    def close(self) -> None:
        """End all actors, and wait until none can write any more."""
        self._kill(list(self._calls.values()))
        if calls := list(self._calls):
            self._ray.wait(calls, num_returns=len(calls), timeout=KILL_SECONDS)
        self._calls.clear()


def _is_own_failure(member: Member, error: Any) -> bool:
    """Whether an actor died by itself, and not with its node."""
    if member.node is None:
        return bool(getattr(error, "actor_init_failed", False))
    return any(node.id == member.node for node in live_nodes())


def _original(error: Any) -> BaseException:
    """Return what the actor raised."""
    cause = error.cause
    return cause if isinstance(cause, Exception) else error


def _short(error: Exception) -> str:
    """Return the first sentence of the last line of a message of Ray, which has the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{lines[-1].split('. ')[0].rstrip('.')}." if lines else type(error).__name__
