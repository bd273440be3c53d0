"""PRMBench: which of all steps does a PRM take for wrong?

The rule: every step is one decision, right when its score is above the threshold. F1 speaks of the right steps,
negative F1 of the wrong ones, PRMScore is their mean. The overall score is made of all decisions together, a
category's score is the plain mean of its classes, as on the leaderboard. The untouched twins (class `correct`) are
scored and shown, and are in no total. A step without a score is counted apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot.evaluate.header import envelope
from surefoot.evaluate.intervals import Bootstrap, Interval, Numbers, ratio
from surefoot.evaluate.published import PublishedPRMBench, published_prmbench
from surefoot.evaluate.reliability import Reliability, known_steps, reliability
from surefoot.evaluate.rows import TWIN, PRMBenchRow, Rows, as_rows, prmbench_rows
from surefoot.evaluate.scoring import Scored, calibration_of, judged, name_of, scale_of, score_labelled, threshold_of

if TYPE_CHECKING:
    from surefoot.core.protocols import StepScorer
    from surefoot.core.result import Scale

CATEGORIES = {
    "simplicity": ("redundency", "circular"),
    "soundness": ("counterfactual", "step_contradiction", "domain_inconsistency", "confidence"),
    "sensitivity": ("missing_condition", "deception", "multi_solutions"),
}
"""The nine classes as the files spell them."""


@dataclass(frozen=True)
class Decisions:
    """Decisions over steps. Positive means right."""

    true_positive: int = 0
    """Right steps taken for right."""
    false_positive: int = 0
    """Wrong steps taken for right."""
    true_negative: int = 0
    """Wrong steps taken for wrong."""
    false_negative: int = 0
    """Right steps taken for wrong."""

    @property
    def f1(self) -> float | None:
        """How well right steps are told; None without right steps."""
        if not self.true_positive + self.false_negative:
            return None
        return 2 * self.true_positive / (2 * self.true_positive + self.false_positive + self.false_negative)

    @property
    def negative_f1(self) -> float | None:
        """How well wrong steps are told; None without wrong steps."""
        if not self.true_negative + self.false_positive:
            return None
        return 2 * self.true_negative / (2 * self.true_negative + self.false_positive + self.false_negative)

    @property
    def prm_score(self) -> float | None:
        """The mean of both. Where nothing is wrong (`multi_solutions`), F1 alone, as on the leaderboard."""
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


@dataclass(frozen=True)
class ClassResult:
    """One class of errors, or all together."""

    name: str
    decisions: Decisions
    interval: Interval | None
    """Of the PRMScore."""
    first_errors: tuple[int, int]
    """How many first wrong steps were taken for wrong, and how many there are."""
    solutions: int
    unscored_steps: int

    @property
    def prm_score(self) -> float | None:
        """See `Decisions.prm_score`."""
        return self.decisions.prm_score

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "name": self.name,
            "prm_score": self.prm_score,
            "interval": None if self.interval is None else list(self.interval),
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
    """Everything that was measured. Scores are fractions of 1."""

    model: str
    threshold: float
    overall: ClassResult
    classes: tuple[ClassResult, ...]
    twins: ClassResult | None
    """The untouched solutions, in no total."""
    categories: dict[str, float | None]
    """The plain mean of a category's classes; None unless each of them is there and has a score."""
    items: tuple[tuple[PRMBenchRow, Scored], ...]
    published: PublishedPRMBench | None
    notes: tuple[str, ...] = ()
    reliability: Reliability | None = None
    """Over steps up to the first error, twins included; None when the scores are no probabilities."""
    calibration: str | None = None
    """What the scores were calibrated with."""
    scale: Scale = "probability"
    """What the scores are; ready-made ones are taken for probabilities."""

    @property
    def unscored(self) -> int:
        """Solutions in which a step has no score."""
        return sum(has_gap(row, scored) for row, scored in self.items)

    @property
    def unscored_steps(self) -> int:
        """Steps without a score."""
        return self.overall.unscored_steps + (self.twins.unscored_steps if self.twins else 0)

    def to_dict(self) -> dict[str, Any]:
        """As plain data, without the single solutions."""
        common = envelope(
            "prmbench",
            self.model,
            scale=self.scale,
            calibration=self.calibration,
            threshold=self.threshold,
            solutions=len(self.items),
            unscored=self.unscored,
            published=self.published,
            reliability=self.reliability,
            notes=self.notes,
        )
        return common | {
            "overall": self.overall.to_dict(),
            "categories": self.categories,
            "classes": [each.to_dict() for each in self.classes],
            "twins": None if self.twins is None else self.twins.to_dict(),
            "unscored_steps": self.unscored_steps,
        }

    def __str__(self) -> str:
        from surefoot.evaluate.tables import prmbench_tables

        return prmbench_tables(self)


