"""Area under the ROC curve of step scores: how often a correct step scores above an incorrect one.

Only steps with a known label count, as in `reliability`. A tie counts half. The area needs no threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surefoot.core.intervals import Bootstrap, Interval, Numbers
from surefoot.evaluate.reliability import LabelledScore


@dataclass(frozen=True)
class ScoreRanking:
    """The labelled steps of several solutions, ranked once so that many resamples are fast."""

    owner: NDArray[np.int64]
    """The solution of each step."""
    rank: NDArray[np.int64]
    """The rank of each step's score; equal scores share one."""
    correct: NDArray[np.bool_]
    solutions: int

    @classmethod
    def of(cls, solutions: Sequence[Sequence[LabelledScore]]) -> ScoreRanking:
        """Rank the steps."""
        owner = np.repeat(np.arange(len(solutions)), [len(solution) for solution in solutions]).astype(np.int64)
        scores = np.array([score for solution in solutions for score, _ in solution], dtype=np.float64)
        correct = np.array([correct for solution in solutions for _, correct in solution], dtype=np.bool_)
        _, rank = np.unique(scores, return_inverse=True)
        return cls(owner, rank.reshape(-1).astype(np.int64), correct, len(solutions))

    def area(self, times: NDArray[np.int64]) -> float:
        """Return the area if each solution occurs `times` times; NaN without correct or without incorrect steps."""
        weights = times[self.owner].astype(np.float64)
        count = int(self.rank.max(initial=-1)) + 1
        correct = np.bincount(self.rank[self.correct], weights[self.correct], minlength=count)
        incorrect = np.bincount(self.rank[~self.correct], weights[~self.correct], minlength=count)
        pairs = float(correct.sum() * incorrect.sum())
        if not pairs:
            return float("nan")
        below = np.cumsum(incorrect) - incorrect
        return float((correct * (below + incorrect / 2.0)).sum()) / pairs


def step_auc(solutions: Sequence[Sequence[LabelledScore]]) -> float | None:
    """Return the area over all steps; None without correct or without incorrect steps.

    >>> step_auc([[(0.9, True), (0.2, False)], [(0.1, True)]])
    0.5
    """
    area = ScoreRanking.of(solutions).area(np.ones(len(solutions), dtype=np.int64))
    return None if np.isnan(area) else area


def step_auc_interval(
    solutions: Sequence[Sequence[LabelledScore]], bootstrap: Bootstrap, name: str = "step AUC"
) -> Interval | None:
    """Return the bootstrap interval over solutions; None if it is undefined."""
    ranking = ScoreRanking.of(solutions)
    areas: Numbers = np.array([ranking.area(times) for times in bootstrap.resampled_times(name, len(solutions))])
    return bootstrap.interval(areas)
