"""Aggregate step scores into one number.

Invariant: every function takes the scores in step order and returns None if a step that it needs is unscored, or if
there are no steps. Missing scores are never filled in. A step counts as correct if its score is above the threshold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Scores = Sequence[float | None]


def _complete(scores: Scores) -> list[float] | None:
    known = [score for score in scores if score is not None]
    return known if known and len(known) == len(scores) else None


def mean(scores: Scores) -> float | None:
    """Return the mean of all step scores."""
    known = _complete(scores)
    return None if known is None else math.fsum(known) / len(known)


def minimum(scores: Scores) -> float | None:
    """Return the lowest step score."""
    known = _complete(scores)
    return None if known is None else min(known)


def final(scores: Scores) -> float | None:
    """Return the score of the last step, even if other steps are unscored."""
    return scores[-1] if scores else None


def product(scores: Scores) -> float | None:
    """Return the probability that all steps are correct if they are independent. Decreases with the number of steps."""
    known = _complete(scores)
    return None if known is None else math.prod(known)


def geometric_mean(scores: Scores) -> float | None:
    """Return the geometric mean: the product, normalized for the number of steps."""
    known = _complete(scores)
    if known is None:
        return None
    if min(known) <= 0.0:
        return 0.0
    return math.exp(math.fsum(map(math.log, known)) / len(known))


def first_error(scores: Scores, threshold: float = 0.5) -> int | None:
    """Return the index of the first incorrect step, -1 if all are correct, None if an unscored step comes first."""
    for index, score in enumerate(scores):
        if score is None:
            return None
        if score <= threshold:
            return index
    return -1 if scores else None


def correct_prefix(scores: Scores, threshold: float = 0.5) -> float | None:
    """Return the fraction of the steps before the first incorrect one; 1.0 if all steps are correct."""
    error = first_error(scores, threshold)
    if error is None:
        return None
    return 1.0 if error == -1 else error / len(scores)


def soft_minimum_weights(scores: Sequence[float], temperature: float = 0.1) -> list[float]:
    """Return the weight of each step in `soft_minimum`. Lower scores weigh more; the weights sum to 1."""
    lowest = min(scores)
    shares = [math.exp((lowest - score) / temperature) for score in scores]
    total = math.fsum(shares)
    return [share / total for share in shares]


def soft_minimum(scores: Scores, temperature: float = 0.1) -> float | None:
    """Return a mean weighted towards the lowest scores, as in PURE.

    It approaches the minimum for a temperature near 0 and the mean for a high one.
    """
    known = _complete(scores)
    if known is None:
        return None
    return math.fsum(w * s for w, s in zip(soft_minimum_weights(known, temperature), known, strict=True))


def clipped(scores: Scores, ceiling: float = 0.5) -> float | None:
    """Return the negated sum of each step's shortfall below the ceiling: at most 0.0, and 0.0 if no step is below."""
    known = _complete(scores)
    return None if known is None else math.fsum(min(score - ceiling, 0.0) for score in known)


def first(scores: Scores) -> float | None:
    """Return the score of the first step, even if other steps are unscored."""
    return scores[0] if scores else None