def prmbench(
    scorer: StepScorer | None,
    rows: Rows[PRMBenchRow],
    *,
    threshold: float | None = None,
    seed: int = 0,
    draws: int = 1000,
    progress: bool = False,
    name: str | None = None,
    scores: str = "scores",
) -> PRMBenchResult:
    """Scores every solution and measures how well right and wrong steps are told apart.

    `rows` come from `read_prmbench`, or are mappings with the same fields. The other options are those of
    `processbench`.
    """
    bootstrap = Bootstrap(draws, seed)
    threshold = threshold_of(scorer, threshold)
    asked = as_rows(rows, PRMBenchRow, partial(prmbench_rows, scores=scores if scorer is None else None))
    found = score_labelled(scorer, asked, progress=progress)
    items = list(zip(asked, found, strict=True))
    modified = [item for item in items if item[0].classification != TWIN]
    twins = [item for item in items if item[0].classification == TWIN]
    known = [name for names in CATEGORIES.values() for name in names]
    present = {row.classification for row, _ in modified}
    classes = [
        _measure(each, [item for item in modified if item[0].classification == each], threshold, bootstrap)
        for each in [*(name for name in known if name in present), *sorted(present.difference(known))]
    ]
    by_name = {each.name: each.prm_score for each in classes}
    return PRMBenchResult(
        model=name_of(scorer, name),
        threshold=threshold,
        overall=_measure("overall", modified, threshold, bootstrap),
        classes=tuple(classes),
        twins=_measure(TWIN, twins, threshold, bootstrap) if twins else None,
        categories={category: _mean([by_name.get(name) for name in names]) for category, names in CATEGORIES.items()},
        items=tuple(items),
        published=published_prmbench(name_of(scorer, name)),
        notes=tuple(_notes(items)),
        reliability=reliability(
            [known_steps(row.steps, each.scores, min(row.errors, default=-1)) for row, each in items],
            bootstrap=bootstrap,
        )
        if scale_of(scorer) == "probability"
        else None,
        calibration=calibration_of(scorer),
        scale=scale_of(scorer),
    )


def has_gap(row: PRMBenchRow, scored: Scored) -> bool:
    """Whether a step has no score."""
    return any(score is None for _, score in judged(row.steps, scored.scores))


def decide(row: PRMBenchRow, scored: Scored, threshold: float) -> Decisions:
    """The decisions over the scored steps of one solution."""
    cells = [0, 0, 0, 0]
    for at, score in judged(row.steps, scored.scores):
        if score is not None:
            right, taken = at not in row.errors, score > threshold
            cells[(0 if taken else 3) if right else (1 if taken else 2)] += 1
    return Decisions(*cells)


def _measure(
    name: str, items: Sequence[tuple[PRMBenchRow, Scored]], threshold: float, bootstrap: Bootstrap
) -> ClassResult:
    each = [decide(row, scored, threshold) for row, scored in items]
    total = sum(each, Decisions())
    cells = np.array([list(asdict(one).values()) for one in each], dtype=np.float64).reshape(-1, 4)
    firsts = [
        score <= threshold
        for row, scored in items
        for at, score in judged(row.steps, scored.scores)
        if at == min(row.errors, default=-1) and score is not None
    ]
    return ClassResult(
        name=name,
        decisions=total,
        interval=None if total.prm_score is None else bootstrap.interval(_prm_scores(bootstrap.sums(name, cells))),
        first_errors=(sum(firsts), len(firsts)),
        solutions=len(items),
        unscored_steps=sum(score is None for row, scored in items for _, score in judged(row.steps, scored.scores)),
    )


def _prm_scores(cells: Numbers) -> Numbers:
    """`Decisions.prm_score` for every draw."""
    positive, wrong_positive, negative, wrong_negative = cells.T
    mistakes = wrong_positive + wrong_negative
    f1 = ratio(2 * positive, 2 * positive + mistakes)
    negative_f1 = ratio(2 * negative, 2 * negative + mistakes)
    f1 = np.where(positive + wrong_negative > 0, f1, np.nan)
    return np.where(negative + wrong_positive > 0, (f1 + negative_f1) / 2, f1)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _notes(items: Sequence[tuple[PRMBenchRow, Scored]]) -> list[str]:
    notes = []
    missing = [(row, scored) for row, scored in items if has_gap(row, scored)]
    if missing:
        row, scored = missing[0]
        notes.append(
            f"{len(missing)} of {len(items)} solutions have steps without a score, which are in no total. "
            f"The first is {row.id}: {scored.reason}"
        )
    blank = [at in row.errors for row, _ in items for at, step in enumerate(row.steps) if not step.strip()]
    if blank:
        notes.append(f"{len(blank)} steps are blank, {sum(blank)} of them marked wrong; they are in no total.")
    if misplaced := sum(row.misplaced for row, _ in items):
        notes.append(f"{misplaced} error indices point past the last step; as in the official code they are left out.")
    if strange := {row.classification for row, _ in items}.difference(
        {TWIN}, *(set(names) for names in CATEGORIES.values())
    ):
        notes.append(f"Not among the nine classes: {', '.join(sorted(strange))}. They are in the overall score.")
    return notes
