"""The step scores of rows, from a model or ready-made.

The rule: one score or None for every step of the row as it was given, and a reason where one is missing. A blank step
says nothing, is not shown to the model, and is neither right nor wrong.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from surefoot.core.result import NATURAL_THRESHOLDS, Scale
from surefoot.errors import InputError, OptionError

if TYPE_CHECKING:
    from surefoot.core.protocols import StepScorer
    from surefoot.evaluate.rows import PRMBenchRow, ProcessBenchRow

READY = "ready-made scores"


@dataclass(frozen=True)
class Scored:
    """The scores of one row."""

    scores: tuple[float | None, ...]
    reason: str | None = None


def name_of(scorer: StepScorer | None, name: str | None) -> str:
    """What the result calls the model."""
    return name or (READY if scorer is None else scorer.name)


def calibration_of(scorer: StepScorer | None) -> str | None:
    """What the result says of the scores' calibration."""
    return None if scorer is None else scorer.calibration


def scale_of(scorer: StepScorer | None) -> Scale:
    """What the scores are; ready-made ones are taken for probabilities."""
    return "probability" if scorer is None else scorer.scale


def threshold_of(scorer: StepScorer | None, threshold: float | None) -> float:
    """The threshold given, or the natural one of the scale."""
    if threshold is not None and not math.isfinite(threshold):
        raise OptionError(f"threshold={threshold} is no number that a score could be compared with. Give a finite one.")
    return NATURAL_THRESHOLDS[scale_of(scorer)] if threshold is None else threshold


def score_rows(
    scorer: StepScorer | None,
    items: Sequence[tuple[str, str | tuple[str, ...]]],
    ready: Sequence[tuple[float | None, ...] | None],
    *,
    progress: bool,
) -> list[Scored]:
    """Scores pairs of problem and solution; without a scorer, takes the ready-made scores."""
    if scorer is None:
        return [_ready(number, item, scores) for number, (item, scores) in enumerate(zip(items, ready, strict=True))]
    found = []
    for (_, solution), result in zip(items, scorer.score_stream(items, progress=progress), strict=True):
        if isinstance(solution, str):
            scores = list(result.step_scores)
        else:
            scores = [None] * len(solution)
            for step in result.steps:
                scores[step.index] = step.score
        found.append(Scored(tuple(scores), result.reason))
    return found


def score_labelled(
    scorer: StepScorer | None,
    rows: Sequence[ProcessBenchRow] | Sequence[PRMBenchRow],
    *,
    progress: bool,
) -> list[Scored]:
    """The same for rows of labelled steps."""
    items = [(row.problem, row.steps) for row in rows]
    return score_rows(scorer, items, [row.scores for row in rows], progress=progress)


def _ready(number: int, item: tuple[str, str | tuple[str, ...]], scores: tuple[float | None, ...] | None) -> Scored:
    if scores is None:
        raise InputError(f"Row {number} (from 0) has no ready-made scores. Give a model, or name their field.")
    solution = item[1]
    blank = () if isinstance(solution, str) else [at for at, step in enumerate(solution) if not step.strip()]
    missing = sum(score is None for at, score in enumerate(scores) if at not in blank)
    return Scored(scores, f"{missing} of {len(scores)} steps have no score." if missing else None)


def judged(steps: str | Sequence[str], scores: Sequence[float | None]) -> list[tuple[int, float | None]]:
    """The index and score of every step that is not blank. A text's steps were found by the scorer: none is."""
    if isinstance(steps, str):
        return list(enumerate(scores))
    return [(at, score) for at, (step, score) in enumerate(zip(steps, scores, strict=True)) if step.strip()]
