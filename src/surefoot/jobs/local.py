"""Runs the units of a job on this machine: in this process, or in worker processes.

A worker that dies costs only the unit in progress, which is given to another one. Workers end with the process that
started them, however it ends.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from functools import cache, partial
from multiprocessing import connection, get_context, parent_process
from pathlib import Path
from typing import Any

from surefoot.core.protocols import StepScorer
from surefoot.engine.threads import spin_briefly
from surefoot.errors import JobError
from surefoot.jobs.folder import Entry, ModelIdentity, read_job
from surefoot.jobs.plan import Unit
from surefoot.jobs.unit import UnitScorer, model_identity
from surefoot.scoring.scorer_like import ModelLike, as_scorer, computes_here

MAX_ATTEMPTS = 3
"""How often a unit is tried whose worker dies."""

_load: Callable[[], UnitScorer]
"""Loads the model of a worker process, once."""


def run_here(scorer: UnitScorer, units: Sequence[Unit]) -> Iterator[Entry]:
    """Score units one after the other in this process."""
    for unit in units:
        yield scorer.run(unit)


def run_in_workers(
    out: Path,
    units: Sequence[Unit],
    model: ModelLike,
    load: Mapping[str, Any],
    expected: ModelIdentity | None,
    *,
    workers: int,
    threads: int | None,
) -> Iterator[Entry]:
    """Score units in worker processes and yield their entries as they finish."""
    waiting = list(reversed(units))
    deaths: Counter[int] = Counter()
    with ExitStack() as stack:
        pool = _start(stack, out, model, load, expected, workers, threads)
        running: dict[Future[Entry], Unit] = {}
        while waiting or running:
            while waiting and len(running) < workers:
                unit = waiting.pop()
                running[pool.submit(_run, unit)] = unit
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            broken: list[Unit] = []
            for future in done:
                unit = running.pop(future)
                try:
                    entry = future.result()
                except BrokenProcessPool:
                    broken.append(unit)
                else:
                    yield entry
            if broken:
                # All futures of a broken pool fail. Which worker died is not known, so each of their units counts.
                broken += running.values()
                running.clear()
                deaths.update(unit.number for unit in broken)
                check_attempts(deaths)
                waiting += sorted(broken, key=lambda unit: -unit.number)
                pool = _start(stack, out, model, load, expected, workers, threads)


def check_attempts(deaths: Counter[int]) -> None:
    """Stop if workers keep dying on the same unit."""
    if deaths and deaths.most_common(1)[0][1] >= MAX_ATTEMPTS:
        number = deaths.most_common(1)[0][0]
        raise JobError(
            f"{MAX_ATTEMPTS} workers died while they scored unit {number}, probably for lack of memory. Use fewer "
            "workers (workers=...), or smaller units (unit_rows=..., with fresh=True). Finished units are kept."
        )


def _start(
    stack: ExitStack,
    out: Path,
    model: ModelLike,
    load: Mapping[str, Any],
    expected: ModelIdentity | None,
    workers: int,
    threads: int | None,
) -> ProcessPoolExecutor:
    # Not fork: threads of torch and Arrow do not survive it.
    pool = ProcessPoolExecutor(
        workers,
        mp_context=get_context("spawn"),
        initializer=_prepare_worker,
        initargs=(str(out), model, dict(load), expected, threads),
    )
    stack.callback(pool.shutdown, wait=True, cancel_futures=True)
    return pool


def _prepare_worker(
    out: str, model: ModelLike, load: dict[str, Any], expected: ModelIdentity | None, threads: int | None
) -> None:
    global _load
    threading.Thread(target=_end_with_parent, daemon=True).start()
    spin_briefly()
    # Loading waits for the first unit: an error in this function would end the pool without its message.
    _load = cache(partial(load_unit_scorer, out, model, load, expected, threads))


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


def _run(unit: Unit) -> Entry:
    return _load().run(unit)


def load_unit_scorer(
    out: str, model: ModelLike, load: Mapping[str, Any], expected: ModelIdentity | None, threads: int | None = None
) -> UnitScorer:
    """Load the model and the job in a worker."""
    if computes_here(model):
        from surefoot.engine.thread_limit import fix_threads

        fix_threads(threads)
    scorer = as_scorer(model, **load)
    check_model(scorer, expected)
    job = read_job(Path(out))
    if job is None:
        raise JobError(f"There is no job in {out} on this machine. All workers need the same folder, under one path.")
    return UnitScorer(job, scorer)


def check_model(scorer: StepScorer, expected: ModelIdentity | None) -> None:
    """Reject a model that is not the one of the finished units."""
    check_identity(model_identity(scorer), expected)


def check_identity(found: ModelIdentity, expected: ModelIdentity | None) -> None:
    """Reject a model that is not the one of the finished units."""
    if expected is None or found == expected:
        return
    changed = [
        f"{name}: {before!r} -> {after!r}"
        for (name, before), after in zip(vars(expected).items(), vars(found).values(), strict=True)
        if before != after
    ]
    raise JobError(
        f"The model is not the one of the finished units ({'; '.join(changed)}). Use that one, or start anew with "
        "fresh=True."
    )
