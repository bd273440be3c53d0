"""The content of a PRMBench report.

The list starts with the solutions whose most confident wrong decision is the most confident.
"""

from __future__ import annotations

import numpy as np

from surefoot.evaluate.header import model_label, threshold_label
from surefoot.evaluate.prmbench.result import PRMBenchResult, class_cells, has_unscored_step, prmbench_baseline_cells
from surefoot.evaluate.published import citation
from surefoot.evaluate.report_page import figures
from surefoot.evaluate.report_page.content import (
    Card,
    Content,
    Entry,
    Kind,
    Panel,
    Section,
    Table,
    baseline_panel,
    calibration_card,
    calibration_panel,
    card,
    step_item,
    thresholds,
)
from surefoot.evaluate.report_page.figures import Line
from surefoot.evaluate.rows import ORIGINAL, PRMBenchRow
from surefoot.evaluate.scoring import Scored, nonblank_steps
from surefoot.evaluate.step_decisions import Decisions

KINDS = (
    Kind("missed", "missed errors", "an incorrect step was accepted"),
    Kind("alarm", "false alarms", "a correct step was rejected, and no error was missed"),
    Kind("right", "correctly judged", "every step was"),
    Kind("unscored", "unscored", "a step has no score"),
)
NAMES = {"missed": "missed error", "alarm": "false alarm", "right": "correctly judged", "unscored": "unscored"}
POINTS = 200


def content(result: PRMBenchResult) -> Content:
    """Build the content of the page."""
    threshold = threshold_label(result.threshold, result.threshold_source)
    facts = [("threshold", threshold), ("solutions", f"{len(result.items):,}")]
    if result.unscored:
        facts.append(("with unscored steps", f"{result.unscored:,}"))
    return Content(
        title="PRMBench",
        model=model_label(result),
        facts=facts,
        cards=_cards(result),
        panels=[*_figures(result), *calibration_panel(result.reliability), *_tables(result)],
        noun="solutions",
        kinds=KINDS,
        group_name="class",
        entries=[entry(row, scored, result.threshold) for row, scored in result.items],
        scale=result.scale,
        notes=result.notes,
        source=citation(result.published),
    )


def _cards(result: PRMBenchResult) -> list[Card]:
    published = result.published
    theirs = {} if published is None else published.scores
    overall = result.overall
    cards = [
        card(
            "PRMScore",
            overall.prm_score,
            overall.interval,
            f"{overall.solutions:,} solutions",
            theirs.get("overall"),
            "no scored step is correct",
        )
    ]
    cards += [
        card(name, value, None, "mean over classes", theirs.get(name), "a class has no PRMScore")
        for name, value in result.categories.items()
    ]
    return cards + calibration_card(result.reliability)


def _figures(result: PRMBenchResult) -> list[Panel]:
    decided = [
        (score, at not in row.errors)
        for row, scored in result.items
        if row.classification != ORIGINAL
        for at, score in nonblank_steps(row.steps, scored.scores)
        if score is not None
    ]
    if not decided:
        return []
    correct = np.sort([score for score, is_correct in decided if is_correct])
    incorrect = np.sort([score for score, is_correct in decided if not is_correct])
    points = thresholds((score for score, _ in decided), POINTS, result.scale, result.threshold)
    at_points = []
    for point in points:
        accepted, passed = (
            len(each) - int(np.searchsorted(each, point, side="right")) for each in (correct, incorrect)
        )
        at_points.append(Decisions(accepted, passed, len(incorrect) - passed, len(correct) - accepted))
    drawn = [
        Line("PRMScore", points, [each.prm_score or 0.0 for each in at_points]),
        Line("F1", points, [each.f1 or 0.0 for each in at_points]),
        Line("negative F1", points, [each.negative_f1 or 0.0 for each in at_points]),
    ]
    classes = [(each.name, each.prm_score, each.interval) for each in result.classes if each.prm_score is not None]
    return [
        Panel(
            "Classes",
            "PRMScore by class of error, with 95% intervals.",
            svg=figures.bars("PRMScore by class", classes, xlabel="PRMScore"),
        ),
        Panel(
            "Threshold",
            "PRMScore at other thresholds, over all steps except those of the originals.",
            svg=figures.threshold_curves(
                "PRMScore and its two parts against the threshold", drawn, used=result.threshold
            ),
        ),
        Panel(
            "Scores",
            "Distribution of the scores of correct and incorrect steps. Less overlap is better.",
            svg=figures.histogram(
                "Scores of correct and incorrect steps",
                {"correct steps": correct.tolist(), "incorrect steps": incorrect.tolist()},
                xlabel="score",
            ),
        ),
    ]


def _tables(result: PRMBenchResult) -> list[Panel]:
    table = Table(*class_cells(result))
    return [
        Panel("All classes", "The class `correct` holds the unmodified originals.", table=table, wide=True),
        *baseline_panel(result.baselines, prmbench_baseline_cells(result)),
    ]


def _kind(row: PRMBenchRow, scored: Scored, threshold: float) -> tuple[str, float]:
    """Return the filter of a solution, and how confident its most confident wrong decision is."""
    if has_unscored_step(row, scored):
        return "unscored", -1.0
    pairs = [(score, at in row.errors) for at, score in nonblank_steps(row.steps, scored.scores) if score is not None]
    missed = [score - threshold for score, wrong in pairs if wrong and score > threshold]
    alarms = [threshold - score for score, wrong in pairs if not wrong and score <= threshold]
    if missed:
        return "missed", 1.0 + max(missed)
    if alarms:
        return "alarm", 1.0 + max(alarms)
    return "right", 0.0


def entry(row: PRMBenchRow, scored: Scored, threshold: float) -> Entry:
    """Build the entry of one solution."""
    kind, severity = _kind(row, scored, threshold)
    steps = [
        step_item(
            step,
            score,
            label="✗ incorrect (label)" if at in row.errors else "",
            prediction="▸ rejected" if score is not None and score <= threshold else "",
        )
        for at, (step, score) in enumerate(zip(row.steps, scored.scores, strict=True))
    ]
    return Entry(
        kind=kind,
        badge=NAMES[kind],
        facts=f"{row.classification} · {row.id}",
        problem=row.problem,
        sections=[Section(steps, scored.reason)],
        severity=severity,
        group=row.classification,
    )
