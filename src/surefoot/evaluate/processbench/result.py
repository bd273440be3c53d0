"""The result of a ProcessBench run, as data and as tables.

Undefined values are None: F1 needs both erroneous and correct solutions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from surefoot.core.intervals import Interval, as_list
from surefoot.core.threshold_sweep import Case, ThresholdRange, sweep
from surefoot.display.tables import Cells, decimal, join_sections, percent, table
from surefoot.errors import InputError
from surefoot.evaluate.baselines import Baseline, baseline_cells
from surefoot.evaluate.header import header_fields, model_label, threshold_label
from surefoot.evaluate.published import PublishedProcessBench, citation
from surefoot.evaluate.reliability import Reliability, reliability_sections
from surefoot.evaluate.rows import ProcessBenchRow
from surefoot.evaluate.scoring import nonblank_steps

if TYPE_CHECKING:
    from surefoot.core.result import Scale
    from surefoot.evaluate.scoring import ThresholdSource

Outcome = Literal["right", "missed", "late", "early", "rejected"]
"""How a prediction compares with the label.

Missed errors: in an erroneous solution, no step was predicted (`missed`), or only one after the first error (`late`).
False alarms: a correct step was predicted, before the first error (`early`) or in a correct solution (`rejected`).
"""
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


@dataclass(frozen=True)
class Judgement:
    """One solution: its scores and the predicted first error."""

    row: ProcessBenchRow
    scores: tuple[float | None, ...]
    threshold: float
    reason: str | None = None
    """Why a step has no score."""

    @property
    def predicted(self) -> int | None:
        """The index of the first step at or below the threshold, -1 for none; None if an unscored step comes first."""
        steps = nonblank_steps(self.row.steps, self.scores)
        for at, score in steps:
            if score is None:
                return None
            if score <= self.threshold:
                return at
        return -1 if steps else None

    @property
    def outcome(self) -> Outcome | None:
        """How the prediction compares with the label; None without a prediction."""
        predicted, label = self.predicted, self.row.label
        if predicted is None:
            return None
        if predicted == label:
            return "right"
        if label == -1:
            return "rejected"
        if predicted == -1:
            return "missed"
        return "early" if predicted < label else "late"


@dataclass(frozen=True)
class Proportion:
    """`hits` out of `total`, with a confidence interval."""

    hits: int
    total: int
    interval: Interval | None = None

    @property
    def value(self) -> float | None:
        """The fraction; None if `total` is 0."""
        return self.hits / self.total if self.total else None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {"value": self.value, "hits": self.hits, "total": self.total, "interval": as_list(self.interval)}


@dataclass(frozen=True)
class GroupResult:
    """The result on one split, or on the solutions of one generator."""

    name: str
    error: Proportion
    """Erroneous solutions whose first error was found."""
    correct: Proportion
    """Correct solutions in which no error was predicted."""
    f1: float | None
    f1_interval: Interval | None
    unscored: int
    """Solutions without a prediction; they are in neither proportion."""
    outcomes: dict[Outcome, int]
    """The number of solutions with each outcome."""

    @property
    def solutions(self) -> int:
        """All solutions of the group, unscored ones included."""
        return self.error.total + self.correct.total + self.unscored

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "name": self.name,
            "error": self.error.to_dict(),
            "correct": self.correct.to_dict(),
            "f1": self.f1,
            "f1_interval": as_list(self.f1_interval),
            "unscored": self.unscored,
            "outcomes": self.outcomes,
        }


@dataclass(frozen=True)
class ProcessBenchResult:
    """The measurements of one run. Accuracies are fractions of 1."""

    model: str
    threshold: float
    threshold_source: ThresholdSource
    tuned_on: str | None
    """The split on which the threshold was chosen; None if it was not chosen on data."""
    splits: tuple[GroupResult, ...]
    f1: float | None
    """The mean of the splits' F1; None unless every split has one."""
    f1_interval: Interval | None
    generators: tuple[GroupResult, ...]
    positions: dict[str, Proportion]
    """Accuracy on erroneous solutions by the position of the first error, counted from 1."""
    hidden_errors_located: Proportion
    """Solutions with a correct answer and an erroneous process: the first error was found."""
    hidden_errors_detected: Proportion
    """The same solutions: an error was predicted at some step."""
    judgements: tuple[Judgement, ...]
    published: PublishedProcessBench | None
    notes: tuple[str, ...] = ()
    reliability: Reliability | None = None
    """Over the steps up to the first error; None if there are none, or if the scores are not probabilities."""
    calibration: str | None = None
    """The name of the calibration applied to the scores."""
    scale: Scale = "probability"
    """What the scores are; precomputed scores count as probabilities."""
    step_auc: float | None = None
    """Area under the ROC curve over the labelled steps; None without correct or without incorrect ones."""
    step_auc_interval: Interval | None = None
    baselines: tuple[Baseline, ...] = ()
    """What is reached without reading a solution."""

    @property
    def unscored(self) -> int:
        """The number of solutions without a prediction."""
        return sum(split.unscored for split in self.splits)

    @property
    def complete(self) -> bool:
        """Whether every solution has a prediction."""
        return not self.unscored

    def split(self, name: str) -> GroupResult:
        """Return the result of one split."""
        for split in self.splits:
            if split.name == name:
                return split
        raise InputError(f"There is no split {name!r}. There are: {', '.join(split.name for split in self.splits)}.")

    def sweep(self, split: str | None = None) -> list[ThresholdRange]:
        """Return the accuracies at every threshold, over one split or over all solutions."""
        return sweep(sweep_cases(item for item in self.judgements if split in (None, item.row.split)))

    def published_f1s(self) -> list[float | None]:
        """Return the published F1 of every split, and the published average over the same splits."""
        if self.published is None:
            return []
        cells = [self.published.cell(split.name) for split in self.splits]
        average = self.published.average_of([split.name for split in self.splits])
        return [*(None if cell is None else cell.f1 for cell in cells), average]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, without the individual solutions."""
        header = header_fields(
            "processbench",
            self,
            solutions=len(self.judgements),
            threshold=self.threshold,
            threshold_source=self.threshold_source,
            published=self.published,
            reliability=self.reliability,
        )
        return header | {
            "tuned_on": self.tuned_on,
            "f1": self.f1,
            "f1_interval": as_list(self.f1_interval),
            "step_auc": self.step_auc,
            "step_auc_interval": as_list(self.step_auc_interval),
            "splits": [split.to_dict() for split in self.splits],
            "generators": [group.to_dict() for group in self.generators],
            "positions": {name: part.to_dict() for name, part in self.positions.items()},
            "hidden_errors": {
                "located": self.hidden_errors_located.to_dict(),
                "detected": self.hidden_errors_detected.to_dict(),
            },
        }

    def __str__(self) -> str:
        header = ["split", "error", "correct", "F1", "solutions", "unscored"]
        rows = [_group_row(split) for split in self.splits]
        if len(self.splits) > 1:
            rows.append(["average", "", "", percent(self.f1, self.f1_interval), "", ""])
        published = self.published
        columns = list(header)
        if published is not None:
            columns.append("published F1")
            rows = [[*row, decimal(value)] for row, value in zip(rows, self.published_f1s(), strict=False)]
        threshold = threshold_label(self.threshold, self.threshold_source, self.tuned_on)
        sections = [f"ProcessBench: {model_label(self)}, threshold {threshold}", table(columns, rows)]
        if self.baselines:
            sections.append(table(*processbench_baseline_cells(self)))
        if self.positions:
            parts = [[name, *_proportion_cells(part)] for name, part in self.positions.items()]
            sections.append(table(["first error at step", "found", "of"], parts))
        if self.hidden_errors_located.total:
            parts = [
                ["found at the exact step", *_proportion_cells(self.hidden_errors_located)],
                ["found at any step", *_proportion_cells(self.hidden_errors_detected)],
            ]
            sections.append(table(["correct answer, flawed process", "share", "of"], parts))
        if self.generators:
            sections.append(table(["generator", *header[1:]], [_group_row(group) for group in self.generators]))
        sections += reliability_sections(self.reliability)
        if published is not None:
            sections.append(citation(published))
        return join_sections(sections, self.notes)


def processbench_baseline_cells(result: ProcessBenchResult) -> Cells:
    """Return the table of the model and its baselines. Accuracies are averages over splits."""
    metrics = {"error": "error", "correct": "correct", "f1": "F1", "step_auc": "step AUC"}
    values = [
        percent(average([split.error.value for split in result.splits])),
        percent(average([split.correct.value for split in result.splits])),
        percent(result.f1, result.f1_interval),
        percent(result.step_auc, result.step_auc_interval),
    ]
    return baseline_cells(metrics, result.model, values, result.baselines)


def average(values: Sequence[float | None]) -> float | None:
    """Return the mean over splits; None unless each of them has a value.

    >>> average([0.2, 0.4]), average([0.2, None])
    (0.30000000000000004, None)
    """
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def sweep_cases(items: Iterable[Judgement]) -> list[Case]:
    """Return the solutions whose steps all have a score, as input of a threshold sweep."""
    cases = []
    for item in items:
        steps = nonblank_steps(item.row.steps, item.scores)
        scored = tuple((at, score) for at, score in steps if score is not None)
        if scored and len(scored) == len(steps):
            cases.append(Case(scored, item.row.label))
    return cases


def _group_row(group: GroupResult) -> list[str]:
    return [
        group.name,
        percent(group.error.value, group.error.interval),
        percent(group.correct.value, group.correct.interval),
        percent(group.f1, group.f1_interval),
        str(group.solutions),
        str(group.unscored),
    ]


def _proportion_cells(part: Proportion) -> list[str]:
    return [percent(part.value, part.interval), str(part.total)]
