"""Ranks candidate solutions of one question by several scorers, on any scale.

A rank depends on the other candidates, so it is not a score: a `StepScorer` must give a solution the same score alone
or with others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from surefoot.core.options import DEFAULT_OPTIONS, ReadOptions
from surefoot.core.protocols import StepScorer
from surefoot.core.result import SolutionScore
from surefoot.data.items import read_candidates
from surefoot.errors import OptionError


@dataclass(frozen=True)
class RankedCandidate:
    """A candidate and its mean rank, or the reason why it has none."""

    rank: float | None
    """The mean of `ranks`; 1 is the best. None if a scorer has no number for this candidate."""
    ranks: tuple[float, ...]
    """The rank by each scorer, among the candidates that all scorers rank. Ties share their mean rank."""
    results: tuple[SolutionScore, ...]
    """The result of each scorer."""
    reason: str | None = None
    """Why `rank` is None."""


def rank_candidates(
    scorers: Sequence[StepScorer],
    question: str,
    solutions: Sequence[str | Sequence[str]],
    options: ReadOptions = DEFAULT_OPTIONS,
    *,
    aggregation: str | None = None,
) -> list[RankedCandidate]:
    """Ranks solutions of one question by each scorer, and returns their mean ranks in the order of the solutions.

    >>> scorers = [surefoot.load("mini"), surefoot.load("Qwen/Qwen2.5-Math-PRM-7B")]
    >>> found = rank_candidates(scorers, "What is 2 + 3?", ["2 + 3 = 6.", "2 + 3 = 5."])
    >>> len(found[0].ranks)
    2

    Only the order that each scorer gives counts, so the scorers may be on different scales. `aggregation` turns step
    scores into one number; by default each scorer uses the one that its makers recommend. A candidate that a scorer
    cannot aggregate has no rank and does not change the ranks of others.
    """
    if not scorers:
        raise OptionError("Ranking needs at least one scorer.")
    candidates = read_candidates(question, solutions)
    by_scorer = [scorer.score_many(candidates, options) for scorer in scorers]
    by_candidate = list(zip(*by_scorer, strict=True))
    values = [[result.aggregate(aggregation) for result in results] for results in by_candidate]
    complete = [at for at, row in enumerate(values) if None not in row]
    columns = [_ranks([values[at][number] for at in complete]) for number in range(len(scorers))]
    rows = dict(zip(complete, zip(*columns, strict=True), strict=True))
    return [
        RankedCandidate(sum(rows[at]) / len(scorers), rows[at], results)
        if at in rows
        else RankedCandidate(None, (), results, _reason(scorers, results, values[at]))
        for at, results in enumerate(by_candidate)
    ]


def _ranks(values: Sequence[float]) -> list[float]:
    """The position of each value from the highest down, from 1. Equal values share the mean of their positions."""
    return [
        sum(other > value for other in values) + (sum(other == value for other in values) + 1) / 2 for value in values
    ]


def _reason(scorers: Sequence[StepScorer], results: Sequence[SolutionScore], values: Sequence[float | None]) -> str:
    return " ".join(
        f"{scorer.name}: {result.reason or 'The aggregation is undefined for its scores.'}"
        for scorer, result, value in zip(scorers, results, values, strict=True)
        if value is None
    )
