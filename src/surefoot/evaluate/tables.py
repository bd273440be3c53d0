"""Results as a person reads them in a terminal.

The rule: percentages with one digit, a dash for what is not defined, intervals in brackets, and every note in full.
Names come from data, and no escape code in them reaches the terminal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from surefoot.core.calibration import Logistic
from surefoot.display.terminal import printable
from surefoot.evaluate.intervals import Interval

if TYPE_CHECKING:
    from surefoot.evaluate.best_of_n import BestOfNResult, Curve
    from surefoot.evaluate.calibrate import CalibrationResult
    from surefoot.evaluate.prmbench import ClassResult, PRMBenchResult
    from surefoot.evaluate.processbench import GroupResult, ProcessBenchResult, Share
    from surefoot.evaluate.reliability import Reliability

DASH = "-"

Cells = tuple[list[str], list[list[str]]]
"""The head of a table, and its rows."""


def percent(value: float | None, interval: Interval | None = None) -> str:
    """`82.4`, or `82.4 [79.0-85.6]`."""
    if value is None:
        return DASH
    text = f"{100 * value:.1f}"
    return text if interval is None else f"{text} [{100 * interval.low:.1f}-{100 * interval.high:.1f}]"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they need to be: the first to the left, the others to the right."""
    everything = [[printable(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[column]) for row in everything) for column in range(len(head))]

    def line(row: Sequence[str]) -> str:
        first, *rest = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        return "  ".join([row[0].ljust(len(first)), *rest]).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([line(everything[0]), rule, *map(line, everything[1:])])


def model_of(result: ProcessBenchResult | PRMBenchResult | BestOfNResult) -> str:
    """The model's name, and what its scores were calibrated with."""
    return result.model if result.calibration is None else f"{result.model} (calibrated: {result.calibration})"


def processbench_tables(result: ProcessBenchResult) -> str:
    """The splits, with the published row beside them, then the breakdowns."""
    published = result.published
    head = ["split", "error", "correct", "F1", "solutions", "unscored"]
    rows = [_group(split) for split in result.splits]
    if len(result.splits) > 1:
        rows.append(["average", "", "", percent(result.f1, result.f1_interval), "", ""])
    if published is not None:
        head.append("published F1")
        cells = [published.cell(split.name) for split in result.splits]
        whole = published.average_of([split.name for split in result.splits])
        theirs = [*(cell and cell[2] for cell in cells), whole]
        beside = [DASH if value is None else f"{value:.1f}" for value in theirs]
        rows = [[*row, value] for row, value in zip(rows, beside, strict=False)]
    chosen = "given" if result.tuned_on is None else f"tuned on {result.tuned_on}"
    parts = [f"ProcessBench: {model_of(result)}, threshold {result.threshold:.4g} ({chosen})", table(head, rows)]
    if result.positions:
        shares = [[name, *_share(share)] for name, share in result.positions.items()]
        parts.append(table(["first error at step", "found", "of"], shares))
    if result.sneaky_located.total:
        shares = [
            ["found at the right step", *_share(result.sneaky_located)],
            ["found at any step", *_share(result.sneaky_detected)],
        ]
        parts.append(table(["right answer, wrong process", "share", "of"], shares))
    if result.generators:
        parts.append(table(["generator", *head[1:6]], [_group(group) for group in result.generators]))
    parts += _reliability(result.reliability)
    if published is not None:
        parts.append(f"Published: {published.model}, {published.source}.")
    return _join(parts, result.notes)


def _reliability(found: Reliability | None) -> list[str]:
    if found is None:
        return []
    title = f"Calibration: ECE {percent(found.ece, found.ece_interval)}, log-loss {found.log_loss:.3f}"
    return [f"{title}, {found.steps} steps up to the first error", table(*reliability_rows(found))]


def reliability_rows(found: Reliability) -> Cells:
    """One row a bin."""
    rows = [
        [
            f"{each.low:.2f}-{each.high:.2f}",
            DASH if each.score is None else f"{each.score:.3f}",
            percent(each.right, each.interval),
            str(each.count),
        ]
        for each in found.bins
    ]
    return ["scores", "mean score", "right", "steps"], rows


