"""Confidence intervals: by bootstrap, and for a plain share by Wilson's formula.

The rule: what is drawn again, with replacement, is the unit that was sampled once: a solution or a problem, never a
step. The same seed gives the same interval, and one group's interval does not depend on the other groups. A share of
solutions needs no draws, and at 0 or 1 draws would say that nothing is uncertain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist
from typing import NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import OptionError

Numbers = NDArray[np.float64]


class Interval(NamedTuple):
    """Where the true number lies with a confidence of 95%, unless said otherwise."""

    low: float
    high: float


@dataclass(frozen=True)
class Bootstrap:
    """How intervals are made. No draws, no intervals."""

    draws: int = 1000
    seed: int = 0
    level: float = 0.95

    def __post_init__(self) -> None:
        if self.draws < 0:
            raise OptionError(f"draws={self.draws} cannot be made. Give a number above 0, or 0 for no intervals.")
        if self.seed < 0:
            raise OptionError(f"seed={self.seed} is below 0. Give 0 or more.")
        if not 0.0 < self.level < 1.0:
            raise OptionError(f"level={self.level} is no share. Give a number between 0 and 1, such as 0.95.")

    def tallies(self, name: str, counts: Sequence[int]) -> Numbers:
        """Draws of a sample whose members fall into kinds: one row a draw, one column a kind, the sum as given.

        To draw members one by one and to count their kinds is to draw from the multinomial distribution.
        """
        total = sum(counts)
        if total == 0:
            return np.zeros((self.draws, len(counts)))
        return self._generator(name).multinomial(total, np.array(counts) / total, size=self.draws).astype(np.float64)

    def sums(self, name: str, values: Numbers) -> Numbers:
        """Draws of the rows of `values`, summed: one row a draw."""
        generator = self._generator(name)
        count = len(values)
        found = np.zeros((self.draws, *values.shape[1:]))
        for draw in range(self.draws if count else 0):
            times = np.bincount(generator.integers(0, count, count), minlength=count)
            found[draw] = times @ values
        return found

    def interval(self, values: Numbers) -> Interval | None:
        """The interval of a number over the draws; None where half of the draws do not define it."""
        known = values[np.isfinite(values)]
        if len(known) <= len(values) / 2:
            return None
        edge = (1.0 - self.level) / 2.0
        low, high = np.quantile(known, [edge, 1.0 - edge])
        return Interval(float(low), float(high))

    def share(self, hits: int, total: int) -> Interval | None:
        """Wilson's interval of `hits` out of `total`; None of nothing, or where no intervals are wanted."""
        if not total or not self.draws:
            return None
        z = NormalDist().inv_cdf((1.0 + self.level) / 2.0)
        value, spread = hits / total, z * z / total
        middle = (value + spread / 2.0) / (1.0 + spread)
        reach = sqrt(spread * (value * (1.0 - value) + spread / 4.0)) / (1.0 + spread)
        # At 0 and 1 the formula gives these very ends; rounding must not put them beside.
        return Interval(middle - reach if hits else 0.0, middle + reach if hits < total else 1.0)

    def _generator(self, name: str) -> np.random.Generator:
        return np.random.default_rng([self.seed, crc32(name.encode("utf-8", "surrogatepass"))])


def ratio(top: Numbers, bottom: Numbers) -> Numbers:
    """The quotient; NaN where it is not defined."""
    return np.divide(top, bottom, out=np.full_like(top, np.nan), where=bottom != 0)
