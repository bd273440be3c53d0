"""The report of a ProcessBench result.

The rule: the list begins with the worst: the surest mistakes of the model first, what it got right after them, the
narrowest first, and what has no verdict at the end.
"""

from __future__ import annotations

from bisect import bisect_right

from surefoot.core.result import Scale
from surefoot.display.html import ShownStep, classed, escape, steps_html
from surefoot.evaluate.processbench import GroupResult, Judgement, ProcessBenchResult, Share
from surefoot.evaluate.reliability import known_steps
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
from surefoot.evaluate.scoring import judged
from surefoot.evaluate.tables import DASH, model_of, percent

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
    """Everything that the page shows."""
    chosen = "given" if result.tuned_on is None else f"tuned on {result.tuned_on}"
    facts = [("threshold", f"{result.threshold:.4g} ({chosen})"), ("solutions", f"{len(result.judgements):,}")]
    if result.unscored:
        facts.append(("without a verdict", f"{result.unscored:,}"))
    published = result.published
    return Content(
        title="ProcessBench",
        model=model_of(result),
        facts=facts,
        cards=_cards(result),
        panels=[*_sweep(result), *_histogram(result), *calibration_panel(result.reliability), *_tables(result)],
        noun="solutions",
        kinds=KINDS,
        group_name="generator",
        entries=[entry(item, result.scale) for item in result.judgements],
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
    places = thresholds(scores, POINTS, result.scale, result.threshold)
    starts = [stretch.low for stretch in stretches]
    met = [stretches[max(0, bisect_right(starts, place) - 1)] for place in places]
    drawn = [
        Line("F1", places, [each.f1 for each in met]),
        Line("errors found", places, [each.error for each in met]),
        Line("correct accepted", places, [each.correct for each in met]),
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
                xlim=(places[0], places[-1]),
            ),
        )
    ]


def _histogram(result: ProcessBenchResult) -> list[Panel]:
    known = [step for item in result.judgements for step in known_steps(item.row.steps, item.scores, item.row.label)]
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
        cells = [published.cell(split.name) for split in result.splits]
        rows = [[*row, DASH if cell is None else f"{cell[2]:.1f}"] for row, cell in zip(rows, cells, strict=True)]
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
        rows = [_share(name, share) for name, share in result.positions.items()]
        panels.append(
            Panel(
                "Position",
                "By the place of the first error.",
                table=Table(["error at step", "found", "solutions"], rows),
            )
        )
    if result.sneaky_located.total:
        rows = [_share("the very step", result.sneaky_located), _share("any step", result.sneaky_detected)]
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
        f"{group.error.total + group.correct.total + group.unscored:,}",
        f"{group.unscored:,}",
    ]


def _share(name: str, share: Share) -> list[str]:
    return [name, percent(share.value, share.interval), f"{share.total:,}"]


def entry(item: Judgement, scale: Scale) -> Entry:
    """One solution of the list."""
    row, outcome, predicted = item.row, item.outcome, item.predicted
    blank = {at for at, step in enumerate(row.steps) if not step.strip()}
    steps = [
        ShownStep(
            step,
            score,
            why="blank" if at in blank else "no score",
            truth="✗ true first error" if at == row.label else "",
            guess="▸ predicted" if at == predicted else "",
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
    reason = "" if item.reason is None else f"<p{classed('why')}>{escape(item.reason)}</p>"
    return Entry(
        html=(
            f"<header><span{classed('badge', f'k-{kind}')}>{escape(OUTCOMES.get(outcome or '', 'unscored'))}</span>"
            f"<span{classed('id')}>{escape(' · '.join(facts))}</span><span{classed('verdict')}>{escape(verdict)}</span>"
            f"</header><p{classed('problem')}>{escape(row.problem)}</p>{steps_html(steps, classed, scale)}{reason}"
        ),
        kind=kind,
        group=row.generator or "",
        split=row.split,
        badness=_badness(item),
    )


def _badness(item: Judgement) -> float:
    """How sure the model was of its mistake: from 1 up for mistakes, below 1 for what is right, by how narrowly."""
    known = {at: score for at, score in judged(item.row.steps, item.scores) if score is not None}
    outcome, label, predicted = item.outcome, item.row.label, item.predicted
    if outcome is None:
        return -1.0
    if outcome in ("missed", "late"):
        return 1.0 + known.get(label, item.threshold) - item.threshold  # a label may point at a blank step
    if outcome in ("early", "false_alarm"):
        return 1.0 + item.threshold - (known[predicted] if predicted is not None else item.threshold)
    return 1.0 / (1.0 + min(abs(score - item.threshold) for score in known.values()))
