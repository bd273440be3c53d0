"""Paired statistics of two scorers on the same solutions.

Both scorers see the same bootstrap draws, so what makes a solution hard for both cancels out. A solution counts only if
both scorers have a prediction for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from surefoot.core.intervals import Bootstrap, Interval, Numbers, as_list


@dataclass(frozen=True)
class Difference:
    """A metric of two scorers on the solutions that both judged, and the second minus the first."""

    metric: str
    group: str
    """The split, `average` over splits, or for best of N the number N."""
    first: float | None
    second: float | None
    value: float | None
    """The second minus the first; None if one of them is undefined."""
    interval: Interval | None
    """By paired bootstrap; None if it is undefined or if no draw differs from another."""
    total: int
    """The number of solutions, or problems, that the difference is over."""
    won: int | None = None
    """Where only the second is right. None if the metric is not an accuracy."""
    lost: int | None = None
    """Where only the first is right."""
    p_value: float | None = None
    """Of the exact McNemar test: how likely so uneven a split of `won` and `lost` is if both are equally accurate."""

    @property
    def better(self) -> int | None:
        """Which scorer is better, 0 or 1; None if the interval includes 0 or is undefined."""
        if self.interval is None or self.interval.low <= 0.0 <= self.interval.high:
            return None
        return int(self.interval.low > 0.0)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "metric": self.metric,
            "group": self.group,
            "first": self.first,
            "second": self.second,
            "difference": self.value,
            "interval": as_list(self.interval),
            "solutions": self.total,
            "won": self.won,
            "lost": self.lost,
            "mcnemar_p": self.p_value,
        }


@dataclass(frozen=True)
class Agreement:
    """How often two scorers are right together. Solutions that one of them has no prediction for are excluded."""

    both: int
    first_only: int
    second_only: int
    neither: int
    same: int
    """Solutions for which both predict the same, right or wrong."""
    excluded: int

    @classmethod
    def of(cls, outcomes: Sequence[tuple[bool, bool, bool] | None]) -> Agreement:
        """Count, per solution, whether the first and the second are right, and whether they predict the same."""
        known = [outcome for outcome in outcomes if outcome is not None]
        return cls(
            both=sum(first and second for first, second, _ in known),
            first_only=sum(first and not second for first, second, _ in known),
            second_only=sum(second and not first for first, second, _ in known),
            neither=sum(not first and not second for first, second, _ in known),
            same=sum(same for *_, same in known),
            excluded=len(outcomes) - len(known),
        )


def mcnemar(won: int, lost: int) -> float:
    """Return the two-sided p-value of the exact McNemar test.

    >>> mcnemar(8, 2)  # 2 * (1 + 10 + 45) / 1024
    0.109375
    """
    total, fewer = won + lost, min(won, lost)
    tail: int = sum(math.comb(total, count) for count in range(fewer + 1))
    return min(1.0, float(Fraction(2 * tail, 2**total)))


def difference(
    metric: str,
    group: str,
    values: tuple[float | None, float | None],
    draws: tuple[Numbers, Numbers],
    bootstrap: Bootstrap,
    *,
    total: int,
    discordant: tuple[int, int] | None = None,
) -> Difference:
    """Build a difference from both values, overall and in each bootstrap draw. `discordant` is (won, lost)."""
    first, second = values
    if first is None or second is None:
        return Difference(metric, group, first, second, None, None, total)
    drawn = draws[1] - draws[0]
    defined = drawn[np.isfinite(drawn)]
    equal = not len(defined) or not np.any(defined)
    won, lost = (None, None) if discordant is None else discordant
    return Difference(
        metric,
        group,
        first,
        second,
        second - first,
        None if equal else bootstrap.interval(drawn),
        total,
        won,
        lost,
        None if discordant is None else mcnemar(*discordant),
    )


def agreement_dict(agreement: Agreement) -> Mapping[str, int]:
    """Return plain data."""
    return vars(agreement)
