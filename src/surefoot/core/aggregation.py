"""Aggregate step scores into one number. `AGGREGATIONS` is the only list of aggregations; everything else reads it.

Invariant: every function takes the scores in step order and returns None if a step that it needs is unscored, or if
there are no steps. Missing scores are never filled in. A step counts as correct if its score is above the threshold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import mul
from types import MappingProxyType

from surefoot.errors import OptionError

Scores = Sequence[float | None]


@dataclass(frozen=True)
class Aggregation:
    """One way to turn step scores into a number."""

    name: str
    function: Callable[..., float | None]
    label: str
    """What tables and pages call it."""
    needs_probabilities: bool = False
    """Whether it multiplies scores or compares them with a threshold, which is meaningless on another scale."""
    in_results: bool = False
    """Whether every result reports it."""
    credits: Callable[..., list[float]] | None = None
    """Splits the number into one reward per step. They sum to it; those of the product sum to the product minus 1."""


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


def _mean_credits(scores: Sequence[float]) -> list[float]:
    return [score / len(scores) for score in scores]


def _min_credits(scores: Sequence[float]) -> list[float]:
    lowest = min(range(len(scores)), key=lambda at: scores[at])
    return [score if at == lowest else 0.0 for at, score in enumerate(scores)]


def _soft_min_credits(scores: Sequence[float], temperature: float = 0.1) -> list[float]:
    return [weight * score for weight, score in zip(soft_minimum_weights(scores, temperature), scores, strict=True)]


def _product_credits(scores: Sequence[float]) -> list[float]:
    return [after - before for before, after in pairwise(accumulate(scores, mul, initial=1.0))]


def _clip_credits(scores: Sequence[float], ceiling: float = 0.5) -> list[float]:
    return [min(score - ceiling, 0.0) for score in scores]


def _final_credits(scores: Sequence[float]) -> list[float]:
    return [after - before for before, after in pairwise([0.0, *scores])]


def _first_credits(scores: Sequence[float]) -> list[float]:
    return [now - following for now, following in pairwise([*scores, 0.0])]


AGGREGATIONS: Mapping[str, Aggregation] = MappingProxyType(
    {
        each.name: each
        for each in (
            Aggregation("mean", mean, "mean", in_results=True, credits=_mean_credits),
            Aggregation("min", minimum, "min", in_results=True, credits=_min_credits),
            Aggregation("final", final, "final", in_results=True, credits=_final_credits),
            Aggregation("product", product, "product", True, in_results=True, credits=_product_credits),
            Aggregation("geometric_mean", geometric_mean, "geo. mean", True, in_results=True),
            Aggregation("correct_prefix", correct_prefix, "correct prefix", True),
            Aggregation("soft_min", soft_minimum, "soft min", credits=_soft_min_credits),
            Aggregation("clip", clipped, "clip", True, credits=_clip_credits),
            Aggregation("first", first, "first", credits=_first_credits),
        )
    }
)
"""All aggregations by name. To add one, add a line here."""


def find_aggregation(name: str) -> Aggregation:
    """Returns the aggregation called `name`."""
    if name not in AGGREGATIONS:
        raise OptionError(f"There is no aggregation {name!r}. Choose one of: {', '.join(AGGREGATIONS)}.")
    return AGGREGATIONS[name]
