"""The scorer: text in, scores out.

The rule: this is the one place where a family (text, markers, read-out) and the engine (weights, forward passes) meet.
How a model gets here is told in `loading`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import torch
from torch import Tensor
from tqdm import tqdm

from surefoot.core.calibration import Calibration
from surefoot.core.prompt import Prompt
from surefoot.core.protocols import Item
from surefoot.core.result import NO_STEPS, Scale, SolutionScore, StepScore, StepStatus
from surefoot.core.solution import Solution
from surefoot.data.items import read_pair, require_unicode
from surefoot.engine.kv_cache import TreeCache
from surefoot.engine.runner import Runner
from surefoot.errors import InputError, OptionError
from surefoot.families import Family, PromptTokenizer, StepValue
from surefoot.scoring.score_cache import ScoreCache, Scores
from surefoot.text.split import split as split_solution

if TYPE_CHECKING:
    from surefoot.scoring.session import Session


class Engine(Protocol):
    """Whatever computes the scores of prompts: the runner here, or a server elsewhere."""

    def scores(self, prompts: Sequence[Prompt], done: Callable[[int], None] | None = None) -> Sequence[torch.Tensor]:
        """For each prompt the scores at its reads. `done` is told for how many more prompts they are there."""


@dataclass(frozen=True)
class Job:
    """One solution on its way: what was asked, and the part of it that the model can read."""

    solution: Solution
    prompts: tuple[Prompt, ...]
    readable: tuple[Prompt, ...]
    warnings: tuple[str, ...]

    @property
    def tokens(self) -> int:
        """The longest prompt's: several prompts of one solution share the rest."""
        return max(len(prompt.ids) for prompt in self.readable)


