"""Asks PRMs about solutions: a judge whose agreement is needed, and a cheap one that screens."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from surefoot.core.labels import ScorerVerdict
from surefoot.core.options import DEFAULT_OPTIONS, ReadOptions
from surefoot.core.protocols import StepScorer
from surefoot.core.result import SolutionScore, StepScore
from surefoot.errors import OptionError
from surefoot.labelling.settings import LabelSettings


class Scorers:
    """The judge and the screening scorer of a job. `close` it after use; it does not close the two."""

    def __init__(
        self, judge: StepScorer | None, screen: StepScorer | None, options: ReadOptions = DEFAULT_OPTIONS
    ) -> None:
        if screen is not None and screen.scale != "probability":
            raise OptionError(
                f"Screening needs probabilities, and the scores of {screen.name} are on the scale {screen.scale!r}. "
                "Use another scorer, or a calibrated one."
            )
        self.judge = judge
        self.screen = screen
        self.options = options
        # One thread: a model in this process uses all cores by itself.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="surefoot-label")

    def close(self) -> None:
        """Stop the scoring thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def verdicts(
        self, scorer: StepScorer | None, question: str, solutions: Sequence[Sequence[str]]
    ) -> list[ScorerVerdict | None]:
        """Score solutions of one question. Without a scorer, there are no verdicts."""
        if scorer is None or not solutions:
            return [None] * len(solutions)
        items = [(question, [step.strip() for step in steps]) for steps in solutions]

        def score() -> list[SolutionScore]:
            return list(scorer.score_stream(items, self.options))

        found = await asyncio.get_running_loop().run_in_executor(self._thread, score)
        return [_verdict(scorer.name, len(steps), each) for (_, steps), each in zip(items, found, strict=True)]


def screened(verdict: ScorerVerdict | None, right: bool | None, settings: LabelSettings) -> ScorerVerdict | None:
    """Say whether a verdict is certain, as in ActPRM: on every step up to the first error that it names.

    One that names no error is not certain if the solution's own answer is not `right`. A step that a member of an
    ensemble did not score is not certain either: without that member, the disagreement is not known.
    """
    if verdict is None:
        return None
    error = verdict.first_error
    if error is None or (error < 0 and right is False):
        return replace(verdict, certain=False)
    judged = slice(0, None if error < 0 else error + 1)
    sure = all(score is not None and max(score, 1 - score) >= settings.certain for score in verdict.scores[judged])
    close = all(spread is None or spread <= settings.max_spread for spread in verdict.spreads[judged])
    complete = not any(at < len(verdict.scores[judged]) for at in verdict.incomplete)
    return replace(verdict, certain=sure and close and complete)


def _verdict(model: str, count: int, result: SolutionScore) -> ScorerVerdict:
    by_index = {step.index: step for step in result.steps}
    steps = [by_index.get(at) for at in range(count)]
    return ScorerVerdict(
        model,
        result.first_error() if None not in steps else None,
        tuple(None if step is None else step.score for step in steps),
        tuple(None if step is None else step.spread for step in steps),
        incomplete=tuple(at for at, step in enumerate(steps) if step is not None and _incomplete(step)),
    )


def _incomplete(step: StepScore) -> bool:
    return any(member.score is None for member in step.members)
