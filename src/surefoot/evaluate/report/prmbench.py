"""The report of a PRMBench result.

The rule: as on the leaderboard, every step is one decision; so a solution is as bad as its surest wrong decision.
"""

from __future__ import annotations

import numpy as np

from surefoot.core.result import Scale
from surefoot.display.html import ShownStep, classed, escape, steps_html
from surefoot.evaluate.prmbench import Decisions, PRMBenchResult, has_gap
from surefoot.evaluate.report import figures
from surefoot.evaluate.report.content import (
    KINDS,
    Card,
    Content,
    Entry,
    Panel,
    Table,
    calibration_card,
    calibration_panel,
    card,
    thresholds,
)
from surefoot.evaluate.report.figures import Line
from surefoot.evaluate.rows import TWIN, PRMBenchRow
from surefoot.evaluate.scoring import Scored, judged
from surefoot.evaluate.tables import class_rows, model_of

NAMES = {"missed": "error missed", "alarm": "false alarm", "right": "right", "unscored": "unscored"}
POINTS = 200


def content(result: PRMBenchResult) -> Content:
    """Everything that the page shows."""
    facts = [("threshold", f"{result.threshold:.4g}"), ("solutions", f"{len(result.items):,}")]
    if result.unscored:
        facts.append(("with unscored steps", f"{result.unscored:,}"))
    published = result.published
    return Content(
        title="PRMBench",
        model=model_of(result),
        facts=facts,
        cards=_cards(result),
        panels=[*_figures(result), *calibration_panel(result.reliability), *_tables(result)],
        noun="solutions",
        kinds=KINDS,
        group_name="class",
        entries=[entry(row, scored, result.threshold, result.scale) for row, scored in result.items],
        notes=result.notes,
        source="" if published is None else f"Published: {published.model}, {published.source}.",
    )


def _cards(result: PRMBenchResult) -> list[Card]:
    published = result.published
    theirs = {} if published is None else {"overall": published.overall, "simplicity": published.simplicity}
    if published is not None:
        theirs |= {"soundness": published.soundness, "sensitivity": published.sensitivity}
    overall = result.overall
    cards = [
        card("PRMScore", overall.prm_score, overall.interval, f"{overall.solutions:,} solutions", theirs.get("overall"))
    ]
    cards += [
        card(name, value, None, "mean of its classes", theirs.get(name)) for name, value in result.categories.items()
    ]
    return cards + calibration_card(result.reliability)


def _figures(result: PRMBenchResult) -> list[Panel]:
    decided = [
        (score, at not in row.errors)
        for row, scored in result.items
        if row.classification != TWIN
        for at, score in judged(row.steps, scored.scores)
        if score is not None
    ]
    if not decided:
        return []
    right = np.sort([score for score, is_right in decided if is_right])
    wrong = np.sort([score for score, is_right in decided if not is_right])
    places = thresholds((score for score, _ in decided), POINTS, result.scale, result.threshold)
    met = []
    for place in places:
        above, passed = (len(each) - int(np.searchsorted(each, place, side="right")) for each in (right, wrong))
        met.append(Decisions(above, passed, len(wrong) - passed, len(right) - above))
    drawn = [
        Line("PRMScore", places, [each.prm_score or 0.0 for each in met]),
        Line("F1", places, [each.f1 or 0.0 for each in met]),
        Line("negative F1", places, [each.negative_f1 or 0.0 for each in met]),
    ]
    classes = [(each.name, each.prm_score, each.interval) for each in result.classes if each.prm_score is not None]
    return [
        Panel(
            "Classes",
            "PRMScore by kind of error, with 95% intervals.",
            svg=figures.bars("PRMScore by class", classes, xlabel="PRMScore"),
        ),
        Panel(
            "Threshold",
            "What another threshold would give, over all steps; the twins are left out.",
            svg=figures.lines(
                "PRMScore and its two parts against the threshold",
                drawn,
                xlabel="threshold",
                ylabel="",
                mark=(result.threshold, f"used: {result.threshold:.3g}"),
                xlim=(places[0], places[-1]),
            ),
        ),
        Panel(
            "Scores",
            "How the scores of right and of wrong steps are spread. The less they overlap, the better.",
            svg=figures.histogram(
                "Scores of right and of wrong steps",
                {"right steps": right.tolist(), "wrong steps": wrong.tolist()},
                xlabel="score",
            ),
        ),
    ]


def _tables(result: PRMBenchResult) -> list[Panel]:
    head, rows = class_rows(result)
    return [Panel("All classes", "The class `correct` holds the untouched twins.", table=Table(head, rows), wide=True)]


def _kind(row: PRMBenchRow, scored: Scored, threshold: float) -> tuple[str, float]:
    """The filter of a solution, and how sure its surest wrong decision was."""
    if has_gap(row, scored):
        return "unscored", -1.0
    pairs = [(score, at in row.errors) for at, score in judged(row.steps, scored.scores) if score is not None]
    missed = [score - threshold for score, wrong in pairs if wrong and score > threshold]
    alarms = [threshold - score for score, wrong in pairs if not wrong and score <= threshold]
    if missed:
        return "missed", 1.0 + max(missed)
    if alarms:
        return "alarm", 1.0 + max(alarms)
    return "right", 0.0


def entry(row: PRMBenchRow, scored: Scored, threshold: float, scale: Scale) -> Entry:
    """One solution of the list."""
    kind, badness = _kind(row, scored, threshold)
    steps = [
        ShownStep(
            step,
            score,
            why="no score" if step.strip() else "blank",
            truth="✗ truly wrong" if at in row.errors else "",
            guess="▸ taken for wrong" if score is not None and score <= threshold else "",
        )
        for at, (step, score) in enumerate(zip(row.steps, scored.scores, strict=True))
    ]
    reason = "" if scored.reason is None else f"<p{classed('why')}>{escape(scored.reason)}</p>"
    return Entry(
        html=(
            f"<header><span{classed('badge', f'k-{kind}')}>{escape(NAMES[kind])}</span>"
            f"<span{classed('id')}>{escape(f'{row.classification} · {row.id}')}</span></header>"
            f"<p{classed('problem')}>{escape(row.problem)}</p>{steps_html(steps, classed, scale)}{reason}"
        ),
        kind=kind,
        group=row.classification,
        split="",
        badness=badness,
    )
