"""Run ProcessBench: score labelled solutions and measure how often the first incorrect step is found.

The prediction for a solution is its first step whose score is not above the threshold, or -1. F1 is the harmonic mean
of the accuracy on erroneous solutions (the exact step must be found) and on correct ones (no step may be predicted);
the average over splits is unweighted. A solution whose prediction is hidden by an unscored step counts as unscored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from surefoot.core.intervals import Bootstrap, Numbers, ratio
from surefoot.core.threshold_sweep import best_threshold, harmonic_mean
from surefoot.errors import InputError, OptionError
from surefoot.evaluate.baselines import processbench_baselines
from surefoot.evaluate.processbench.result import (
    OUTCOMES,
    GroupResult,
    Judgement,
    Outcome,
    ProcessBenchResult,
    Proportion,
    average,
    sweep_cases,
)
from surefoot.evaluate.published import published_processbench
from surefoot.evaluate.reliability import labelled_scores, reliability
from surefoot.evaluate.rows import (
    PROCESSBENCH_SPLITS,
    ProcessBenchRow,
    Rows,
    as_rows,
    official_split,
    processbench_rows,
)
from surefoot.evaluate.scoring import calibration_of, name_of, scale_of, score_labelled, threshold_of
from surefoot.evaluate.step_auc import step_auc, step_auc_interval

if TYPE_CHECKING:
    from surefoot.core.protocols import StepScorer

POSITIONS = (("1", 0, 0), ("2", 1, 1), ("3", 2, 2), ("4", 3, 3), ("5-8", 4, 7), ("9+", 8, None))
"""Groups of first-error positions: the label counted from 1, and the first and last index."""


def processbench(
    scorer: StepScorer | None,
    rows: Rows[ProcessBenchRow],
    *,
    threshold: float | None = None,
    tune_on: str | None = None,
    seed: int = 0,
    draws: int = 1000,
    progress: bool = False,
    name: str | None = None,
    scores: str = "scores",
) -> ProcessBenchResult:
    """Measure how often a scorer finds the first incorrect step.

        result = evaluate.processbench(scorer, evaluate.read_processbench("ProcessBench/"))
        print(result)

    `rows` come from `read_processbench`, or are mappings with the same fields. Scores above `threshold` count as
    correct (default: 0.5; 0 for margins and log-ratios). `tune_on` names a split: the threshold with the highest F1 on
    it is used for all splits. `draws` and `seed` control the bootstrap for the intervals. If `scorer` is None, the step
    scores come from the field `scores` of the rows. `name` replaces the scorer's name, for example to find the
    published results of a local folder.
    """
    bootstrap = Bootstrap(draws, seed)
    read = partial(processbench_rows, scores=scores if scorer is None else None)
    labelled = as_rows(rows, ProcessBenchRow, read)
    check_options(labelled, threshold=threshold, tune_on=tune_on)
    threshold, source = threshold_of(scorer, labelled, threshold)
    scored = score_labelled(scorer, labelled, progress=progress)
    items = [Judgement(row, each.scores, threshold, each.reason) for row, each in zip(labelled, scored, strict=True)]
    notes = []
    if tune_on is not None:
        tuned = best_threshold(sweep_cases(item for item in items if item.row.split == tune_on))
        if tuned is None:
            notes.append(f"No threshold gives an F1 above 0 on {tune_on}; {threshold} was used.")
            tune_on = None
        else:
            items, threshold, source = [replace(item, threshold=tuned) for item in items], tuned, "tuned"
    names = sorted({row.split for row in labelled}, key=_split_order)
    splits, resampled = [], []
    for split in names:
        group, f1_draws = _measure(split, [item for item in items if item.row.split == split], bootstrap)
        splits.append(group)
        resampled.append(f1_draws)
    f1 = average([split.f1 for split in splits])
    labelled_steps = [labelled_scores(item.row.steps, item.scores, item.row.label) for item in items]
    hidden = [item for item in items if item.row.answer_correct and item.row.label != -1]
    return ProcessBenchResult(
        model=name_of(scorer, name),
        threshold=threshold,
        threshold_source=source,
        tuned_on=tune_on,
        splits=tuple(splits),
        f1=f1,
        f1_interval=None if f1 is None else bootstrap.interval(np.mean(resampled, axis=0)),
        generators=tuple(_by_generator(items, bootstrap)),
        positions=_by_position(items, bootstrap),
        hidden_errors_located=_proportion(hidden, lambda item: item.outcome == "right", bootstrap),
        hidden_errors_detected=_proportion(hidden, lambda item: item.predicted != -1, bootstrap),
        judgements=tuple(items),
        published=published_processbench(name_of(scorer, name)),
        notes=(*notes, *_unscored_notes(items)),
        reliability=reliability(labelled_steps, bootstrap=bootstrap) if scale_of(scorer) == "probability" else None,
        calibration=calibration_of(scorer),
        scale=scale_of(scorer),
        step_auc=step_auc(labelled_steps),
        step_auc_interval=step_auc_interval(labelled_steps, bootstrap),
        baselines=processbench_baselines(labelled),
    )


def check_options(
    rows: Sequence[ProcessBenchRow], *, threshold: float | None = None, tune_on: str | None = None
) -> None:
    """Reject contradictory options, and a split to tune on that no row belongs to."""
    if tune_on is None:
        return
    if threshold is not None:
        raise OptionError("Pass either threshold=... or tune_on=..., not both.")
    if tune_on not in {row.split for row in rows}:
        raise InputError(f"The threshold cannot be tuned on {tune_on!r}: no row belongs to that split.")


def _split_order(name: str) -> tuple[int, str]:
    """Sort the four official splits in the order of the paper, others after them by name."""
    split = official_split(name)
    return (len(PROCESSBENCH_SPLITS) if split is None else PROCESSBENCH_SPLITS.index(split), name)


def _measure(name: str, items: Sequence[Judgement], bootstrap: Bootstrap) -> tuple[GroupResult, Numbers]:
    """Return a group's result, and its F1 in every bootstrap draw."""
    outcomes: dict[Outcome, int] = dict.fromkeys(OUTCOMES, 0)
    counts = [0, 0, 0, 0]  # erroneous solutions: found, not found; correct solutions: accepted, rejected
    for item in items:
        if item.outcome is not None:
            outcomes[item.outcome] += 1
            counts[2 * (item.row.label == -1) + (item.outcome != "right")] += 1
    resampled = bootstrap.resampled_counts(name, counts)
    error = ratio(resampled[:, 0], resampled[:, 0] + resampled[:, 1])
    correct = ratio(resampled[:, 2], resampled[:, 2] + resampled[:, 3])
    # F1 is 0 where both accuracies are 0, and undefined where one of them is.
    f1_draws = np.where(error + correct == 0, 0.0, ratio(2 * error * correct, error + correct))
    on_erroneous = _proportion_of(counts[0], counts[0] + counts[1], bootstrap)
    on_correct = _proportion_of(counts[2], counts[2] + counts[3], bootstrap)
    f1 = None
    if on_erroneous.value is not None and on_correct.value is not None:
        f1 = harmonic_mean(on_erroneous.value, on_correct.value)
    group = GroupResult(
        name=name,
        error=on_erroneous,
        correct=on_correct,
        f1=f1,
        f1_interval=None if f1 is None else bootstrap.interval(f1_draws),
        unscored=sum(item.outcome is None for item in items),
        outcomes=outcomes,
    )
    return group, f1_draws


