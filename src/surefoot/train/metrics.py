"""Measure step scores: area under the ROC curve, accuracy, and ProcessBench's F1.

Scores above the threshold count as correct. An erroneous solution is a hit if exactly its first error is found, a
correct one if no error is found; F1 is the harmonic mean of the two accuracies, as in ProcessBench.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from surefoot.core.aggregation import first_error
from surefoot.core.logistic_regression import fit_weights
from surefoot.core.threshold_sweep import Case, harmonic_mean
from surefoot.core.threshold_sweep import best_threshold as threshold_with_best_f1
from surefoot.data.step_labels import WRONG_BELOW, first_wrong

TINY = 1e-7
"""Scores are at least this far from 0 and 1 where a logarithm is taken."""
SCALES = 0.25, 4.0
"""The smallest and the largest factor on the logits: validation examples are few, and classes may separate."""
PENALTY = 1.0
"""How strongly the weights of a head stay near the trained ones, if features are measured in standard deviations."""


@dataclass(frozen=True)
class Judged:
    """The scores of one solution, up to and including the first incorrect step, and their targets."""

    scores: tuple[float, ...]
    targets: tuple[float, ...]

    @property
    def label(self) -> int:
        """The index of the first incorrect step, or -1."""
        return first_wrong(self.targets)


@dataclass(frozen=True)
class Quality:
    """The metrics of one evaluation, as fractions from 0 to 1; None if there is nothing to measure them on."""

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
        """Return the metrics as a dictionary."""
        return asdict(self)


def measure(judged: Sequence[Judged]) -> Quality:
    """Compute all metrics for a list of solutions."""
    scores = np.array([score for one in judged for score in one.scores], dtype=np.float64)
    targets = np.array([target for one in judged for target in one.targets], dtype=np.float64)
    right = targets >= WRONG_BELOW
    loss = _loss(scores, targets) if len(scores) else float("nan")
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
    """Return the accuracy on erroneous solutions, the accuracy on correct ones, and F1."""
    hits: dict[bool, list[bool]] = {True: [], False: []}
    for one in judged:
        hits[one.label >= 0].append(first_error(one.scores, threshold) == one.label)
    error, correct = (float(np.mean(hits[kind])) if hits[kind] else None for kind in (True, False))
    return error, correct, None if error is None or correct is None else harmonic_mean(error, correct)


def best_threshold(judged: Sequence[Judged]) -> tuple[float, float | None]:
    """Return the threshold with the highest F1 and that F1; the threshold is 0.5 if none gives an F1 above 0."""
    threshold = threshold_with_best_f1(Case(tuple(enumerate(one.scores)), one.label) for one in judged)
    chosen = 0.5 if threshold is None else threshold
    return chosen, find_errors(judged, chosen)[2]


def best_scale(judged: Sequence[Judged], threshold: float) -> float:
    """Return the factor on the logits with the lowest loss, if `threshold` becomes 0.5 first."""
    scores = np.array([score for one in judged for score in one.scores], dtype=np.float64)
    targets = np.array([target for one in judged for target in one.targets], dtype=np.float64)
    if not len(scores):
        return 1.0
    distances = _logits(scores) - _logits(np.array(threshold))
    return float(np.clip(fit_weights(distances[:, None], targets, np.ones(1))[0], *SCALES))


def fit_head(features: np.ndarray, targets: np.ndarray, start: np.ndarray) -> np.ndarray | None:
    """Return the weights of the features (one row per step) with the lowest loss, apart from a constant.

    The first feature is the logit of the MLP. The result is None if it counts for nothing or for too much: the examples
    then say too little, and the trained weights are the better choice.
    """
    with_constant = np.column_stack([features, np.ones(len(features))])
    weights = fit_features(with_constant, targets, np.append(start, 0.0))[:-1]
    return weights if SCALES[0] <= weights[0] <= SCALES[1] else None


def fit_features(features: np.ndarray, targets: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Return the weights of the features with the lowest loss.

    Features are measured in standard deviations, and a small penalty keeps their weights near those at the start. A
    constant feature has no penalty.
    """
    varies = features.std(0) > TINY
    scale = np.where(varies, features.std(0), 1.0)
    weights: np.ndarray = fit_weights(features / scale, targets, start * scale, PENALTY * varies) / scale
    return weights


def _logits(scores: np.ndarray) -> np.ndarray:
    safe = np.clip(scores, TINY, 1 - TINY)
    logits: np.ndarray = np.log(safe / (1 - safe))
    return logits


def _loss(scores: np.ndarray, targets: np.ndarray) -> float:
    """The mean cross-entropy."""
    safe = np.clip(scores, TINY, 1 - TINY)
    return float(-(targets * np.log(safe) + (1 - targets) * np.log(1 - safe)).mean())


def area_under_curve(scores: np.ndarray, right: np.ndarray) -> float | None:
    """Return the probability that a correct step scores above an incorrect one; ties count half."""
    positives, negatives = int(right.sum()), int((~right).sum())
    if not positives or not negatives:
        return None
    _, place, count = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[place]
    return float((ranks[right].sum() - positives * (positives + 1) / 2) / (positives * negatives))
