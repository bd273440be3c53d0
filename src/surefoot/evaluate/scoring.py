"""Step scores of rows, from a scorer or precomputed.

Every step of a row gets a score or None, and a missing score has a reason. Blank steps are not sent to the scorer and
are neither correct nor incorrect.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from surefoot.core.result import Scale, threshold_for
from surefoot.errors import InputError

if TYPE_CHECKING:
    from surefoot.core.protocols import StepScorer

PRECOMPUTED = "precomputed scores"
SILENT = ("after_error", "not_judged")
"""Statuses of steps about which a critic says nothing by design."""

ThresholdSource = Literal["default", "given", "tuned"]
"""Where a threshold comes from: the scale's natural one, the caller, or the split with the highest F1."""


class LabelledRow(Protocol):
    """A solution as a list of steps, possibly with precomputed scores."""

    @property
    def problem(self) -> str:
        """The question."""

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps."""

    @property
    def scores(self) -> tuple[float | None, ...] | None:
        """Precomputed scores, one per step."""


@dataclass(frozen=True)
class Scored:
    """The step scores of one row. `reason` says why a score is missing."""

    scores: tuple[float | None, ...]
    reason: str | None = None
    recommended: str | None = None
    """The aggregation by which the makers of the model rank solutions, if that is known."""
    silent: bool = False
    """Whether the scorer leaves out steps by design, as a critic does that stops at the first error."""


def name_of(scorer: StepScorer | None, name: str | None) -> str:
    """Return the model name that the result shows."""
    return name or (PRECOMPUTED if scorer is None else scorer.name)


def calibration_of(scorer: StepScorer | None) -> str | None:
    """Return the name of the scorer's calibration."""
    return None if scorer is None else scorer.calibration


def scale_of(scorer: StepScorer | None) -> Scale:
    """Return what the scores are; precomputed scores count as probabilities."""
    return "probability" if scorer is None else scorer.scale


def are_probabilities(scores: Iterable[float | None]) -> bool:
    """Return whether every score lies in 0..1; missing scores are ignored."""
    return all(score is None or 0.0 <= score <= 1.0 for score in scores)


def threshold_of(
    scorer: StepScorer | None,
    rows: Sequence[LabelledRow],
    threshold: float | None,
) -> tuple[float, ThresholdSource]:
    """Return the given threshold, or the natural one of the scale, and which of the two it is.

    The scale of precomputed scores is not known: any finite threshold is accepted if one of them lies outside 0..1.
    """
    scale = scale_of(scorer)
    if threshold is None:
        return threshold_for(scale), "default"
    if scorer is None and not are_probabilities(score for row in rows for score in row.scores or ()):
        scale = "log_ratio"
    return threshold_for(scale, threshold), "given"


def score_rows(
    scorer: StepScorer | None,
    items: Sequence[tuple[str, str | tuple[str, ...]]],
    precomputed: Sequence[tuple[float | None, ...] | None],
    *,
    progress: bool,
) -> list[Scored]:
    """Score pairs of problem and solution; without a scorer, take the precomputed scores."""
    if scorer is None:
        return [
            _take(number, item, scores) for number, (item, scores) in enumerate(zip(items, precomputed, strict=True))
        ]
    found = []
    for (_, solution), result in zip(items, scorer.score_stream(items, progress=progress), strict=True):
        if isinstance(solution, str):
            scores = list(result.step_scores)
        else:
            scores = [None] * len(solution)
            for step in result.steps:
                scores[step.index] = step.score
        silent = any(step.status in SILENT for step in result.steps)
        found.append(Scored(tuple(scores), result.reason, result.recommended, silent))
    return found


def score_labelled(
    scorer: StepScorer | None,
    rows: Sequence[LabelledRow],
    *,
    progress: bool,
) -> list[Scored]:
    """Score rows of labelled steps."""
    items = [(row.problem, row.steps) for row in rows]
    return score_rows(scorer, items, [row.scores for row in rows], progress=progress)


def _take(number: int, item: tuple[str, str | tuple[str, ...]], scores: tuple[float | None, ...] | None) -> Scored:
    if scores is None:
        raise InputError(
            f"Row {number} (from 0) has no precomputed scores. Pass a scorer, or name the field that holds them."
        )
    solution = item[1]
    blank = () if isinstance(solution, str) else [at for at, step in enumerate(solution) if not step.strip()]
    missing = sum(score is None for at, score in enumerate(scores) if at not in blank)
    return Scored(scores, f"{missing} of {len(scores)} steps have no score." if missing else None)


def nonblank_steps(steps: str | Sequence[str], scores: Sequence[float | None]) -> list[tuple[int, float | None]]:
    """Return the index and score of every nonblank step. If `steps` is a text, the scorer split it: none is blank."""
    if isinstance(steps, str):
        return list(enumerate(scores))
    return [(at, score) for at, (step, score) in enumerate(zip(steps, scores, strict=True)) if step.strip()]
