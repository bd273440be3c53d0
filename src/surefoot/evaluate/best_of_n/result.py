"""The result of a best-of-N run, as data and as tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from surefoot.core.aggregation import find_aggregation
from surefoot.core.intervals import Interval, as_list
from surefoot.display.tables import Cells, join_sections, percent, table
from surefoot.evaluate.baselines import PREFIX, Baseline
from surefoot.evaluate.header import header_fields, model_label
from surefoot.evaluate.rows import Rollout

if TYPE_CHECKING:
    from surefoot.core.result import Scale


@dataclass(frozen=True)
class Estimate:
    """An accuracy with its confidence interval over problems."""

    value: float
    interval: Interval | None


Curve = dict[int, Estimate]
"""Accuracy by N."""

AggregationReason = Literal["given", "makers", "most accurate"]
REASONS: dict[AggregationReason, str] = {
    "given": "as requested",
    "makers": "the makers' aggregation",
    "most accurate": "default: the most accurate on these data",
}


@dataclass(frozen=True)
class Candidate:
    """One solution of a problem: its scores, and whether it is correct."""

    row: Rollout
    scores: tuple[float | None, ...]
    values: dict[str, float] | None
    """One number per aggregation; None if a step has no score."""
    correct: bool | None
    """None if undecided."""
    reason: str | None = None
    """Why a step has no score."""


@dataclass(frozen=True)
class BestOfNResult:
    """The measurements of one run. Accuracies are fractions of 1."""

    model: str
    ns: tuple[int, ...]
    problems: int
    solutions: int
    """Solutions that were selected from."""
    best: dict[str, Curve]
    """By aggregation: the solution with the highest score is selected."""
    weighted: dict[str, Curve]
    """By aggregation: solutions vote for their answers, weighted by their scores."""
    majority: Curve
    oracle: Curve
    """Whether any of the N is correct."""
    unscored: int
    """Solutions excluded because a step has no score."""
    undecided: int
    """Solutions excluded because their answer could not be compared with the reference."""
    aggregation: str
    """The aggregation that reports are about, one of `best`."""
    aggregation_reason: AggregationReason
    """Why: it was requested, the makers of the model use it, or it is the most accurate one on these data."""
    notes: tuple[str, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    """Every solution, including the excluded ones."""
    calibration: str | None = None
    """The name of the calibration applied to the scores."""
    scale: Scale = "probability"
    """What the scores are; precomputed scores count as probabilities."""
    baselines: tuple[Baseline, ...] = ()
    """What is reached without scores, on the same solutions."""

    @property
    def aggregation_label(self) -> str:
        """The aggregation that reports are about, and why, in words."""
        return f"{find_aggregation(self.aggregation).label} ({REASONS[self.aggregation_reason]})"

    @property
    def complete(self) -> bool:
        """Whether every solution was scored and judged."""
        return not self.unscored and not self.undecided

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, without the individual solutions."""
        header = header_fields("best-of-n", self, solutions=self.solutions)
        return header | {
            "n": list(self.ns),
            "problems": self.problems,
            "aggregation": self.aggregation,
            "aggregation_reason": self.aggregation_reason,
            "best": {name: _curve_dict(curve) for name, curve in self.best.items()},
            "weighted_vote": {name: _curve_dict(curve) for name, curve in self.weighted.items()},
            "majority_vote": _curve_dict(self.majority),
            "oracle": _curve_dict(self.oracle),
            "undecided": self.undecided,
        }

    def __str__(self) -> str:
        title = f"Best of N: {model_label(self)}, {self.problems} problems, {self.solutions} solutions"
        title += f"\nAggregation: {self.aggregation_label}"
        return join_sections([title, table(*curve_cells(self))], self.notes)


def curve_cells(result: BestOfNResult) -> Cells:
    """Return the table of accuracies: one row per selection method, one column per N."""
    header = ["accuracy by N", *map(str, result.ns)]
    rows = [_curve_row(f"best by {name}", curve) for name, curve in result.best.items()]
    rows += [_curve_row(f"vote weighted by {name}", curve) for name, curve in result.weighted.items()]
    rows += [
        [PREFIX + each.name, *(percent(each.values[str(n)]) for n in result.ns)]
        for each in result.baselines
        if each.name != "majority vote"
    ]
    rows += [_curve_row(f"{PREFIX}majority vote", result.majority), _curve_row("oracle", result.oracle)]
    return header, rows


def _curve_row(name: str, curve: Curve) -> list[str]:
    return [name, *(percent(point.value, point.interval) for point in curve.values())]


def _curve_dict(curve: Curve) -> dict[str, Any]:
    return {str(n): {"value": point.value, "interval": as_list(point.interval)} for n, point in curve.items()}
