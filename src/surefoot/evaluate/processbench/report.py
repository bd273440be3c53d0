"""The content of a ProcessBench report.

The list starts with the most confident mistakes; correct predictions follow, the narrowest first, then unscored ones.
"""

from __future__ import annotations

from bisect import bisect_right

from surefoot.display.tables import decimal, percent
from surefoot.evaluate.header import model_label
from surefoot.evaluate.processbench.result import (
    GroupResult,
    Judgement,
    ProcessBenchResult,
    Proportion,
    threshold_label,
)
from surefoot.evaluate.published import citation
from surefoot.evaluate.reliability import labelled_scores
from surefoot.evaluate.report_page import figures
from surefoot.evaluate.report_page.content import (
    KINDS,
    Card,
    Content,
    Entry,
    Panel,
    Section,
    Table,
    calibration_card,
    calibration_panel,
    card,
    step_item,
    thresholds,
)
from surefoot.evaluate.report_page.figures import Line
from surefoot.evaluate.scoring import nonblank_steps

KIND_OF = {"missed": "missed", "late": "missed", "false_alarm": "alarm", "early": "alarm", "right": "right"}
OUTCOMES = {
    "right": "correctly judged",
    "missed": "error missed",
    "late": "predicted too late",
    "early": "predicted too early",
    "false_alarm": "false alarm",
}
POINTS = 400


def content(result: ProcessBenchResult) -> Content:
    """Build the content of the page."""
    facts = [("threshold", threshold_label(result)), ("solutions", f"{len(result.judgements):,}")]
    if result.unscored:
        facts.append(("without a prediction", f"{result.unscored:,}"))
    return Content(
        title="ProcessBench",
        model=model_label(result),
        facts=facts,
        cards=_cards(result),
        panels=[*_sweep(result), *_histogram(result), *calibration_panel(result.reliability), *_tables(result)],
        noun="solutions",
        kinds=KINDS,
        group_name="generator",
        entries=[entry(item) for item in result.judgements],
        scale=result.scale,
        notes=result.notes,
        source=citation(result.published),
    )


def _cards(result: ProcessBenchResult) -> list[Card]:
    published = result.published
    cards = []
    several = len(result.splits) > 1
    if several:
        theirs = None if published is None else published.average_of([split.name for split in result.splits])
        cards.append(card("average F1", result.f1, result.f1_interval, f"{len(result.splits)} splits", theirs))
    for split in result.splits:
        cell = None if published is None else published.cell(split.name)
        error, correct, f1 = (None, None, None) if cell is None else cell
        total = f"{split.error.total + split.correct.total:,} solutions"
        cards.append(card(f"{split.name} F1" if several else "F1", split.f1, split.f1_interval, total, f1))
        if not several:
            many = f"{split.error.total:,} solutions"
            cards.append(card("errors found", split.error.value, split.error.interval, many, error))
            many = f"{split.correct.total:,} solutions"
            cards.append(card("correct solutions accepted", split.correct.value, split.correct.interval, many, correct))
    return cards + calibration_card(result.reliability)


def _sweep(result: ProcessBenchResult) -> list[Panel]:
    ranges = result.sweep()
    if not ranges:
        return []
    scores = (score for item in result.judgements for score in item.scores if score is not None)
    points = thresholds(scores, POINTS, result.scale, result.threshold)
    starts = [each.low for each in ranges]
    at_points = [ranges[max(0, bisect_right(starts, point) - 1)] for point in points]
    drawn = [
        Line("F1", points, [each.f1 for each in at_points]),
        Line("errors found", points, [each.error for each in at_points]),
        Line("correct accepted", points, [each.correct for each in at_points]),
    ]
    best = max(ranges, key=lambda each: each.f1)
    return [
        Panel(
            "Threshold",
            f"Accuracies at other thresholds, over all solutions. F1 peaks at {percent(best.f1)}, for thresholds from "
            f"{best.low:.3g}; that peak is optimistic, because it is found on the same data.",
            svg=figures.threshold_curves("F1 and both accuracies against the threshold", drawn, used=result.threshold),
        )
    ]


def _histogram(result: ProcessBenchResult) -> list[Panel]:
    steps = [
        step for item in result.judgements for step in labelled_scores(item.row.steps, item.scores, item.row.label)
    ]
    if not steps:
        return []
    kinds = {
        "correct steps": [score for score, correct in steps if correct],
        "first errors": [score for score, correct in steps if not correct],
    }
    return [
        Panel(
            "Scores",
            "Distribution of the scores of correct steps and of first errors. Less overlap is better.",
            svg=figures.histogram("Scores of correct steps and of first errors", kinds, xlabel="score"),
        )
    ]