def calibration_tables(result: CalibrationResult) -> str:
    """Before and after, and what was fitted."""
    found = result.calibration
    rows = [["before", *_calibrated(result.before)]]
    rows.append([f"after, {result.folds} folds", *(_calibrated(result.after) if result.after else (DASH, DASH))])
    title = f"Calibration of {found.model}: {found.method}, {found.fitted_on.solutions} solutions"
    title += f" of {result.questions} questions, {found.fitted_on.steps} steps"
    if isinstance(found.map, Logistic):
        fitted = f"sigmoid({found.map.slope:.4g} * logit(score) + {found.map.bias:.4g})"
    else:
        fitted = f"{len(found.map.scores)} knots, values {found.map.values[0]:.4g} to {found.map.values[-1]:.4g}"
    return _join([title, table(["", "ECE", "log-loss"], rows), f"Fitted: {fitted}"], result.notes)


def _calibrated(found: Reliability) -> tuple[str, str]:
    return percent(found.ece, found.ece_interval), f"{found.log_loss:.4f}"


def _group(group: GroupResult) -> list[str]:
    return [
        group.name,
        percent(group.error.value, group.error.interval),
        percent(group.correct.value, group.correct.interval),
        percent(group.f1, group.f1_interval),
        str(group.error.total + group.correct.total + group.unscored),
        str(group.unscored),
    ]


def _share(share: Share) -> list[str]:
    return [percent(share.value, share.interval), str(share.total)]


def prmbench_tables(result: PRMBenchResult) -> str:
    """The nine classes, the categories, and the published row beside them."""
    head, rows = class_rows(result)
    published = result.published
    parts = [f"PRMBench: {model_of(result)}, threshold {result.threshold:.4g}", table(head, rows)]
    wholes: list[list[str]] = [["overall", percent(result.overall.prm_score)]]
    wholes += [[name, percent(value)] for name, value in result.categories.items()]
    if published is None:
        parts.append(table(["category", "PRMScore"], wholes))
    else:
        theirs = (published.overall, published.simplicity, published.soundness, published.sensitivity)
        beside = [[*row, f"{value:.1f}"] for row, value in zip(wholes, theirs, strict=True)]
        parts.append(table(["category", "PRMScore", "published"], beside))
        parts.append(f"Published: {published.model}, {published.source}.")
    parts += _reliability(result.reliability)
    return _join(parts, result.notes)


def class_rows(result: PRMBenchResult) -> Cells:
    """One row a class, then all together."""
    rows = [_class(each) for each in (*result.classes, *([result.twins] if result.twins else []), result.overall)]
    return ["class", "PRMScore", "F1", "negative F1", "first error found", "solutions", "unscored steps"], rows


def _class(each: ClassResult) -> list[str]:
    found, errors = each.first_errors
    return [
        each.name,
        percent(each.prm_score, each.interval),
        percent(each.decisions.f1),
        percent(each.decisions.negative_f1),
        percent(found / errors if errors else None),
        str(each.solutions),
        str(each.unscored_steps),
    ]


def best_of_n_tables(result: BestOfNResult) -> str:
    """One row a way to choose, one column an N."""
    title = f"Best of N: {model_of(result)}, {result.problems} problems, {result.solutions} solutions"
    return _join([title, table(*curve_rows(result))], result.notes)


def curve_rows(result: BestOfNResult) -> Cells:
    """One row a way to choose, one column an N."""
    head = ["accuracy by N", *map(str, result.ns)]
    rows = [_curve(f"best by {rule}", curve) for rule, curve in result.best.items()]
    rows += [_curve(f"vote weighted by {rule}", curve) for rule, curve in result.weighted.items()]
    rows += [_curve("majority vote", result.majority), _curve("oracle", result.oracle)]
    return head, rows


def _curve(name: str, curve: Curve) -> list[str]:
    return [name, *(percent(point.value, point.interval) for point in curve.values())]


def _join(parts: Sequence[str], notes: Sequence[str]) -> str:
    # A part may be a table, so its line breaks stay.
    shown = ["\n".join(map(printable, part.split("\n"))) for part in parts]
    return "\n\n".join([*shown, *(["\n".join(f"note: {printable(note)}" for note in notes)] if notes else [])])
