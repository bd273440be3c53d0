"""The result of an AgentProcessBench run, as data and as tables.

Invariant: a step without a score equals no label, and a trajectory whose first error is hidden by an unscored step is
not right. Both stay in the totals, and are counted as unscored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from surefoot.core.intervals import Interval, as_list
from surefoot.display.tables import Cells, join_sections, percent, table
from surefoot.evaluate.agentprocessbench.rows import Trajectory
from surefoot.evaluate.baselines import Baseline, baseline_cells
from surefoot.evaluate.header import header_fields, model_label, threshold_label
from surefoot.evaluate.processbench.result import Proportion

if TYPE_CHECKING:
    from surefoot.core.result import Scale
    from surefoot.evaluate.scoring import ThresholdSource

Outcome = Literal["right", "missed", "alarm"]
"""`missed`: no step up to the first error is predicted. `alarm`: a step before it is, or any if there is no error."""


@dataclass(frozen=True)
class TrajectoryJudgement:
    """One trajectory: its scores and predicted labels."""

    row: Trajectory
    scores: tuple[float | None, ...]
    threshold: float
    margin: float = 0.0
    reason: str | None = None
    """Why a step has no score."""

    @property
    def predicted(self) -> tuple[int | None, ...]:
        """One label per step: 1 above the threshold, -1 otherwise, 0 within the margin; None without a score."""
        return tuple(None if score is None else self._label(score) for score in self.scores)

    def _label(self, score: float) -> int:
        if score > self.threshold + self.margin:
            return 1
        return -1 if score <= self.threshold - self.margin else 0

    @property
    def first_error(self) -> int | None:
        """The index of the first labelled step predicted -1, -1 for none; None if an unscored step comes first."""
        for at, (label, predicted) in enumerate(zip(self.row.labels, self.predicted, strict=True)):
            if label is not None and predicted is None:
                return None
            if label is not None and predicted == -1:
                return at
        return -1

    @property
    def outcome(self) -> Outcome | None:
        """How the predicted first error compares with the label; None without a prediction."""
        predicted, label = self.first_error, self.row.first_error
        if predicted is None:
            return None
        if predicted == label:
            return "right"
        return "missed" if label != -1 and (predicted == -1 or predicted > label) else "alarm"

    @property
    def steps(self) -> list[tuple[int, int | None]]:
        """The label and the prediction of every labelled step."""
        pairs = zip(self.row.labels, self.predicted, strict=True)
        return [(label, predicted) for label, predicted in pairs if label is not None]


@dataclass(frozen=True)
class SubsetResult:
    """The result on one subset, or on all trajectories."""

    name: str
    step: Proportion
    """Labelled steps whose label is predicted (`step_micro_acc`). Unscored steps are in the total."""
    first_error: Proportion
    """Trajectories whose first error, or its absence, is predicted (`firsterroracc`). Unscored ones count."""
    with_error: Proportion
    """The same for trajectories with an error."""
    without_error: Proportion
    """The same for trajectories without one."""
    unscored: int
    """Trajectories without a predicted first error."""
    unscored_steps: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "name": self.name,
            "step": self.step.to_dict(),
            "first_error": self.first_error.to_dict(),
            "with_error": self.with_error.to_dict(),
            "without_error": self.without_error.to_dict(),
            "unscored": self.unscored,
            "unscored_steps": self.unscored_steps,
        }


@dataclass(frozen=True)
class AgentProcessBenchResult:
    """The measurements of one run. Accuracies are fractions of 1."""

    model: str
    threshold: float
    threshold_source: ThresholdSource
    margin: float
    overall: SubsetResult
    """Over all trajectories, as in the official code: subsets are pooled."""
    subsets: tuple[SubsetResult, ...]
    labels: dict[int, dict[str, int]]
    """By label: how many of its steps are predicted `1`, `0`, `-1`, or are `unscored`."""
    step_auc: float | None
    """Area under the ROC curve for steps labelled 1 against steps labelled -1."""
    step_auc_interval: Interval | None
    judgements: tuple[TrajectoryJudgement, ...]
    baselines: tuple[Baseline, ...]
    notes: tuple[str, ...] = ()
    calibration: str | None = None
    scale: Scale = "probability"

    @property
    def unscored(self) -> int:
        """The number of trajectories with an unscored step."""
        return sum(any(predicted is None for _, predicted in item.steps) for item in self.judgements)

    @property
    def complete(self) -> bool:
        """Whether every labelled step has a score."""
        return not self.unscored

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, without the individual trajectories."""
        header = header_fields(
            "agentprocessbench",
            self,
            solutions=len(self.judgements),
            threshold=self.threshold,
            threshold_source=self.threshold_source,
        )
        return header | {
            "margin": self.margin,
            "overall": self.overall.to_dict(),
            "subsets": [subset.to_dict() for subset in self.subsets],
            "labels": {str(label): counts for label, counts in self.labels.items()},
            "step_auc": self.step_auc,
            "step_auc_interval": as_list(self.step_auc_interval),
        }

    def __str__(self) -> str:
        threshold = threshold_label(self.threshold, self.threshold_source)
        title = f"AgentProcessBench: {model_label(self)}, threshold {threshold}, margin {self.margin:g}"
        sections = [title, table(*subset_cells(self)), table(*trajectory_baseline_cells(self))]
        return join_sections([*sections, table(*label_cells(self))], self.notes)


def subset_cells(result: AgentProcessBenchResult) -> Cells:
    """Return the table of subsets: one row per subset, then all together."""
    header = ["subset", "step accuracy", "first error", "… with error", "… without", "trajectories", "unscored"]
    groups: Sequence[SubsetResult] = [*result.subsets, *([result.overall] if len(result.subsets) > 1 else [])]
    rows = [
        [
            group.name,
            *(
                percent(part.value, part.interval)
                for part in (group.step, group.first_error, group.with_error, group.without_error)
            ),
            str(group.first_error.total),
            str(group.unscored),
        ]
        for group in groups
    ]
    return header, rows


def trajectory_baseline_cells(result: AgentProcessBenchResult) -> Cells:
    """Return the table of the model and its baselines."""
    metrics = {"step_accuracy": "step accuracy", "first_error_accuracy": "first error"}
    overall = result.overall
    values = [percent(part.value, part.interval) for part in (overall.step, overall.first_error)]
    return baseline_cells(metrics, result.model, values, result.baselines)


def label_cells(result: AgentProcessBenchResult) -> Cells:
    """Return the table of labels against predictions."""
    names = ("1", "0", "-1", "unscored")
    rows = [
        [f"{label:+d}" if label else "0", *(str(counts[name]) for name in names)]
        for label, counts in result.labels.items()
    ]
    return ["label", "predicted +1", "predicted 0", "predicted -1", "unscored"], rows
