"""Run AgentProcessBench: score the messages of agents and compare them with the labels -1, 0 and 1.

A PRM gives two classes. A score above the threshold predicts 1, any other -1; 0 is predicted only within a margin
around the threshold, which is 0 unless it is given. Unlike in the official code, a missing prediction is never "no
error".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from surefoot.core.intervals import Bootstrap
from surefoot.errors import OptionError
from surefoot.evaluate.agentprocessbench.result import AgentProcessBenchResult, SubsetResult, TrajectoryJudgement
from surefoot.evaluate.agentprocessbench.rows import SUBSETS, Trajectory, trajectories
from surefoot.evaluate.baselines import trajectory_baselines
from surefoot.evaluate.processbench.result import Proportion
from surefoot.evaluate.rows import Rows, as_rows
from surefoot.evaluate.scoring import calibration_of, name_of, scale_of, score_labelled, threshold_of
from surefoot.evaluate.step_auc import step_auc, step_auc_interval

if TYPE_CHECKING:
    from surefoot.core.protocols import StepScorer


def agentprocessbench(
    scorer: StepScorer | None,
    rows: Rows[Trajectory],
    *,
    threshold: float | None = None,
    margin: float = 0.0,
    seed: int = 0,
    draws: int = 1000,
    progress: bool = False,
    name: str | None = None,
    scores: str = "scores",
) -> AgentProcessBenchResult:
    """Measure how well a scorer labels the messages of tool-using agents.

        print(evaluate.agentprocessbench(scorer, evaluate.read_agentprocessbench("AgentProcessBench/")))

    `rows` come from `read_agentprocessbench`, or are mappings with the same fields. Scores above `threshold + margin`
    predict the label 1, scores at or below `threshold - margin` the label -1, and scores between them 0. With the
    default margin 0, the label 0 is never predicted. See `processbench` for the other options.
    """
    bootstrap = Bootstrap(draws, seed)
    check_options((), threshold=threshold, margin=margin)
    labelled = as_rows(rows, Trajectory, partial(trajectories, scores=scores if scorer is None else None))
    threshold, source = threshold_of(scorer, labelled, threshold)
    scored = score_labelled(scorer, labelled, progress=progress)
    items = [
        TrajectoryJudgement(row, each.scores, threshold, margin, each.reason)
        for row, each in zip(labelled, scored, strict=True)
    ]
    names = sorted({row.subset for row in labelled}, key=_subset_order)
    decided = [
        [
            (score, label == 1)
            for label, score in zip(item.row.labels, item.scores, strict=True)
            if label and score is not None
        ]
        for item in items
    ]
    return AgentProcessBenchResult(
        model=name_of(scorer, name),
        threshold=threshold,
        threshold_source=source,
        margin=margin,
        overall=_measure("all", items, bootstrap),
        subsets=tuple(_measure(each, [item for item in items if item.row.subset == each], bootstrap) for each in names),
        labels=_by_label(items),
        step_auc=step_auc(decided),
        step_auc_interval=step_auc_interval(decided, bootstrap),
        judgements=tuple(items),
        baselines=trajectory_baselines([row.labels for row in labelled]),
        notes=tuple(_notes(items, margin)),
        calibration=calibration_of(scorer),
        scale=scale_of(scorer),
    )


def check_options(rows: Sequence[Trajectory], *, threshold: float | None = None, margin: float = 0.0) -> None:
    """Reject a margin that no score can be outside of. `rows` and `threshold` are checked with the scores."""
    if not (math.isfinite(margin) and margin >= 0.0):
        raise OptionError(f"margin={margin} is invalid. Pass 0 or more.")


def _subset_order(name: str) -> tuple[int, str]:
    return (SUBSETS.index(name) if name in SUBSETS else len(SUBSETS), name)


def _measure(name: str, items: Sequence[TrajectoryJudgement], bootstrap: Bootstrap) -> SubsetResult:
    hits = np.array([sum(label == predicted for label, predicted in item.steps) for item in items], dtype=np.float64)
    totals = np.array([len(item.steps) for item in items], dtype=np.float64)
    interval = bootstrap.clustered_wilson(hits, totals)

    def located(members: Sequence[TrajectoryJudgement]) -> Proportion:
        right = sum(item.outcome == "right" for item in members)
        return Proportion(right, len(members), bootstrap.wilson(right, len(members)))

    return SubsetResult(
        name=name,
        step=Proportion(int(hits.sum()), int(totals.sum()), interval),
        first_error=located(items),
        with_error=located([item for item in items if item.row.first_error != -1]),
        without_error=located([item for item in items if item.row.first_error == -1]),
        unscored=sum(item.first_error is None for item in items),
        unscored_steps=sum(predicted is None for item in items for _, predicted in item.steps),
    )


def _by_label(items: Sequence[TrajectoryJudgement]) -> dict[int, dict[str, int]]:
    names = {1: "1", 0: "0", -1: "-1", None: "unscored"}
    found = {label: dict.fromkeys(names.values(), 0) for label in (1, 0, -1)}
    for item in items:
        for label, predicted in item.steps:
            found[label][names[predicted]] += 1
    return found


def _notes(items: Sequence[TrajectoryJudgement], margin: float) -> Iterable[str]:
    steps = sum(predicted is None for item in items for _, predicted in item.steps)
    if steps:
        hidden = sum(item.first_error is None for item in items)
        first = next(item for item in items if any(predicted is None for _, predicted in item.steps))
        yield (
            f"{steps} steps have no score and count as wrong. They hide the first error of {hidden} of {len(items)} "
            f"trajectories, which count as wrong too. The first is {first.row.id}: {first.reason}"
        )
    if not margin:
        neutral = sum(label == 0 for item in items for label, _ in item.steps)
        if neutral:
            yield (
                f"{neutral} steps have the label 0, which two classes cannot predict: they count as wrong. "
                "A margin above 0 predicts it."
            )
