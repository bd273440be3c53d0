"""The interface that every scorer implements: local models, services, vLLM and whatever comes next.

Rewards, evaluation, integrations and the service take a `StepScorer` and never ask which kind it is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Protocol

from surefoot.core.options import DEFAULT_OPTIONS, ReadOptions
from surefoot.core.result import Scale, SolutionScore

Item = tuple[str, str | Sequence[str]]
"""A question, and a solution as text or as a list of steps."""


class SearchSession(Protocol):
    """Scores candidate solutions of one question as they grow."""

    @property
    def computed_tokens(self) -> int:
        """Tokens that the model has computed so far, over all calls."""

    def score(self, prefixes: Sequence[str | Sequence[str]]) -> list[SolutionScore]:
        """Scores candidates, finished or not, each as text or as a list of steps."""


class StepScorer(Protocol):
    """Anything that scores the steps of solutions.

    >>> def share_correct(scorer: surefoot.StepScorer, items: list[tuple[str, str]]) -> float:
    ...     results = scorer.score_many(items)
    ...     return sum(result.first_error() == -1 for result in results) / len(results)
    >>> share_correct(surefoot.load("mini"), [("What is 2 + 3?", "2 + 3 = 6.")])
    0.0
    """

    @property
    def name(self) -> str:
        """The model's name, as results and reports show it."""

    @property
    def scale(self) -> Scale:
        """What the scores are: `probability`, `margin` or `log_ratio`."""

    @property
    def fingerprint(self) -> str:
        """A hash of what the model computes, without its calibration. Equal fingerprints mean equal scores."""

    @property
    def calibration(self) -> str | None:
        """The name of the calibration that every score has gone through, or None."""

    def score(
        self, question: str, solution: str | Sequence[str], options: ReadOptions = DEFAULT_OPTIONS
    ) -> SolutionScore:
        """Scores every step of one solution."""

    def score_many(
        self, items: Iterable[Item], options: ReadOptions = DEFAULT_OPTIONS, *, progress: bool = False
    ) -> list[SolutionScore]:
        """Scores items together, in their order. A malformed item raises `InputError` before anything is scored."""

    def score_stream(
        self,
        items: Iterable[Item],
        options: ReadOptions = DEFAULT_OPTIONS,
        *,
        progress: bool = False,
        window: int = 1024,
    ) -> Iterator[SolutionScore]:
        """Scores any number of items, `window` at a time. A malformed item becomes an unscored result with a reason."""

    def session(self, question: str, options: ReadOptions = DEFAULT_OPTIONS) -> SearchSession:
        """Starts a search over candidate solutions of one question."""


class AsyncStepScorer(Protocol):
    """A `StepScorer` whose methods are coroutines."""

    @property
    def name(self) -> str:
        """The model's name, as results and reports show it."""

    async def score(
        self, question: str, solution: str | Sequence[str], options: ReadOptions = DEFAULT_OPTIONS
    ) -> SolutionScore:
        """Scores every step of one solution."""

    async def score_many(self, items: Iterable[Item], options: ReadOptions = DEFAULT_OPTIONS) -> list[SolutionScore]:
        """Scores items together, in their order. A malformed item raises `InputError` before anything is scored."""

    def score_stream(
        self, items: Iterable[Item], options: ReadOptions = DEFAULT_OPTIONS, *, window: int = 1024
    ) -> AsyncIterator[SolutionScore]:
        """Scores any number of items, `window` at a time. A malformed item becomes an unscored result with a reason."""
