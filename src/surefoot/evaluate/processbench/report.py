"""The content of a ProcessBench report.

The list starts with the most confident mistakes; correct predictions follow, the narrowest first, then unscored ones.
"""

from __future__ import annotations

from bisect import bisect_right

from surefoot.display.html import StepItem
from surefoot.display.tables import decimal, percent
from surefoot.evaluate.header import model_label
from surefoot.evaluate.processbench.result import (
    GroupResult,
    Judgement,
    ProcessBenchResult,
    Proportion,
    threshold_label,
)
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
    thresholds,
)
from surefoot.evaluate.report_page.figures import Line
from surefoot.evaluate.scoring import nonblank_steps

KIND_OF = {"missed": "missed", "late": "missed", "false_alarm": "alarm", "early": "alarm", "right": "right"}
OUTCOMES = {
    "right": "right",
    "missed": "error missed",
    "late": "found too late",
    "early": "blamed too early",
    "false_alarm": "false alarm",
}
POINTS = 400


def content(result: ProcessBenchResult) -> Content:
    """Builds the content of the page."""
    facts = [("threshold", threshold_label(result)), ("solutions", f"{len(result.judgements):,}")]
    if result.unscored:
        facts.append(("without a verdict", f"{result.unscored:,}"))
    published = result.published
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
        source="" if published is None else f"Published: {published.model}, {published.source}.",
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
            cards.append(card("correct ones accepted", split.correct.value, split.correct.interval, many, correct))
    return cards + calibration_card(result.reliability)


def _sweep(result: ProcessBenchResult) -> list[Panel]:
    stretches = result.sweep()
    if not stretches:
        return []
    scores = (score for item in result.judgements for score in item.scores if score is not None)
    points = thresholds(scores, POINTS, result.scale, result.threshold)
    starts = [stretch.low for stretch in stretches]
    met = [stretches[max(0, bisect_right(starts, point) - 1)] for point in points]
    drawn = [
        Line("F1", points, [each.f1 for each in met]),
        Line("errors found", points, [each.error for each in met]),
        Line("correct accepted", points, [each.correct for each in met]),
    ]
    best = max(stretches, key=lambda stretch: stretch.f1)
    return [
        Panel(
            "Threshold",
            f"What another threshold would give, over all solutions together. The best F1, {percent(best.f1)}, is "
            f"reached from {best.low:.3g} on; chosen on these very data, it flatters.",
            svg=figures.lines(
                "F1 and both accuracies against the threshold",
                drawn,
                xlabel="threshold",
                ylabel="",
                mark=(result.threshold, f"used: {result.threshold:.3g}"),
                xlim=(points[0], points[-1]),
            ),
        )
    ]


def _histogram(result: ProcessBenchResult) -> list[Panel]:
    known = [
        step for item in result.judgements for step in labelled_scores(item.row.steps, item.scores, item.row.label)
    ]
    if not known:
        return []
    kinds = {
        "right steps": [score for score, right in known if right],
        "first errors": [score for score, right in known if not right],
    }
    return [
        Panel(
            "Scores",
            "How the scores of right steps and of first errors are spread. The less they overlap, the better.",
            svg=figures.histogram("Scores of right steps and of first errors", kinds, xlabel="score"),
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
            "95% intervals: Wilson's for shares, for F1 by bootstrap over solutions.",
            table=Table(head, rows),
            wide=True,
        )
    ]
    if result.generators:
        rows = [_row(group) for group in result.generators]
        panels.append(
            Panel("Generators", "By the model that wrote.", table=Table(["generator", *head[1:6]], rows), wide=True)
        )
    if result.positions:
        rows = [_proportion_row(name, part) for name, part in result.positions.items()]
        panels.append(
            Panel(
                "Position",
                "By the place of the first error.",
                table=Table(["error at step", "found", "solutions"], rows),
            )
        )
    if result.hidden_errors_located.total:
        rows = [
            _proportion_row("the very step", result.hidden_errors_located),
            _proportion_row("any step", result.hidden_errors_detected),
        ]
        table = Table(["error found at", "share", "solutions"], rows)
        panels.append(Panel("Right answer, wrong process", "The errors that the final answer hides.", table=table))
    outcomes: dict[str, int] = {}
    for split in result.splits:
        for name, number in split.outcomes.items():
            outcomes[name] = outcomes.get(name, 0) + number
    rows = [[OUTCOMES[name], f"{number:,}"] for name, number in outcomes.items()]
    panels.append(Panel("Outcomes", "What became of the solutions.", table=Table(["outcome", "solutions"], rows)))
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
    """Builds the entry of one solution."""
    row, outcome, predicted = item.row, item.outcome, item.predicted
    blank = {at for at, step in enumerate(row.steps) if not step.strip()}
    steps = [
        StepItem(
            step,
            score,
            placeholder="blank" if at in blank else "no score",
            label="✗ true first error" if at == row.label else "",
            prediction="▸ predicted" if at == predicted else "",
        )
        for at, (step, score) in enumerate(zip(row.steps, item.scores, strict=True))
    ]
    kind = "unscored" if outcome is None else KIND_OF[outcome]
    truth = "no error" if row.label == -1 else f"first error at step {row.label + 1}"
    found = "unknown" if predicted is None else "no error" if predicted == -1 else f"step {predicted + 1}"
    facts = [row.split, row.id, *([row.generator] if row.generator else [])]
    verdict = f"truth: {truth} · predicted: {found}"
    if row.answer_correct is not None:
        verdict += f" · final answer {'right' if row.answer_correct else 'wrong'}"
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
    """Returns how confident a mistake is: above 1 for mistakes, below 1 for narrow correct predictions."""
    known = {at: score for at, score in nonblank_steps(item.row.steps, item.scores) if score is not None}
    outcome, label, predicted = item.outcome, item.row.label, item.predicted
    if outcome is None:
        return -1.0
    if outcome in ("missed", "late"):
        return 1.0 + known.get(label, item.threshold) - item.threshold  # a label may point at a blank step
    if outcome in ("early", "false_alarm"):
        return 1.0 + item.threshold - (known[predicted] if predicted is not None else item.threshold)
    return 1.0 / (1.0 + min(abs(score - item.threshold) for score in known.values()))
