"""From step scores to one number.

The rule: every function takes the scores in the order of the steps and answers `None` when a step that it needs has no
score, or when there is no step at all. Nothing is filled in. A step is right when its score is above the threshold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Scores = Sequence[float | None]


def _complete(scores: Scores) -> list[float] | None:
    known = [score for score in scores if score is not None]
    return known if known and len(known) == len(scores) else None


def mean(scores: Scores) -> float | None:
    """The average of all steps."""
    known = _complete(scores)
    return None if known is None else math.fsum(known) / len(known)


def minimum(scores: Scores) -> float | None:
    """The weakest step."""
    known = _complete(scores)
    return None if known is None else min(known)


def final(scores: Scores) -> float | None:
    """The last step, whatever became of the others."""
    return scores[-1] if scores else None


def product(scores: Scores) -> float | None:
    """The probability that every step is right, were they independent. Falls with the number of steps."""
    known = _complete(scores)
    return None if known is None else math.prod(known)


def geometric_mean(scores: Scores) -> float | None:
    """The product with the number of steps taken out."""
    known = _complete(scores)
    if known is None:
        return None
    if min(known) <= 0.0:
        return 0.0
    return math.exp(math.fsum(map(math.log, known)) / len(known))


def first_error(scores: Scores, threshold: float = 0.5) -> int | None:
    """The index of the first wrong step, -1 when every step is right, `None` when an unscored step hides the answer."""
    for index, score in enumerate(scores):
        if score is None:
            return None
        if score <= threshold:
            return index
    return -1 if scores else None


def correct_prefix(scores: Scores, threshold: float = 0.5) -> float | None:
    """The share of the steps that stands before the first wrong one: 1.0 when every step is right."""
    error = first_error(scores, threshold)
    if error is None:
        return None
    return 1.0 if error == -1 else error / len(scores)


def soft_minimum_weights(scores: Sequence[float], temperature: float = 0.1) -> list[float]:
    """The weight of each step in `soft_minimum`: together 1, and the more the lower the score."""
    lowest = min(scores)
    shares = [math.exp((lowest - score) / temperature) for score in scores]
    total = math.fsum(shares)
    return [share / total for share in shares]


def soft_minimum(scores: Scores, temperature: float = 0.1) -> float | None:
    """The average weighted towards the weakest steps, as in PURE: near 0 it is the minimum, when large the mean."""
    known = _complete(scores)
    if known is None:
        return None
    return math.fsum(w * s for w, s in zip(soft_minimum_weights(known, temperature), known, strict=True))


def clipped(scores: Scores, ceiling: float = 0.5) -> float | None:
    """What every step lacks to the ceiling, summed: 0.0 when none is below it, and never more."""
    known = _complete(scores)
    return None if known is None else math.fsum(min(score - ceiling, 0.0) for score in known)


def first(scores: Scores) -> float | None:
    """The first step, whatever became of the others."""
    return scores[0] if scores else None
