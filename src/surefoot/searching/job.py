"""`surefoot.search_many`: searches over a file of questions, several at a time, and continues after a crash."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from surefoot.core.event_loop import run_async
from surefoot.core.generation import Generator
from surefoot.core.options import DEFAULT_OPTIONS, ReadOptions
from surefoot.core.protocols import StepScorer
from surefoot.core.search_result import SearchRecord
from surefoot.data.columns import Columns
from surefoot.data.records import read_records
from surefoot.display.progress import Progress
from surefoot.errors import InputError, JobError, OptionError
from surefoot.scoring.load_options import DEFAULT_MODEL
from surefoot.scoring.scorer_like import ScorerLike
from surefoot.searching.events import Listener, ignore
from surefoot.searching.folder import SearchFolder, opened
from surefoot.searching.record import Question, RunFailedError, as_record, run_names, run_question
from surefoot.searching.requirements import require_packages
from surefoot.searching.runner import Plan, SearchRunner
from surefoot.searching.search import searching
from surefoot.searching.settings import SearchSettings
from surefoot.text.answers import reference_answer

MOST_FAILURES = 3
"""So many failed questions in a row, and twice those at a time, end the job: the generator is gone."""


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
    scorer: ScorerLike = DEFAULT_MODEL,
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

    Another model or option raises `JobError`. Questions may be added at the end; one that has changed is searched
    again. `fresh` deletes the results in the folder first.
    """
    for name, value in (("concurrency", concurrency), ("limit", limit)):
        if value is not None and (not isinstance(value, int) or value < 1):
            raise OptionError(f"{name}={value!r}: pass a whole number above 0.")
    if not isinstance(seed, int):
        raise OptionError(f"seed={seed!r}: pass a whole number.")
    if not isinstance(settings, SearchSettings | None):
        raise OptionError("settings: pass surefoot.SearchSettings(...).")
    named = [strategies] if isinstance(strategies, str) else strategies
    plans = [Plan.of(name, settings or SearchSettings()) for name in named]
    if not plans or len({plan.label for plan in plans}) < len(plans):
        raise OptionError("Name one or more different strategies.")
    require_packages(generator, many=True)
    questions = read_questions(source, question=question, gold=gold, limit=limit)
    job = _Job(plans, baselines, seed, concurrency)
    place = Path(out).expanduser().absolute()

    async def run() -> SearchJobReport:
        async with searching(generator, scorer, options, on_event) as runner:
            await runner.check(plans)
            identity = job.identity(runner.generator, runner.scorer, options)
            with opened(place, questions, identity, fresh=fresh) as folder:
                return await job.run(runner, questions, folder, shown=progress)

    return run_async(run())


def read_questions(
    source: str | Path | Iterable[Mapping[str, Any]],
    *,
    question: str = "question",
    gold: str | None = None,
    limit: int | None = None,
) -> list[Question]:
    """Read the questions of a job. For the arguments see `search_many`."""
    questions = list(islice(_questions(source, Columns(question=question, gold=gold)), limit))
    if not questions:
        raise InputError("There is no question to search for.")
    return questions


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
        started = time.perf_counter()
        names = run_names(self.plans, self.baselines)

        def is_done(question: Question) -> bool:
            return all(name in folder.runs[question.index] for name in names)

        resumed = sum(map(is_done, questions))
        waiting = iter([question for question in questions if not is_done(question)])
        failed = in_a_row = 0

        async def worker(bar: Progress) -> None:
            nonlocal failed, in_a_row
            for question in waiting:
                runs, save = folder.runs[question.index], partial(folder.save, question.index)
                try:
                    await run_question(
                        runner, question, self.plans, runs, save, baselines=self.baselines, seed=self.seed
                    )
                    in_a_row = 0
                    bar.update(1, _note(as_record(question, self.plans, runs)))
                except RunFailedError as error:
                    failed += 1
                    in_a_row += 1
                    if in_a_row >= max(MOST_FAILURES, 2 * self.concurrency):
                        raise JobError(
                            f"{in_a_row} questions in a row failed: {error} What is finished is kept. Correct that and "
                            "run the same command again to continue."
                        ) from error

        with Progress(len(questions), shown=shown, unit="question", done=resumed) as bar:
            tasks = [asyncio.create_task(worker(bar)) for _ in range(self.concurrency)]
            try:
                await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        records = [as_record(each, self.plans, folder.runs[each.index]) for each in questions if is_done(each)]
        folder.write_results(records)
        return SearchJobReport(
            out=folder.out,
            records=tuple(records),
            resumed=resumed,
            failed=failed,
            seconds=time.perf_counter() - started,
            scoring_seconds=runner.scoring_seconds,
        )


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
