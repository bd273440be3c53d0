"""`surefoot.bulk`: scores files of any size, and continues where an earlier run ended."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from surefoot.core.options import DEFAULT_OPTIONS, ReadOptions
from surefoot.data.columns import Columns
from surefoot.errors import JobError, MissingDependencyError, OptionError
from surefoot.jobs.folder import OWN, Entry, Job, Journal, clear_folder, locked, prepare_folder, read_job, save_job
from surefoot.jobs.local import check_identity, check_model, run_here, run_in_workers
from surefoot.jobs.plan import Unit
from surefoot.jobs.planning import check_schema, extend_job, plan_job, require_only_selection, require_same
from surefoot.jobs.progress import JobProgress
from surefoot.jobs.reselect import finished_units, remove_other_parts, reselect
from surefoot.jobs.settings import Format, JobSettings, Selection, scoring_options
from surefoot.jobs.sources import find_sources
from surefoot.jobs.unit import UnitScorer
from surefoot.rewards.recipes import find_recipe
from surefoot.scoring.load_options import DEFAULT_MODEL
from surefoot.scoring.scorer_like import ModelLike, ScorerLike, as_scorer, computes_here, is_model, listed


@dataclass(frozen=True)
class BulkReport:
    """What is in the output folder after a run."""

    out: Path
    rows: int
    """Input rows with results."""
    results: int
    """One per solution: more than `rows` if rows hold several completions."""
    kept: int
    """Results in the parts, after the selection."""
    unscored: int
    """Results without any score; each has a reason."""
    bad_rows: int
    """Rows that could not be read. They are in `_surefoot/errors/`, with reasons."""
    units: int
    tokens: int
    resumed_units: int
    """Units that earlier runs had finished."""


def bulk(
    source: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    model: ScorerLike = DEFAULT_MODEL,
    load: Mapping[str, Any] | None = None,
    columns: Columns | Mapping[str, str] | None = None,
    options: ReadOptions = DEFAULT_OPTIONS,
    reward: str | None = None,
    filter: str | None = None,
    best_of: int | None = None,
    rank_by: str | None = None,
    sample: float | None = None,
    seed: int = 0,
    group_by: str | None = None,
    format: Format = "parquet",
    prefix: str = "prm_",
    step_text: bool = False,
    unit_rows: int = 1024,
    subset: str | None = None,
    data_split: str = "train",
    workers: int = 1,
    threads: int | None = None,
    on: str = "local",
    gpus_per_worker: float = 0,
    max_errors: int | None = None,
    fresh: bool = False,
    extend: bool = False,
    refilter: bool = False,
    progress: bool = False,
) -> BulkReport:
    """Scores all rows of files into a folder. Run it again to continue after a crash: nothing is lost or doubled.

    >>> report = surefoot.bulk("samples.jsonl", "scored", columns={"gold": "target"}, reward="outcome+process")
    >>> report.bad_rows
    0

    `source`: JSONL (also gzip and zstd), Parquet and Arrow files, folders, globs, URLs of fsspec, or a data set of the
    hub, whose configuration and split are `subset` and `data_split`. `out` gets one Parquet (or JSONL, with `format`)
    file per unit, with all columns of the input and those of the scores, whose names start with `prefix`. `columns`
    names the columns with the question, the solution and the gold answer: see `Columns`. `model` (a list is an
    ensemble) and `load` are the arguments of `surefoot.load`; a loaded scorer works, too, with one worker. `options`
    say how solutions are read.

    `reward` computes a recipe. `filter` keeps rows for which an expression is true, `best_of` the best solutions per
    question by `rank_by` (an aggregation, or `reward`). `sample` scores only a fraction of the questions. `group_by`
    brings the rows of a group together that are not next to each other. With `refilter`, a finished job gets another
    filter, without a model.

    `workers` processes share the work on this machine, with `threads` CPU threads each. `on="ray"` or `"ray://..."`
    uses a Ray cluster, where each worker has `gpus_per_worker` GPUs. A job stops after `max_errors` rows that cannot be
    read; by default it goes on.

    A changed input, model or option raises `JobError`. `fresh` deletes the job in the folder first. `extend` adds rows
    of files that grew, and of new files.
    """
    _require_packages()
    if sum((fresh, extend, refilter)) > 1:
        raise OptionError("fresh, extend, refilter: they exclude each other. Choose one.")
    runner = Runner(model, dict(load or {}), workers, threads, on, gpus_per_worker)
    loaded = any(not isinstance(each, str | Path) for each in listed(model))
    if (loaded and (workers > 1 or on != "local")) or (load and not is_model(model)):
        raise OptionError("A loaded scorer works in this process only. Pass the model's name or folder to `model`.")
    given = columns if isinstance(columns, Columns) else Columns(**(columns or {}))
    settings = JobSettings(
        columns=given,
        options=options,
        load=scoring_options(load or {}),
        recipe=None if reward is None else find_recipe(reward).name,
        group_by=group_by if group_by or best_of is None else given.question,
        sample=sample,
        seed=seed,
        unit_rows=unit_rows,
        format=format,
        prefix=prefix,
        step_text=step_text,
        selection=Selection(filter, best_of, rank_by),
    )
    folder = Path(out).expanduser().absolute()
    if "://" in str(out):
        raise OptionError(f"{out} is a URL. The output is a local or mounted folder, because parts are renamed in it.")
    prepare_folder(folder)
    with locked(folder):
        if fresh:
            clear_folder(folder)
        job = read_job(folder)
        if refilter:
            job = _with_selection(job, settings, folder)
        else:
            sources = find_sources(source, subset=subset, split=data_split)
            if job is None:
                clear_folder(folder)
                job = plan_job(sources, settings, folder)
            elif extend:
                job = extend_job(job, sources, settings)
            else:
                require_same(job, sources, settings)
        return _run(job, runner, max_errors=max_errors, shown=progress, may_score=not refilter)


@dataclass(frozen=True)
class Runner:
    """Who scores the units."""

    model: ScorerLike
    load: dict[str, Any]
    workers: int
    threads: int | None
    on: str
    gpus_per_worker: float

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise OptionError(f"workers={self.workers} do nothing. Pass a number above 0.")
        if self.on not in ("local", "ray") and not self.on.startswith("ray://"):
            raise OptionError(f"on={self.on!r} is unknown. Choose local, ray, or the address of a cluster: ray://...")
        # Compiling depends on what came before, and with it the last digits: a continued job would differ.
        if computes_here(self.model):
            self.load.setdefault("compile", False)

    def run(self, job: Job, units: list[Unit], journal: Journal) -> Iterator[Entry]:
        """Score units and yield their entries as they finish."""
        if self.on != "local":
            from surefoot.jobs.ray_cluster import run_on_ray

            yield from run_on_ray(
                job.out,
                units,
                self._model,
                self.load,
                journal.model,
                address=None if self.on == "ray" else self.on,
                workers=self.workers,
                gpus=self.gpus_per_worker,
            )
        elif self.workers > 1:
            from surefoot.engine.threads import threads_per_worker

            yield from run_in_workers(
                job.out,
                units,
                self._model,
                self.load,
                journal.model,
                workers=self.workers,
                threads=self.threads or threads_per_worker(self.workers),
            )
        else:
            # A job that continues gives the same bits as one that was never interrupted.
            with self._fixed_threads():
                scorer = as_scorer(self.model, **self.load)
                check_model(scorer, journal.model)
                yield from run_here(UnitScorer(job, scorer), units)

    def _fixed_threads(self) -> AbstractContextManager[None]:
        """The same number of threads for all units. A job whose models are on servers does not import torch."""
        if not computes_here(self.model) and "torch" not in sys.modules:
            return nullcontext()
        from surefoot.engine.thread_limit import fixed_threads

        return fixed_threads(self.threads)

    @property
    def _model(self) -> ModelLike:
        """What workers load."""
        assert is_model(self.model)
        return self.model


def _with_selection(job: Job | None, settings: JobSettings, out: Path) -> Job:
    """Return the job in the folder with another selection. Everything else stays as it was."""
    if job is None:
        raise JobError(f"There is no job in {out}. Run it without refilter=True first.")
    if settings.selection.best_of is not None and job.settings.group_by is None:
        raise JobError("best_of=... needs the rows of each question together. Start anew with fresh=True.")
    require_only_selection(job, settings)
    changed = replace(job, settings=replace(job.settings, selection=settings.selection, format=settings.format))
    check_schema(job.plan.schema, changed.settings)
    save_job(changed)
    return changed


def _run(job: Job, runner: Runner, *, max_errors: int | None, shown: bool, may_score: bool) -> BulkReport:
    journal = Journal(job.out)
    found = finished_units(job, journal)
    pending = [unit for unit in job.plan.units if unit.number not in found]
    if pending and not may_score:
        raise JobError(
            f"{len(pending)} of {len(job.plan.units)} units are not scored yet. Finish the job first: run it without "
            "refilter=True."
        )
    meter = JobProgress(job.out, job.plan.rows, len(job.plan.units), list(found.values()), shown=shown)
    state = "stopped"
    try:
        for entry in found.values():
            if entry.part is None or entry.selection != job.selection_id:
                _record(journal, reselect(job, entry))
        _check_errors(job, journal, max_errors)
        for entry in runner.run(job, pending, journal) if pending else ():
            if entry.model is not None:
                check_identity(entry.model, journal.model)
            _record(journal, entry)
            meter.add(entry)
            _check_errors(job, journal, max_errors)
        remove_other_parts(job)
        state = "finished"
    finally:
        meter.close(state)
    return _report(job, journal, len(found))


def _record(journal: Journal, entry: Entry) -> None:
    journal.append(entry)
    if entry.problem is not None:
        raise JobError(f"{entry.problem} The scores are kept: correct the filter and run again with refilter=True.")


def _check_errors(job: Job, journal: Journal, most: int | None) -> None:
    bad = job.planned_errors + sum(entry.bad for entry in journal.entries.values())
    if most is not None and bad > most:
        raise JobError(
            f"{bad} rows cannot be read, and max_errors={most} allows no more. {job.out / OWN / 'errors'} has the rows "
            "and the reasons. Finished units are kept."
        )


def _report(job: Job, journal: Journal, resumed: int) -> BulkReport:
    entries = [journal.entries[unit.number] for unit in job.plan.units]
    return BulkReport(
        out=job.out,
        rows=sum(entry.rows for entry in entries),
        results=sum(entry.results for entry in entries),
        kept=sum(entry.kept for entry in entries),
        unscored=sum(entry.unscored for entry in entries),
        bad_rows=job.planned_errors + sum(entry.bad for entry in entries),
        units=len(entries),
        tokens=sum(entry.tokens for entry in entries),
        resumed_units=resumed,
    )


def _require_packages() -> None:
    try:
        import filelock  # noqa: F401
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            f'Bulk jobs need the package {error.name}. Run: pip install "surefoot[bulk]"'
        ) from error
