"""Confidence intervals: by bootstrap, and by Wilson's formula for proportions.

The bootstrap resamples the units that were sampled in the first place: solutions or problems, never steps. The same
seed gives the same interval, and the interval of one group does not depend on other groups. Proportions use Wilson's
formula, because the bootstrap reports no uncertainty at 0 and 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    """A confidence interval, at the level of the `Bootstrap` that made it (95% by default)."""

    low: float
    high: float


@dataclass(frozen=True)
class Bootstrap:
    """How intervals are computed. `draws=0` turns them off."""

    draws: int = 1000
    seed: int = 0
    level: float = 0.95

    def __post_init__(self) -> None:
        if self.draws < 0:
            raise OptionError(f"draws={self.draws} is negative. Pass a number above 0, or 0 for no intervals.")
        if self.seed < 0:
            raise OptionError(f"seed={self.seed} is negative. Pass 0 or more.")
        if not 0.0 < self.level < 1.0:
            raise OptionError(
                f"level={self.level} is not a confidence level. Pass a number between 0 and 1, such as 0.95."
            )

    def resampled_counts(self, name: str, counts: Sequence[int]) -> Numbers:
        """Resample members of several categories: one row per draw, one column per category, the same total.

        Drawing members one by one and counting their categories is drawing from the multinomial distribution.
        """
        total = sum(counts)
        if total == 0:
            return np.zeros((self.draws, len(counts)))
        return self._generator(name).multinomial(total, np.array(counts) / total, size=self.draws).astype(np.float64)

    def resampled_sums(self, name: str, values: Numbers) -> Numbers:
        """Resample the rows of `values` and sum them: one row per draw."""
        found = np.zeros((self.draws, *values.shape[1:]))
        for draw, times in enumerate(self.resampled_times(name, len(values))):
            found[draw] = times @ values
        return found

    def resampled_times(self, name: str, count: int) -> Iterator[NDArray[np.int64]]:
        """Yield, for every draw, how often it contains each of `count` members. Nothing if there are none."""
        generator = self._generator(name)
        for _ in range(self.draws if count else 0):
            yield np.bincount(generator.integers(0, count, count), minlength=count)

    def interval(self, values: Numbers) -> Interval | None:
        """Return the percentile interval over the draws; None if at least half of them are undefined."""
        defined = values[np.isfinite(values)]
        if len(defined) <= len(values) / 2:
            return None
        edge = (1.0 - self.level) / 2.0
        low, high = np.quantile(defined, [edge, 1.0 - edge])
        return Interval(float(low), float(high))

    def wilson(self, hits: float, total: float) -> Interval | None:
        """Return Wilson's interval of `hits` out of `total`; None if `total` or `draws` is 0.

        Both may be fractional: an effective sample size is (see `clustered_wilson`).
        """
        if not total or not self.draws:
            return None
        z = NormalDist().inv_cdf((1.0 + self.level) / 2.0)
        value, spread = hits / total, z * z / total
        middle = (value + spread / 2.0) / (1.0 + spread)
        reach = sqrt(spread * (value * (1.0 - value) + spread / 4.0)) / (1.0 + spread)
        # At 0 and 1 the formula gives exactly these ends; rounding must not move them.
        return Interval(middle - reach if hits else 0.0, middle + reach if hits < total else 1.0)

    def clustered_wilson(self, hits: Numbers, totals: Numbers) -> Interval | None:
        """Return Wilson's interval of a proportion whose observations come in clusters, such as steps in solutions.

        `hits` and `totals` have one entry per cluster. Observations of one cluster are alike, so the interval is that
        of the effective sample size: the number of independent observations with the same variance, at most all of
        them. If all observations agree or there is one cluster, that cannot be estimated, and a cluster counts as one.
        """
        hits, totals = hits[totals > 0], totals[totals > 0]
        clusters, total = len(totals), float(totals.sum())
        if not clusters:
            return None
        value = float(hits.sum()) / total
        if clusters == 1 or value in (0.0, 1.0):
            size = float(clusters)
        else:
            variance = float(((hits - value * totals) ** 2).sum()) / total**2
            size = min(value * (1.0 - value) / max(variance, 1e-300), total)
        return self.wilson(value * size, size)

    def _generator(self, name: str) -> np.random.Generator:
        return np.random.default_rng([self.seed, crc32(name.encode("utf-8", "surrogatepass"))])


def ratio(top: Numbers, bottom: Numbers) -> Numbers:
    """Return the quotient; NaN where it is undefined."""
    return np.divide(top, bottom, out=np.full_like(top, np.nan), where=bottom != 0)


def as_list(interval: Interval | None) -> list[float] | None:
    """Return the interval as plain data."""
    return None if interval is None else list(interval)
