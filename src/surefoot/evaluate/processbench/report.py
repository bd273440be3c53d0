"""The content of a ProcessBench report.

The list starts with the most confident mistakes; correct predictions follow, the narrowest first, then unscored ones.
"""

from __future__ import annotations

from bisect import bisect_right

from surefoot.display.tables import decimal, percent
from surefoot.evaluate.header import model_label, threshold_label
from surefoot.evaluate.processbench.result import (
    GroupResult,
    Judgement,
    Outcome,
    ProcessBenchResult,
    Proportion,
    processbench_baseline_cells,
)
from surefoot.evaluate.published import citation
from surefoot.evaluate.reliability import labelled_scores
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
    definitions,
    step_item,
    thresholds,
)
from surefoot.evaluate.report_page.figures import Line
from surefoot.evaluate.scoring import nonblank_steps

KINDS = (
    Kind("missed", "missed errors", "in an erroneous solution, no step up to the first error was predicted"),
    Kind("alarm", "false alarms", "a correct step was predicted"),
    Kind("right", "correctly judged", "the prediction equals the label"),
    Kind("unscored", "unscored", "there is no prediction"),
)
OUTCOMES: dict[Outcome, tuple[str, str, str]] = {
    "missed": ("missed", "missed error", "no step predicted"),
    "late": ("missed", "missed error", "a later step predicted"),
    "early": ("alarm", "false alarm", "before the first error"),
    "rejected": ("alarm", "false alarm", "in a correct solution"),
    "right": ("right", "correctly judged", ""),
}
"""The kind of each outcome, the name of one such solution, and what tells it from the others of its kind."""
POINTS = 400
NO_ERRONEOUS = "no scored solution has an error"
NO_CORRECT = "no scored solution is correct"
DASH_REASON = "an accuracy needs scored solutions of its kind, with an error or correct, and F1 needs both"


def content(result: ProcessBenchResult) -> Content:
    """Build the content of the page."""
    threshold = threshold_label(result.threshold, result.threshold_source, result.tuned_on)
    facts = [("threshold", threshold), ("solutions", f"{len(result.judgements):,}")]
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
        cards.append(
            card(
                "average F1", result.f1, result.f1_interval, f"{len(result.splits)} splits", theirs, "a split has no F1"
            )
        )
    for split in result.splits:
        cell = None if published is None else published.cell(split.name)
        error, correct, f1 = (None, None, None) if cell is None else cell
        total = f"{split.error.total + split.correct.total:,} solutions"
        cards.append(
            card(f"{split.name} F1" if several else "F1", split.f1, split.f1_interval, total, f1, _no_f1(split))
        )
        if not several:
            many = f"{split.error.total:,} solutions"
            cards.append(card("errors found", split.error.value, split.error.interval, many, error, NO_ERRONEOUS))
            many = f"{split.correct.total:,} solutions"
            accepted = split.correct
            cards.append(
                card("correct solutions accepted", accepted.value, accepted.interval, many, correct, NO_CORRECT)
            )
    return cards + calibration_card(result.reliability)


def _no_f1(group: GroupResult) -> str:
    """Return why a group has no F1, which needs erroneous and correct solutions."""
    missing = [text for part, text in ((group.error, NO_ERRONEOUS), (group.correct, NO_CORRECT)) if not part.total]
    return " and ".join(missing)


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
    peak = "No threshold gives an F1 above 0."
    if best.f1 > 0:
        peak = (
            f"F1 peaks at {percent(best.f1)}, for thresholds from {best.low:.3g}; that peak is optimistic, because it "
            "is found on the same data."
        )
    return [
        Panel(
            "Threshold",
            f"Accuracies at other thresholds, over all solutions. {peak}",
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
            dash=DASH_REASON if published is None else f"{DASH_REASON}; or not published",
        ),
        *baseline_panel(result.baselines, processbench_baseline_cells(result), f"{DASH_REASON}, in every split"),
    ]
    if result.generators:
        rows = [_row(group) for group in result.generators]
        panels.append(
            Panel(
                "Generators",
                "By the model that wrote the solutions.",
                table=Table(["generator", *head[1:6]], rows),
                wide=True,
                dash=DASH_REASON,
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
    panels.append(_outcomes(result))
    return panels


def _outcomes(result: ProcessBenchResult) -> Panel:
    """Build the table of outcomes. Its totals are the numbers on the filters of the list."""
    counts = {name: sum(split.outcomes[name] for split in result.splits) for name in OUTCOMES}
    rows = []
    for kind in KINDS:
        parts = {detail: counts[name] for name, (key, _, detail) in OUTCOMES.items() if key == kind.key}
        total = result.unscored if kind.key == "unscored" else sum(parts.values())
        rows.append([kind.name, f"{total:,}"])
        rows += [[f"… {detail}", f"{number:,}"] for detail, number in parts.items() if detail]
    about = f"Predictions compared with the labels. {definitions(KINDS)}"
    return Panel("Outcomes", about, table=Table(["outcome", "solutions"], rows))


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
            after=row.label >= 0 and at > max(row.label, -1 if predicted is None else predicted),
        )
        for at, (step, score) in enumerate(zip(row.steps, item.scores, strict=True))
    ]
    kind, name, detail = ("unscored", "unscored", "") if outcome is None else OUTCOMES[outcome]
    label = "no error" if row.label == -1 else f"first error at step {row.label + 1}"
    found = "unknown" if predicted is None else "no error" if predicted == -1 else f"step {predicted + 1}"
    facts = [row.split, row.id, *([row.generator] if row.generator else [])]
    verdict = f"label: {label} · predicted: {found}"
    if row.answer_correct is not None:
        verdict += f" · final answer {'correct' if row.answer_correct else 'incorrect'}"
    return Entry(
        kind=kind,
        badge=f"{name}: {detail}" if detail else name,
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
    if outcome in ("early", "rejected"):
        return 1.0 + item.threshold - (scores[predicted] if predicted is not None else item.threshold)
    return 1.0 / (1.0 + min(abs(score - item.threshold) for score in scores.values()))