def _by_generator(items: Sequence[Judgement], bootstrap: Bootstrap) -> Iterable[GroupResult]:
    for name in sorted({item.row.generator for item in items if item.row.generator is not None}):
        yield _measure(name, [item for item in items if item.row.generator == name], bootstrap)[0]


def _by_position(items: Sequence[Judgement], bootstrap: Bootstrap) -> dict[str, Proportion]:
    found = {}
    for name, first, last in POSITIONS:
        group = [item for item in items if first <= item.row.label and (last is None or item.row.label <= last)]
        if group:
            found[name] = _proportion(group, lambda item: item.outcome == "right", bootstrap)
    return found


def _proportion(items: Sequence[Judgement], hit: Callable[[Judgement], bool], bootstrap: Bootstrap) -> Proportion:
    predicted = [item for item in items if item.outcome is not None]
    return _proportion_of(sum(map(hit, predicted)), len(predicted), bootstrap)


def _proportion_of(hits: int, total: int, bootstrap: Bootstrap) -> Proportion:
    return Proportion(hits, total, bootstrap.wilson(hits, total))


def _unscored_notes(items: Sequence[Judgement]) -> Iterable[str]:
    missing = [item for item in items if item.outcome is None]
    if missing:
        first = missing[0]
        yield (
            f"{len(missing)} of {len(items)} solutions have no prediction and are in no accuracy. "
            f"The first is {first.row.id} of {first.row.split}: {first.reason}"
        )
