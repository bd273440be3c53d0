"""`surefoot.search_many`: searches over a file of questions, several at a time, and continues after a crash."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from surefoot.core.generation import Generator
from surefoot.core.options import DEFAULT_OPTIONS, ReadOptions
from surefoot.core.protocols import StepScorer
from surefoot.core.search_result import SearchRecord
from surefoot.data.columns import Columns
from surefoot.data.records import read_records
from surefoot.display.progress import Progress
from surefoot.errors import InputError, JobError, MissingDependencyError, OptionError
from surefoot.scoring.load_options import DEFAULT_MODEL
from surefoot.searching.events import Listener, ignore
from surefoot.searching.folder import SearchFolder, opened
from surefoot.searching.record import Question, run_record
from surefoot.searching.runner import Plan, SearchRunner
from surefoot.searching.search import as_generator, as_scorer, run_async
from surefoot.searching.settings import SearchSettings
from surefoot.text.answers import reference_answer

MOST_FAILURES = 3
"""So many questions in a row without any continuation end the job: the generator is gone."""


@dataclass(frozen=True)
class SearchJobReport:
    """What a run over many questions found."""

    out: Path
    records: tuple[SearchRecord, ...]
    """All finished questions, in the order of the input, with those of earlier runs."""
    resumed: int
    """Questions that earlier runs had finished."""
    failed: int
    """Questions for which the generator failed throughout. The next run tries them again."""
    seconds: float
    """Wall time of this run."""
    scoring_seconds: float
    """The part of it in which the PRM was computing."""


def search_many(
    source: str | Path | Iterable[Mapping[str, Any]],
    out: str | Path,
    *,
    generator: Any,
    scorer: str | Path | StepScorer = DEFAULT_MODEL,
    strategies: Sequence[str] = ("beam",),
    settings: SearchSettings | None = None,
    baselines: bool = True,
    question: str = "question",
    gold: str | None = None,
    limit: int | None = None,
    concurrency: int = 8,
    seed: int = 0,
    options: ReadOptions = DEFAULT_OPTIONS,
    fresh: bool = False,
    progress: bool = False,
    on_event: Listener = ignore,
) -> SearchJobReport:
    """Searches for the answers to all questions of a file. Run it again to continue after a crash.

    >>> report = surefoot.search_many("samples.jsonl", "found", generator="samples.jsonl", gold="target")
    >>> report.records[0].searches["beam 4x2"].answer
    '5'

    `source` is a JSON or JSONL file, a folder of them, a data set of the hub, or rows; `question` and `gold` name the
    columns with the question and the reference answer. `out` is the folder for the results. `generator` and `scorer`
    are those of `surefoot.search`; `settings` hold for all `strategies`. With `baselines`, every question also gets
    greedy decoding, and independent samples with as many tokens as its longest search. `concurrency` questions are
    searched at a time, which keeps a server busy and changes no result.

    A changed question, model or option raises `JobError`; questions may be added at the end. `fresh` deletes the
    results in the folder first.
    """
    if concurrency < 1:
        raise OptionError(f"concurrency={concurrency}: pass a number above 0.")
    plans = [Plan.of(name, settings or SearchSettings()) for name in strategies]
    if not plans or len({plan.label for plan in plans}) < len(plans):
        raise OptionError("Name one or more different strategies.")
    columns = Columns(question=question, gold=gold)
    questions = list(islice(_questions(source, columns), limit))
    if not questions:
        raise InputError("There is no question to search for.")
    try:
        import filelock  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            'A search over a file needs filelock. Run: pip install "surefoot[search]"'
        ) from error
    job = _Job(plans, baselines, seed, concurrency)
    place = Path(out).expanduser().absolute()
    writer, owned = as_generator(generator)
    judge = as_scorer(scorer)

    async def run() -> SearchJobReport:
        runner = SearchRunner(writer, judge, options=options, on_event=on_event)
        try:
            await runner.check(plans)
            with opened(place, questions, job.identity(writer, judge, options), fresh=fresh) as folder:
                return await job.run(runner, questions, folder, shown=progress)
        finally:
            runner.close()
            if owned:
                await writer.close()

    return run_async(run())


@dataclass(frozen=True)
class _Job:
    plans: Sequence[Plan]
    baselines: bool
    seed: int
    concurrency: int

    def identity(self, generator: Generator, scorer: StepScorer, options: ReadOptions) -> dict[str, Any]:
        """What must be equal for results to be comparable."""
        return {
            "strategies": {plan.label: plan.settings.to_dict() for plan in self.plans},
            "baselines": self.baselines,
            "seed": self.seed,
            "generator": {"name": generator.name, "fingerprint": generator.fingerprint},
            "scorer": {
                "name": scorer.name,
                "fingerprint": scorer.fingerprint,
                "scale": scorer.scale,
                "calibration": scorer.calibration,
            },
            "options": asdict(options),
        }

    async def run(
        self, runner: SearchRunner, questions: Sequence[Question], folder: SearchFolder, *, shown: bool
    ) -> SearchJobReport:
        """Search for all questions that are not done yet."""
        started, resumed = time.perf_counter(), len(folder.done)
        waiting = iter([question for question in questions if question.index not in folder.done])
        failed: list[str] = []
        in_a_row = 0

        async def worker(bar: Progress) -> None:
            nonlocal in_a_row
            for question in waiting:
                record = await run_record(runner, question, self.plans, baselines=self.baselines, seed=self.seed)
                if reason := _failure(record):
                    failed.append(reason)
                    in_a_row += 1
                    if in_a_row >= MOST_FAILURES:
                        raise JobError(
                            f"The generator failed for {in_a_row} questions in a row: {reason} Finished questions are "
                            "kept. Correct that and run the same command again to continue."
                        )
                else:
                    in_a_row = 0
                    folder.add(record)
                bar.update(1, _note(record))

        with Progress(len(questions), shown=shown, unit="question", done=resumed) as bar:
            tasks = [asyncio.create_task(worker(bar)) for _ in range(self.concurrency)]
            try:
                await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        return SearchJobReport(
            out=folder.out,
            records=tuple(folder.write_results()),
            resumed=resumed,
            failed=len(failed),
            seconds=time.perf_counter() - started,
            scoring_seconds=runner.scoring_seconds,
        )


def _failure(record: SearchRecord) -> str | None:
    """Why a question has no usable result; None if it has one."""
    runs = [*record.searches.values(), *(run for run in (record.greedy, record.samples) if run is not None)]
    for run in runs:
        if run.stop == "error":
            return next((node.reason for node in run.nodes if node.fate == "failed" and node.reason), "unknown reason")
    return None


def _note(record: SearchRecord) -> str:
    return ", ".join(f"{label}: {search.answer}" for label, search in record.searches.items())[:60]


def _questions(source: str | Path | Iterable[Mapping[str, Any]], columns: Columns) -> Iterable[Question]:
    rows: Iterable[tuple[Mapping[str, Any], str]]
    if isinstance(source, str | Path):
        rows = ((record.data, record.place) for record in read_records(source))
    else:
        rows = ((row, f"row {number} (from 0)") for number, row in enumerate(source))
    for index, (row, place) in enumerate(rows):
        try:
            text = columns.key(row)
        except InputError as error:
            raise InputError(f"{place}: {error}") from error
        gold = columns.gold_answer(row)
        if columns.gold is not None and gold is None:
            raise InputError(f"{place}: `{columns.gold}` is missing.")
        id = row.get("id")
        reference = None if gold is None else reference_answer(str(gold))
        yield Question(index, text, reference, None if id is None else str(id))