def _tables(result: ProcessBenchResult) -> list[Panel]:
    published = result.published
    head = ["split", "F1", "errors found", "correct accepted", "solutions", "unscored"]
    rows = [_row(split) for split in result.splits]
    if published is not None:
        head.append("published F1")
        rows = [[*row, decimal(value)] for row, value in zip(rows, result.published_f1s(), strict=False)]
    panels = [
        Panel(
            "Splits",
            "95% intervals: Wilson for accuracies, bootstrap over solutions for F1.",
            table=Table(head, rows),
            wide=True,
        )
    ]
    if result.generators:
        rows = [_row(group) for group in result.generators]
        panels.append(
            Panel(
                "Generators",
                "By the model that wrote the solutions.",
                table=Table(["generator", *head[1:6]], rows),
                wide=True,
            )
        )
    if result.positions:
        rows = [_proportion_row(name, part) for name, part in result.positions.items()]
        panels.append(
            Panel(
                "Position",
                "By the position of the first error.",
                table=Table(["error at step", "found", "solutions"], rows),
            )
        )
    if result.hidden_errors_located.total:
        rows = [
            _proportion_row("the exact step", result.hidden_errors_located),
            _proportion_row("any step", result.hidden_errors_detected),
        ]
        table = Table(["error found at", "share", "solutions"], rows)
        panels.append(
            Panel("Correct answer, flawed process", "Errors that the correct final answer hides.", table=table)
        )
    outcomes: dict[str, int] = {}
    for split in result.splits:
        for name, number in split.outcomes.items():
            outcomes[name] = outcomes.get(name, 0) + number
    rows = [[OUTCOMES[name], f"{number:,}"] for name, number in outcomes.items()]
    panels.append(
        Panel("Outcomes", "Predictions compared with the labels.", table=Table(["outcome", "solutions"], rows))
    )
    return panels


def _row(group: GroupResult) -> list[str]:
    return [
        group.name,
        percent(group.f1, group.f1_interval),
        percent(group.error.value, group.error.interval),
        percent(group.correct.value, group.correct.interval),
        f"{group.solutions:,}",
        f"{group.unscored:,}",
    ]


def _proportion_row(name: str, part: Proportion) -> list[str]:
    return [name, percent(part.value, part.interval), f"{part.total:,}"]


def entry(item: Judgement) -> Entry:
    """Build the entry of one solution."""
    row, outcome, predicted = item.row, item.outcome, item.predicted
    steps = [
        step_item(
            step,
            score,
            label="✗ true first error" if at == row.label else "",
            prediction="▸ predicted" if at == predicted else "",
        )
        for at, (step, score) in enumerate(zip(row.steps, item.scores, strict=True))
    ]
    kind = "unscored" if outcome is None else KIND_OF[outcome]
    label = "no error" if row.label == -1 else f"first error at step {row.label + 1}"
    found = "unknown" if predicted is None else "no error" if predicted == -1 else f"step {predicted + 1}"
    facts = [row.split, row.id, *([row.generator] if row.generator else [])]
    verdict = f"label: {label} · predicted: {found}"
    if row.answer_correct is not None:
        verdict += f" · final answer {'correct' if row.answer_correct else 'incorrect'}"
    return Entry(
        kind=kind,
        badge=OUTCOMES.get(outcome or "", "unscored"),
        facts=" · ".join(facts),
        verdict=verdict,
        problem=row.problem,
        sections=[Section(steps, item.reason)],
        severity=_severity(item),
        group=row.generator or "",
        split=row.split,
    )


def _severity(item: Judgement) -> float:
    """Return how confident a mistake is: above 1 for mistakes, below 1 for narrow correct predictions."""
    scores = {at: score for at, score in nonblank_steps(item.row.steps, item.scores) if score is not None}
    outcome, label, predicted = item.outcome, item.row.label, item.predicted
    if outcome is None:
        return -1.0
    if outcome in ("missed", "late"):
        return 1.0 + scores.get(label, item.threshold) - item.threshold  # a label may point at a blank step
    if outcome in ("early", "false_alarm"):
        return 1.0 + item.threshold - (scores[predicted] if predicted is not None else item.threshold)
    return 1.0 / (1.0 + min(abs(score - item.threshold) for score in scores.values()))
