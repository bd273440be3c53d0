"""Run PRMBench: score every step and measure how well correct and incorrect steps are told apart.

Every step is one decision: a score above the threshold accepts it. PRMScore is the mean of F1 (correct steps) and
negative F1 (incorrect steps). The overall score pools the decisions of all classes; a category's score is the mean over
its classes, as on the leaderboard. The unmodified originals (class `correct`) are reported and are in no total.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from surefoot.core.intervals import Bootstrap, Numbers, ratio
from surefoot.evaluate.baselines import prmbench_baselines
from surefoot.evaluate.prmbench.result import CATEGORIES, ClassResult, PRMBenchResult, has_unscored_step
from surefoot.evaluate.published import published_prmbench
from surefoot.evaluate.reliability import labelled_scores, reliability
from surefoot.evaluate.rows import ORIGINAL, PRMBenchRow, Rows, as_rows, prmbench_rows
from surefoot.evaluate.scoring import (
    Scored,
    calibration_of,
    name_of,
    nonblank_steps,
    scale_of,
    score_labelled,
    threshold_of,
)
from surefoot.evaluate.step_decisions import Decisions

if TYPE_CHECKING:
    from surefoot.core.protocols import StepScorer


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
    """Measure how well a scorer tells correct and incorrect steps apart.

        print(evaluate.prmbench(scorer, evaluate.read_prmbench("prmbench.jsonl")))

    `rows` come from `read_prmbench`, or are mappings with the same fields. See `processbench` for the other options.
    """
    bootstrap = Bootstrap(draws, seed)
    labelled = as_rows(rows, PRMBenchRow, partial(prmbench_rows, scores=scores if scorer is None else None))
    threshold, source = threshold_of(scorer, labelled, threshold)
    items = list(zip(labelled, score_labelled(scorer, labelled, progress=progress), strict=True))
    modified = [item for item in items if item[0].classification != ORIGINAL]
    originals = [item for item in items if item[0].classification == ORIGINAL]
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
        threshold_source=source,
        overall=_measure("overall", modified, threshold, bootstrap),
        classes=tuple(classes),
        originals=_measure(ORIGINAL, originals, threshold, bootstrap) if originals else None,
        categories={category: _mean([by_name.get(name) for name in names]) for category, names in CATEGORIES.items()},
        items=tuple(items),
        published=published_prmbench(name_of(scorer, name)),
        notes=tuple(_notes(items)),
        reliability=reliability(
            [labelled_scores(row.steps, each.scores, min(row.errors, default=-1)) for row, each in items],
            bootstrap=bootstrap,
        )
        if scale_of(scorer) == "probability"
        else None,
        calibration=calibration_of(scorer),
        scale=scale_of(scorer),
        baselines=prmbench_baselines([row for row, _ in modified]),
    )


def decide(row: PRMBenchRow, scored: Scored, threshold: float) -> Decisions:
    """Return the decisions on the scored steps of one solution."""
    cells = [0, 0, 0, 0]
    for at, score in nonblank_steps(row.steps, scored.scores):
        if score is not None:
            correct, accepted = at not in row.errors, score > threshold
            cells[(0 if accepted else 3) if correct else (1 if accepted else 2)] += 1
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
        for at, score in nonblank_steps(row.steps, scored.scores)
        if at == min(row.errors, default=-1) and score is not None
    ]
    return ClassResult(
        name=name,
        decisions=total,
        interval=None
        if total.prm_score is None
        else bootstrap.interval(_prm_scores(bootstrap.resampled_sums(name, cells))),
        first_errors=(sum(firsts), len(firsts)),
        solutions=len(items),
        unscored_steps=sum(
            score is None for row, scored in items for _, score in nonblank_steps(row.steps, scored.scores)
        ),
    )


def _prm_scores(cells: Numbers) -> Numbers:
    """Return `Decisions.prm_score` for every draw."""
    true_positive, false_positive, true_negative, false_negative = cells.T
    mistakes = false_positive + false_negative
    f1 = ratio(2 * true_positive, 2 * true_positive + mistakes)
    negative_f1 = ratio(2 * true_negative, 2 * true_negative + mistakes)
    f1 = np.where(true_positive + false_negative > 0, f1, np.nan)
    return np.where(true_negative + false_positive > 0, (f1 + negative_f1) / 2, f1)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _notes(items: Sequence[tuple[PRMBenchRow, Scored]]) -> list[str]:
    notes = []
    missing = [(row, scored) for row, scored in items if has_unscored_step(row, scored)]
    if missing:
        row, scored = missing[0]
        notes.append(
            f"{len(missing)} of {len(items)} solutions have unscored steps, which are in no total. "
            f"The first is {row.id}: {scored.reason}"
        )
    blank = [at in row.errors for row, _ in items for at, step in enumerate(row.steps) if not step.strip()]
    if blank:
        notes.append(f"{len(blank)} steps are blank, {sum(blank)} of them labelled incorrect; they are in no total.")
    if out_of_range := sum(row.out_of_range for row, _ in items):
        notes.append(
            f"{out_of_range} error indices point past the last step; as in the official code, they are ignored."
        )
    if unknown := {row.classification for row, _ in items}.difference(
        {ORIGINAL}, *(set(names) for names in CATEGORIES.values())
    ):
        notes.append(f"Not among the nine classes: {', '.join(sorted(unknown))}. They are in the overall score.")
    return notes
