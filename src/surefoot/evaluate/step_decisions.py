"""Decisions on steps, accepted or rejected, and the metrics of PRMBench over them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Decisions:
    """A confusion matrix over steps. Positive means correct."""

    true_positive: int = 0
    """Correct steps accepted."""
    false_positive: int = 0
    """Incorrect steps accepted."""
    true_negative: int = 0
    """Incorrect steps rejected."""
    false_negative: int = 0
    """Correct steps rejected."""

    @property
    def f1(self) -> float | None:
        """F1 of the correct steps; None if there are none."""
        if not self.true_positive + self.false_negative:
            return None
        return 2 * self.true_positive / (2 * self.true_positive + self.false_positive + self.false_negative)

    @property
    def negative_f1(self) -> float | None:
        """F1 of the incorrect steps; None if there are none."""
        if not self.true_negative + self.false_positive:
            return None
        return 2 * self.true_negative / (2 * self.true_negative + self.false_positive + self.false_negative)

    @property
    def prm_score(self) -> float | None:
        """The mean of both; F1 alone if no step is incorrect (`multi_solutions`), as on the leaderboard."""
        if self.f1 is None:
            return None
        return self.f1 if self.negative_f1 is None else (self.f1 + self.negative_f1) / 2

    def __add__(self, other: Decisions) -> Decisions:
        return Decisions(
            self.true_positive + other.true_positive,
            self.false_positive + other.false_positive,
            self.true_negative + other.true_negative,
            self.false_negative + other.false_negative,
        )
