"""How well steps are judged: the area under the ROC curve, accuracy, and ProcessBench's F1.

The rule: a step is right when its score is above the threshold; a solution counts when its first wrong step is found
exactly, or when it has none and none is found. F1 is the harmonic mean of those two accuracies, as in ProcessBench.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from surefoot.train.example import WRONG_BELOW

THRESHOLDS = np.linspace(0.01, 0.99, 99)


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
        found = next((at for at, score in enumerate(one.scores) if score <= threshold), -1)
        hits[one.label >= 0].append(found == one.label)
    error, correct = (float(np.mean(hits[kind])) if hits[kind] else None for kind in (True, False))
    if error is None or correct is None:
        return error, correct, None
    return error, correct, 2 * error * correct / (error + correct) if error + correct else 0.0


def best_threshold(judged: Sequence[Judged]) -> tuple[float, float | None]:
    """The threshold with the highest F1, and that F1. Of several, the one nearest to 0.5."""
    found = [(find_errors(judged, float(threshold))[2], float(threshold)) for threshold in THRESHOLDS]
    known = [(f1, -abs(threshold - 0.5), threshold) for f1, threshold in found if f1 is not None]
    if not known:
        return 0.5, None
    f1, _, threshold = max(known)
    return threshold, f1


def area_under_curve(scores: np.ndarray, right: np.ndarray) -> float | None:
    """The chance that a right step scores above a wrong one; ties count half."""
    positives, negatives = int(right.sum()), int((~right).sum())
    if not positives or not negatives:
        return None
    _, place, count = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[place]
    return float((ranks[right].sum() - positives * (positives + 1) / 2) / (positives * negatives))
