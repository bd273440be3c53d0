"""The result of a PRMBench run, as data and as tables."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from surefoot.core.intervals import Interval, as_list
from surefoot.display.tables import Cells, join_sections, percent, table
from surefoot.evaluate.baselines import Baseline, baseline_cells
from surefoot.evaluate.header import header_fields, model_label, threshold_label
from surefoot.evaluate.published import PublishedPRMBench, citation
from surefoot.evaluate.reliability import Reliability, reliability_sections
from surefoot.evaluate.rows import PRMBenchRow
from surefoot.evaluate.scoring import Scored, nonblank_steps
from surefoot.evaluate.step_decisions import Decisions

if TYPE_CHECKING:
    from surefoot.core.result import Scale
    from surefoot.evaluate.scoring import ThresholdSource

CATEGORIES = {
    "simplicity": ("redundency", "circular"),
    "soundness": ("counterfactual", "step_contradiction", "domain_inconsistency", "confidence"),
    "sensitivity": ("missing_condition", "deception", "multi_solutions"),
}
"""The nine classes by category, as the data set spells them."""


@dataclass(frozen=True)
class ClassResult:
    """The result on one class of errors, or on all of them."""

    name: str
    decisions: Decisions
    interval: Interval | None
    """The confidence interval of the PRMScore."""
    first_errors: tuple[int, int]
    """The number of first errors that were rejected, and the number of first errors."""
    solutions: int
    unscored_steps: int

    @property
    def prm_score(self) -> float | None:
        """See `Decisions.prm_score`."""
        return self.decisions.prm_score

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "name": self.name,
            "prm_score": self.prm_score,
            "interval": as_list(self.interval),
            "f1": self.decisions.f1,
            "negative_f1": self.decisions.negative_f1,
            **asdict(self.decisions),
            "first_error_found": self.first_errors[0],
            "first_errors": self.first_errors[1],
            "solutions": self.solutions,
            "unscored_steps": self.unscored_steps,
        }


@dataclass(frozen=True)
class PRMBenchResult:
    """The measurements of one run. Scores are fractions of 1."""

    model: str
    threshold: float
    threshold_source: ThresholdSource
    overall: ClassResult
    classes: tuple[ClassResult, ...]
    originals: ClassResult | None
    """The unmodified solutions (class `correct`); they are in no total."""
    categories: dict[str, float | None]
    """The mean over a category's classes; None unless each of them has a score."""
    items: tuple[tuple[PRMBenchRow, Scored], ...]
    published: PublishedPRMBench | None
    notes: tuple[str, ...] = ()
    reliability: Reliability | None = None
    """Over the steps up to the first error, originals included; None if the scores are not probabilities."""
    calibration: str | None = None
    """The name of the calibration applied to the scores."""
    scale: Scale = "probability"
    """What the scores are; precomputed scores count as probabilities."""
    baselines: tuple[Baseline, ...] = ()
    """What is reached without reading a solution, over the steps of the overall score."""

    @property
    def unscored(self) -> int:
        """The number of solutions with an unscored step."""
        return sum(has_unscored_step(row, scored) for row, scored in self.items)

    @property
    def unscored_steps(self) -> int:
        """The number of steps without a score."""
        return self.overall.unscored_steps + (self.originals.unscored_steps if self.originals else 0)

    @property
    def complete(self) -> bool:
        """Whether every step has a score."""
        return not self.unscored

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, without the individual solutions."""
        header = header_fields(
            "prmbench",
            self,
            solutions=len(self.items),
            threshold=self.threshold,
            threshold_source=self.threshold_source,
            published=self.published,
            reliability=self.reliability,
        )
        return header | {
            "overall": self.overall.to_dict(),
            "categories": self.categories,
            "classes": [each.to_dict() for each in self.classes],
            "originals": None if self.originals is None else self.originals.to_dict(),
            "unscored_steps": self.unscored_steps,
        }

    def __str__(self) -> str:
        threshold = threshold_label(self.threshold, self.threshold_source)
        sections = [f"PRMBench: {model_label(self)}, threshold {threshold}", table(*class_cells(self))]
        scores = {"overall": self.overall.prm_score, **self.categories}
        rows = [[name, percent(value)] for name, value in scores.items()]
        published = self.published
        if published is None:
            sections.append(table(["category", "PRMScore"], rows))
        else:
            rows = [[*row, f"{published.scores[row[0]]:.1f}"] for row in rows]
            sections.append(table(["category", "PRMScore", "published"], rows))
            sections.append(citation(published))
        if self.baselines:
            sections.append(table(*prmbench_baseline_cells(self)))
        sections += reliability_sections(self.reliability)
        return join_sections(sections, self.notes)


def has_unscored_step(row: PRMBenchRow, scored: Scored) -> bool:
    """Return whether a step of the solution has no score."""
    return any(score is None for _, score in nonblank_steps(row.steps, scored.scores))


def prmbench_baseline_cells(result: PRMBenchResult) -> Cells:
    """Return the table of the model and its baselines, over all classes."""
    metrics = {"prm_score": "PRMScore", "f1": "F1", "negative_f1": "negative F1"}
    overall = result.overall
    values = [
        percent(overall.prm_score, overall.interval),
        percent(overall.decisions.f1),
        percent(overall.decisions.negative_f1),
    ]
    return baseline_cells(metrics, result.model, values, result.baselines)


def class_cells(result: PRMBenchResult) -> Cells:
    """Return the table of classes: one row per class, then the originals and all classes together."""
    header = ["class", "PRMScore", "F1", "negative F1", "first error found", "solutions", "unscored steps"]
    originals = [] if result.originals is None else [result.originals]
    return header, [_class_row(each) for each in (*result.classes, *originals, result.overall)]


def _class_row(each: ClassResult) -> list[str]:
    found, errors = each.first_errors
    return [
        each.name,
        percent(each.prm_score, each.interval),
        percent(each.decisions.f1),
        percent(each.decisions.negative_f1),
        percent(found / errors if errors else None),
        str(each.solutions),
        str(each.unscored_steps),
    ]
