"""Compute ProcessBench's accuracies for every threshold, exactly rather than on a grid.

A solution's verdict changes only where the threshold crosses one of its scores, so the accuracies are constant between
adjacent scores; each such range is one point of the sweep.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """A fully scored solution: the index and score of each step, and the label (index of the first error, or -1)."""

    steps: tuple[tuple[int, float], ...]
    label: int


@dataclass(frozen=True)
class ThresholdRange:
    """The thresholds from `low` (inclusive) to `high` (exclusive), which all give the same verdicts."""

    low: float
    high: float
    error: float
    """Fraction of the erroneous solutions whose first error is found."""
    correct: float
    """Fraction of the correct solutions in which no error is found."""

    @property
    def f1(self) -> float:
        """The harmonic mean of the two accuracies."""
        return harmonic_mean(self.error, self.correct)


def harmonic_mean(first: float, second: float) -> float:
    """2ab / (a + b); 0 when both are 0."""
    return 2.0 * first * second / (first + second) if first + second > 0.0 else 0.0


def sweep(cases: Iterable[Case]) -> list[ThresholdRange]:
    """Return all ranges in ascending order; empty unless there are both correct and erroneous solutions."""
    # Per threshold: errors found from there on, errors lost (an earlier step is blamed now), correct solutions blamed.
    starts: Counter[float] = Counter()
    stops: Counter[float] = Counter()
    alarms: Counter[float] = Counter()
    errors = corrects = 0
    for case in cases:
        lowest = math.inf
        errors, corrects = errors + (case.label != -1), corrects + (case.label == -1)
        for at, score in case.steps:
            if at == case.label and score < lowest:
                starts[score] += 1
                if lowest < math.inf:
                    stops[lowest] += 1
            lowest = min(lowest, score)
        if case.label == -1:
            alarms[lowest] += 1
    if not errors or not corrects:
        return []
    edges = sorted({*starts, *stops, *alarms})
    found = blamed = 0
    points = [ThresholdRange(-math.inf, edges[0], 0.0, 1.0)] if edges else []
    for number, edge in enumerate(edges):
        found += starts[edge] - stops[edge]
        blamed += alarms[edge]
        high = edges[number + 1] if number + 1 < len(edges) else math.inf
        points.append(ThresholdRange(edge, high, found / errors, (corrects - blamed) / corrects))
    return points


def best_threshold(cases: Iterable[Case]) -> float | None:
    """Return the middle of the range with the highest F1 (the widest if there are several).

    None if no threshold gives an F1 above 0.
    """
    inner = [each for each in sweep(cases) if math.isfinite(each.low) and math.isfinite(each.high)]
    best = max(inner, key=lambda each: (each.f1, each.high - each.low), default=None)
    return None if best is None or best.f1 == 0.0 else (best.low + best.high) / 2.0
