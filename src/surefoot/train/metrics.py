"""How well steps are judged: the area under the ROC curve, accuracy, and ProcessBench's F1.

The rule: a step is right when its score is above the threshold; a solution counts when its first wrong step is found
exactly, or when it has none and none is found. F1 is the harmonic mean of those two accuracies, as in ProcessBench.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from surefoot.core.aggregation import first_error
from surefoot.core.threshold_sweep import Case, harmonic_mean
from surefoot.core.threshold_sweep import best_threshold as threshold_with_best_f1
from surefoot.train.example import WRONG_BELOW


@dataclass(frozen=True)
class Judged:
    """One solution: its scores up to and including the first wrong step (or all), and their targets."""

    scores: tuple[float, ...]
    targets: tuple[float, ...]

    @property
    def label(self) -> int:
        """The first wrong step, or -1."""
        return next((at for at, target in enumerate(self.targets) if target < WRONG_BELOW), -1)


@dataclass(frozen=True)
class Quality:
    """The numbers of one evaluation; shares lie in 0..1. None where there is nothing to measure it on."""

    solutions: int
    loss: float
    step_auc: float | None
    step_accuracy: float
    error: float | None
    correct: float | None
    f1: float | None
    best_threshold: float
    best_f1: float | None

    def to_dict(self) -> dict[str, float | None]:
        """As plain data."""
        return asdict(self)


def measure(judged: Sequence[Judged]) -> Quality:
    """All of it for a list of solutions."""
    scores = np.array([score for one in judged for score in one.scores], dtype=np.float64)
    targets = np.array([target for one in judged for target in one.targets], dtype=np.float64)
    right = targets >= WRONG_BELOW
    safe = np.clip(scores, 1e-7, 1 - 1e-7)
    loss = float(-(targets * np.log(safe) + (1 - targets) * np.log(1 - safe)).mean()) if len(scores) else float("nan")
    error, correct, f1 = find_errors(judged, 0.5)
    threshold, best = best_threshold(judged)
    return Quality(
        solutions=len(judged),
        loss=loss,
        step_auc=area_under_curve(scores, right),
        step_accuracy=float(((scores > 0.5) == right).mean()) if len(scores) else float("nan"),
        error=error,
        correct=correct,
        f1=f1,
        best_threshold=threshold,
        best_f1=best,
    )


def find_errors(judged: Sequence[Judged], threshold: float) -> tuple[float | None, float | None, float | None]:
    """The accuracy on solutions with an error, on those without, and F1."""
    hits: dict[bool, list[bool]] = {True: [], False: []}
    for one in judged:
        hits[one.label >= 0].append(first_error(one.scores, threshold) == one.label)
    error, correct = (float(np.mean(hits[kind])) if hits[kind] else None for kind in (True, False))
    return error, correct, None if error is None or correct is None else harmonic_mean(error, correct)


def best_threshold(judged: Sequence[Judged]) -> tuple[float, float | None]:
    """The threshold with the highest F1, and that F1; 0.5 where none is better than another."""
    threshold = threshold_with_best_f1(Case(tuple(enumerate(one.scores)), one.label) for one in judged)
    chosen = 0.5 if threshold is None else threshold
    return chosen, find_errors(judged, chosen)[2]


def area_under_curve(scores: np.ndarray, right: np.ndarray) -> float | None:
    """The chance that a right step scores above a wrong one; ties count half."""
    positives, negatives = int(right.sum()), int((~right).sum())
    if not positives or not negatives:
        return None
    _, place, count = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[place]
    return float((ranks[right].sum() - positives * (positives + 1) / 2) / (positives * negatives))