class Scorer:
    """A loaded PRM. Made by `surefoot.load`."""

    def __init__(
        self,
        name: str,
        family: Family,
        tokenizer: PromptTokenizer,
        engines: Sequence[Engine],
        limit: int,
        fingerprint: str,
        calibration: Calibration | None = None,
    ) -> None:
        self.name = name
        self.family = family
        self.max_tokens = limit
        self.fingerprint = fingerprint
        """What this model computes, as a hash: see `engine.fingerprint`. It does not depend on the calibration."""
        self.calibration = calibration
        """What is applied to every step score, or None: scores are as the model gives them."""
        self.tokenizer = tokenizer
        self._engines = tuple(engines)
        """One, or two where the family compares two models."""
        self.engine: Any = self._engines[0]

    def __reduce__(self) -> NoReturn:
        raise OptionError(
            "A loaded model cannot be copied or sent to another process. Give the model's name or folder instead, or "
            "the address of a service (surefoot serve)."
        )

    @property
    def scale(self) -> Scale:
        """What this model's scores are: `probability`, `margin` or `log_ratio`."""
        return self.family.scale

    def score(
        self,
        question: str,
        solution: str | Sequence[str],
        *,
        split: str = "auto",
        closing: bool = True,
        system: str | None = None,
    ) -> SolutionScore:
        """Scores every step of one solution, given as text or as a list of steps.

        `split` names the rule that finds the steps of a text (auto, steps, paragraphs, lines). `closing` makes a stated
        final answer a step of its own. `system` replaces the family's system message.
        """
        return self.score_many([(question, solution)], split=split, closing=closing, system=system)[0]

    def score_many(
        self,
        items: Iterable[Item],
        *,
        split: str = "auto",
        closing: bool = True,
        system: str | None = None,
        progress: bool = False,
        cache: ScoreCache | None = None,
    ) -> list[SolutionScore]:
        """Scores pairs of question and solution together. Each gets the scores it would get alone.

        All items are read before the first is scored, so a malformed one is reported without losing work. With a
        `cache`, what it holds is not computed again.
        """
        asked = list(items)
        with _Progress(len(asked), shown=progress) as bar:
            scores = self._scores(bar, cache)
            results = self.score_with(scores, asked, split=split, closing=closing, system=system)
            bar.settle(results)
            return results

    def score_stream(
        self,
        items: Iterable[Item],
        *,
        split: str = "auto",
        closing: bool = True,
        system: str | None = None,
        progress: bool = False,
        window: int = 1024,
        cache: ScoreCache | None = None,
    ) -> Iterator[SolutionScore]:
        """Scores any number of pairs, a window of them at a time, and yields the results in their order.

        A malformed item does not end the stream: its result is unscored and its reason says what is wrong with it.
        Solutions of one question should stand together: what they share is found within a window. With a `cache`, what
        it holds is not computed again.
        """
        if window < 1:
            raise OptionError(f"window={window} holds nothing. Give a number above 0.")

        def stream() -> Iterator[SolutionScore]:
            with _Progress(len(items) if isinstance(items, Sized) else None, shown=progress) as bar:
                scores = self._scores(bar, cache)
                waiting, first = iter(items), 0
                while some := list(islice(waiting, window)):
                    results = self.score_with(
                        scores, some, split=split, closing=closing, system=system, first=first, keep_going=True
                    )
                    first += len(some)
                    bar.settle(results)
                    yield from results

        return stream()

    def session(
        self, question: str, *, split: str = "auto", system: str | None = None, max_bytes: int = 1 << 30
    ) -> Session:
        """Starts a search over solutions of one question. Keys and values are kept within `max_bytes`."""
        from surefoot.scoring.session import Session

        if not isinstance(question, str):
            raise InputError(f"The question is {type(question).__name__}, not a string.")
        runners = [engine for engine in self._engines if isinstance(engine, Runner)]
        if len(runners) < len(self._engines):
            raise OptionError("A search session needs the model here: surefoot.load(...).session(...).")
        caches = [TreeCache(runner, max_bytes // len(runners)) for runner in runners]
        return Session(self, question, caches, split=split, system=system)

    def score_with(
        self,
        scores: Scores,
        items: Sequence[Item],
        *,
        split: str,
        closing: bool,
        system: str | None,
        first: int = 0,
        keep_going: bool = False,
    ) -> list[SolutionScore]:
        """Scores items with the numbers that `scores` gives for their prompts: the way that all verbs share.

        Items are numbered from `first` in messages. With `keep_going` a malformed item becomes an unscored result.
        """
        started = time.perf_counter()
        jobs = self.prepare(items, split=split, closing=closing, system=system, first=first, keep_going=keep_going)
        good = [job for job in jobs if isinstance(job, Job)]
        rows = iter(scores([prompt for job in good for prompt in job.readable]))
        per_token = (time.perf_counter() - started) / max(1, sum(job.tokens for job in good))
        return [
            self.finish(job, [next(rows) for _ in job.readable], per_token * job.tokens)
            if isinstance(job, Job)
            else self.unscored(str(job))
            for job in jobs
        ]

    def prepare(
        self,
        items: Sequence[Item],
        *,
        split: str = "auto",
        closing: bool = True,
        system: str | None = None,
        first: int = 0,
        keep_going: bool = True,
    ) -> list[Job | InputError]:
        """The first half of scoring: items split and encoded. What cannot be read is an error in its place, or raised.

        Together with `compute` and `finish` this is for those who schedule the model's work themselves.
        """
        jobs: list[Job | InputError] = []
        for number, item in enumerate(items, start=first):
            try:
                jobs.append(self._prepare(item, number, split=split, closing=closing, system=system))
            except InputError as error:
                if not keep_going:
                    raise
                jobs.append(error)
        return jobs

    def compute(self, prompts: Sequence[Prompt]) -> list[list[Any]]:
        """The numbers at the reads of each prompt: one each, or a list where the family reads several."""
        return [row.tolist() for row in self._side_by_side(prompts)]

    def unscored(self, reason: str) -> SolutionScore:
        """The result of an item that could not be scored at all."""
        return self._calibrated(SolutionScore((), self.name, reason=reason, scale=self.scale))

    def rendered(self, prompt: str | Sequence[int]) -> Prompt:
        """A prompt that was rendered elsewhere, as text or as token ids, to be read at every step marker.

        Here, and only here, text may spell structure: who gives a whole prompt means its markers.
        """
        name = self.family.step_marker()
        if name is None:
            raise OptionError(f"Models of the family {self.family.name} have no step marker to read at.")
        ids = self.tokenizer.encode_structure(prompt) if isinstance(prompt, str) else list(prompt)
        if any(not 0 <= id < self.tokenizer.size for id in ids):
            raise InputError(f"A token id is outside of the vocabulary, which ends at {self.tokenizer.size - 1}.")
        marker = self.tokenizer.token(name)
        reads = tuple(at for at, id in enumerate(ids) if id == marker)
        # What stands before the steps ends with a structure token: the question, which other prompts may share.
        opening = ids[: reads[0]] if reads else []
        prefix = max((at + 1 for at, id in enumerate(opening) if id in self.tokenizer.structure), default=0)
        return Prompt(tuple(ids), reads, prefix)

    def _scores(self, bar: _Progress, cache: ScoreCache | None) -> Scores:
        # With several prompts a solution, or several models a prompt, the bar moves when a window is done.
        simple = len(self._engines) == 1 and type(self.family).prompts is Family.prompts
        scores = partial(self.engine.scores, done=bar.update) if simple else self._side_by_side
        return scores if cache is None else cache.wrap(self.fingerprint, scores, self.family.width)

    def _side_by_side(self, prompts: Sequence[Prompt]) -> Sequence[Tensor]:
        return side_by_side([engine.scores(prompts) for engine in self._engines])

    def _prepare(self, item: Item, number: int, *, split: str, closing: bool, system: str | None) -> Job:
        question, given = read_pair(item, number)
        try:
            solution = split_solution(given, split, closing=closing)
        except InputError as error:
            raise InputError(f"Item {number}: {error}") from error
        require_unicode(number, question=question, solution=solution.text, system=system or "")
        texts = [step.text for step in solution.steps]
        prompts = self.family.prompts(self.tokenizer, question, texts, system, self.max_tokens)
        readable = tuple(prompt.cut(self.max_tokens) for prompt in prompts)
        return Job(solution, prompts, readable, tuple(self._warnings(question, solution)))

    def _warnings(self, question: str, solution: Solution) -> Iterable[str]:
        for where, text in (("question", question), ("solution", solution.text)):
            for name in self.tokenizer.lookalikes(text):
                yield f"The {where} contains {name!r}. It was read as text, not as structure."
        for name in self.family.lookalikes:
            if name.strip() and name in question:
                yield f"The question contains {name!r}, which ends a step for this model. It was read as text."
            if any(name in step.text for step in solution.steps):
                yield f"A step contains {name!r}, which ends a step for this model. It was read as text."

    def finish(self, job: Job, rows: Sequence[Tensor | list[Any]], seconds: float) -> SolutionScore:
        """The last half of scoring: a job and the rows of its prompts make a result."""
        pairs = zip(job.readable, rows, strict=True)
        values = [value for prompt, row in pairs for value in self.family.combine(prompt, _row(row))]
        steps = []
        for number, step in enumerate(job.solution.steps):
            value, status = self._status(values, number)
            spread = None if value is None else values[number].spread
            steps.append(
                StepScore(step.text, step.start, step.end, value, status, step.index, step.kind, spread=spread)
            )
        result = SolutionScore(
            steps=tuple(steps),
            model=self.name,
            answer=job.solution.answer,
            reason=self._reason(job, steps),
            warnings=job.warnings,
            outside=job.solution.outside,
            empty_steps=job.solution.empty_steps,
            split=job.solution.rule,
            tokens=job.tokens,
            seconds=seconds,
            scale=self.scale,
        )
        return self._calibrated(result)

    def _calibrated(self, result: SolutionScore) -> SolutionScore:
        # Behind the score cache, which holds what the model gave.
        return result if self.calibration is None else self.calibration.apply(result)

    @staticmethod
    def _status(values: list[StepValue], number: int) -> tuple[float | None, StepStatus]:
        if number >= len(values):
            return None, "over_length"
        score = values[number].score
        return (score, "scored") if math.isfinite(score) else (None, "not_finite")

    def _reason(self, job: Job, steps: list[StepScore]) -> str | None:
        if not steps:
            return NO_STEPS
        statuses = {step.status for step in steps}
        prefix = job.prompts[0].prefix
        if prefix >= self.max_tokens:
            return f"The question alone takes {prefix} tokens; the limit is {self.max_tokens}."
        if "over_length" in statuses:
            late = sum(step.status == "over_length" for step in steps)
            return f"{late} of {len(steps)} steps end past the limit of {self.max_tokens} tokens."
        if "not_finite" in statuses:
            return "The model gave a score that is not a finite number."
        return None


def _row(row: Tensor | list[Any]) -> Tensor:
    return row if isinstance(row, Tensor) else torch.tensor(row, dtype=torch.float32)


def side_by_side(columns: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """The numbers that several models give for the same prompts, as columns; those of one model as they are."""
    if len(columns) == 1:
        return list(columns[0])
    return [torch.stack(rows, -1) for rows in zip(*columns, strict=True)]


class _Progress:
    """A bar over solutions that also tells tokens a second; nothing at all when it is not to be shown."""

    def __init__(self, total: int | None, *, shown: bool) -> None:
        self._bar: Any = tqdm(total=total, unit="solution", disable=not shown)
        self._done = self._tokens = 0
        self._started = time.perf_counter()

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def update(self, solutions: int) -> None:
        """So many more solutions are scored."""
        self._bar.update(solutions)

    def settle(self, results: list[SolutionScore]) -> None:
        """These results are there, those without any score among them."""
        self._done += len(results)
        self._tokens += sum(result.tokens for result in results)
        rate = self._tokens / (time.perf_counter() - self._started)
        self._bar.set_postfix_str(f"{rate:,.0f} tokens/s", refresh=False)
        self._bar.update(self._done - self._bar.n)
