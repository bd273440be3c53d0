"""`surefoot.label`: labels the steps of solutions by rollouts, and continues after a crash."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from surefoot.core.event_loop import run_async
from surefoot.core.generation import Generator
from surefoot.core.labels import FREE, LabelCost
from surefoot.core.options import DEFAULT_OPTIONS, ReadOptions
from surefoot.core.protocols import StepScorer
from surefoot.data.columns import Columns
from surefoot.display.progress import Progress
from surefoot.errors import InputError, JobError, MissingDependencyError, OptionError
from surefoot.labelling.folder import LabelFolder, Solutions, opened
from surefoot.labelling.question import LabelledQuestion, label_question
from surefoot.labelling.reading import Question, read_questions
from surefoot.labelling.scorers import Scorers
from surefoot.labelling.settings import LabelBudget, LabelSettings
from surefoot.labelling.summary import LabelSummary, summarize
from surefoot.scoring.scorer_like import ScorerLike, as_scorer

T = TypeVar("T")

MOST_FAILURES = 3
"""So many questions in a row without any continuation end the job: the generator is gone."""


@dataclass(frozen=True)
class LabelReport:
    """What a labelling job found."""

    out: Path
    solutions: Solutions
    """All solutions in the order of the input, with those of earlier runs."""
    summary: LabelSummary
    resumed: int
    """Questions that earlier runs had finished."""
    failed: int
    """Questions with a request that failed as a whole. The next run tries them again."""
    failure: str | None
    """Why the first of them failed."""
    over_budget: int
    """Questions that are not labelled because the budget in total is used up. Raise it to continue."""
    seconds: float
    """Wall time of this run."""


def label(
    source: str | Path | Iterable[Mapping[str, Any]],
    out: str | Path,
    *,
    generator: Any,
    settings: LabelSettings | None = None,
    judge: ScorerLike | None = None,
    screen: ScorerLike | None = None,
    question: str = "question",
    gold: str = "answer",
    solution: str | None = None,
    steps: str | None = None,
    completions: str | None = None,
    limit: int | None = None,
    concurrency: int = 8,
    seed: int = 0,
    options: ReadOptions = DEFAULT_OPTIONS,
    fresh: bool = False,
    progress: bool = False,
) -> LabelReport:
    """Labels the steps of solutions: is the right answer still reached from there? Run it again to continue.

    >>> report = surefoot.label("samples.jsonl", "labels", generator="samples.jsonl", gold="target")
    >>> report.solutions[0].first_error
    -1

    `source` is a JSON or JSONL file, a folder of them, a data set of the hub, or rows; `question` and `gold` name the
    columns with the question and the reference answer. Name one of `solution` (text), `steps` (list of steps) or
    `completions` (list of texts) to label the solutions in this column. Otherwise solutions are sampled. `generator` is
    that of `surefoot.search`; it continues every solution from the exact text up to a step.

    `judge` is a scorer that has to agree on the first error; solutions on which it does not are marked. `screen` is a
    scorer whose verdict is taken, without rollouts and judge, for solutions on which it is certain. `concurrency`
    questions are labelled at a time, which keeps a server busy and changes no label.

    The folder `out` gets `labels.jsonl` with one `LabelledSolution` per line. A changed model or option raises
    `JobError`; a changed question is labelled again, and questions may be added at the end. `fresh` deletes the labels
    in the folder first.
    """
    settings = settings or LabelSettings()
    if concurrency < 1:
        raise OptionError(f"concurrency={concurrency}: pass a number above 0.")
    columns = Columns(question, solution, steps, completions, gold)
    questions = list(islice(read_questions(source, columns, settings.step_end), limit))
    if not questions:
        raise InputError("There is no question to label.")
    try:
        import filelock  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError('Labelling needs filelock. Run: pip install "surefoot[search]"') from error
    from surefoot.generate.loading import load_generator

    writer = load_generator(generator)
    scorers = Scorers(_scorer(judge), _scorer(screen), options)
    job = _Job(writer, scorers, questions, settings, seed)

    async def run() -> LabelReport:
        try:
            await writer.check()
            if not writer.continues:
                raise OptionError(
                    f"{writer.name} cannot continue a partial solution, and labelling needs that. Use a server with "
                    "continuation: vLLM, SGLang or llama.cpp."
                )
            with opened(Path(out).expanduser().absolute(), questions, job.identity(), fresh=fresh) as folder:
                return await job.run(folder, concurrency, shown=progress)
        finally:
            scorers.close()
            if writer is not generator:
                await writer.close()

    return run_async(run())


@dataclass
class _Job:
    generator: Generator
    scorers: Scorers
    questions: Sequence[Question]
    settings: LabelSettings
    seed: int
    failures: dict[int, LabelledQuestion] = field(default_factory=dict)
    """Questions with a failure. Their labels are reported, but not recorded: the next run tries them again."""
    spent: LabelCost = FREE
    """What all finished questions cost, with those of earlier runs."""
    in_a_row: int = 0
    """Questions in a row for which every request failed."""

    def identity(self) -> dict[str, Any]:
        """What must be equal for labels to be comparable."""
        scorers = {"judge": self.scorers.judge, "screen": self.scorers.screen}
        return {
            "settings": self.settings.identity(),
            "seed": self.seed,
            "generator": {"name": self.generator.name, "fingerprint": self.generator.fingerprint},
            **{name: None if scorer is None else _identity(scorer) for name, scorer in scorers.items()},
            "options": asdict(self.scorers.options) if any(scorers.values()) else None,
        }

    async def run(self, folder: LabelFolder, concurrency: int, *, shown: bool) -> LabelReport:
        """Label all questions that are not done yet."""
        started, resumed = time.perf_counter(), len(folder.done)
        self.spent = sum((found[0].question_spent for found in folder.done.values()), FREE)
        waiting = iter([question for question in self.questions if question.index not in folder.done])
        with Progress(len(self.questions), shown=shown, unit="question", done=resumed) as bar:
            tasks = [asyncio.create_task(self._work(waiting, folder, bar)) for _ in range(concurrency)]
            try:
                await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        labelled = folder.done | {index: each.solutions for index, each in self.failures.items()}
        within = _within(labelled, self.settings.budget)
        solutions = tuple(solution for index in within for solution in labelled[index])
        folder.write_labels(solutions)
        return LabelReport(
            out=folder.out,
            solutions=solutions,
            summary=summarize(solutions),
            resumed=resumed,
            failed=len(self.failures),
            failure=self.failures[min(self.failures)].failure if self.failures else None,
            over_budget=len(self.questions) - len(within),
            seconds=time.perf_counter() - started,
        )

    async def _work(self, waiting: Iterable[Question], folder: LabelFolder, bar: Progress) -> None:
        for question in waiting:
            if self._over_budget(folder.done, question.index):
                continue
            found = await label_question(self.generator, self.scorers, question, self.settings, self.seed)
            self.spent += found.spent
            self.in_a_row = 0 if found.reachable else self.in_a_row + 1
            if self.in_a_row >= MOST_FAILURES:
                raise JobError(
                    f"The generator failed for {self.in_a_row} questions in a row: {found.failure} Finished questions "
                    "are kept. Correct that and run the same command again to continue."
                )
            if found.failure is None:
                folder.add(question.index, found.solutions)
            else:
                self.failures[question.index] = found
            bar.update(1)

    def _over_budget(self, done: Mapping[int, Solutions], index: int) -> bool:
        """Whether the finished questions before this one used up the budget."""
        if not _used_up(self.spent, self.settings.budget):
            return False
        before = sum((found[0].question_spent for at, found in done.items() if at < index), FREE)
        return _used_up(before, self.settings.budget)


def _used_up(spent: LabelCost, budget: LabelBudget) -> bool:
    tokens, calls = budget.total_tokens, budget.total_calls
    return (tokens is not None and spent.generated_tokens >= tokens) or (calls is not None and spent.rollouts >= calls)


def _within(labelled: Mapping[int, Solutions], budget: LabelBudget) -> list[int]:
    """The questions before which the budget was not used up. Which these are does not depend on what ran at a time."""
    found, spent = [], FREE
    for index in sorted(labelled):
        if _used_up(spent, budget):
            break
        found.append(index)
        spent += labelled[index][0].question_spent
    return found


def _identity(scorer: StepScorer) -> dict[str, Any]:
    return {name: getattr(scorer, name) for name in ("name", "fingerprint", "scale", "calibration")}


def _scorer(given: ScorerLike | None) -> StepScorer | None:
    return None if given is None else as_scorer(given)
