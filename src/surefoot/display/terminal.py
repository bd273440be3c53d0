"""Render a scored solution for a terminal: one line per step with a score bar, and the first error marked.

Invariant: nothing is coloured in a file or a pipe, or if NO_COLOR is set. All external text goes through `printable`.
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import TextIO

from surefoot.core.result import Scale, SolutionScore, StepScore

BAR = 10
GREEN, YELLOW, RED, GREY, BOLD = "32", "33", "31", "90", "1"


def wants_colour(stream: TextIO = sys.stdout) -> bool:
    """Whether to colour output to the stream."""
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def paint(text: str, code: str, colour: bool) -> str:
    """Return the text with a colour code if `colour` is true, else unchanged."""
    return f"\x1b[{code}m{text}\x1b[0m" if colour else text


def printable(text: str) -> str:
    """Return the text on one line, with a dot for every control character that a terminal would interpret."""
    return "".join(char if char.isprintable() else "·" for char in text)


def show(
    result: SolutionScore, *, threshold: float | None = None, colour: bool = False, width: int | None = None
) -> str:
    """Render the whole result. The threshold defaults to that of the scale."""
    threshold = result.natural_threshold if threshold is None else threshold
    width = width or shutil.get_terminal_size((100, 24)).columns
    error = result.first_error(threshold)
    lines = [
        _step_line(number, step, result.scale, wrong=number == error, threshold=threshold, colour=colour, width=width)
        for number, step in enumerate(result.steps)
    ]
    lines.append(_summary(result, threshold, colour))
    lines += [paint(f"note: {printable(text)}", YELLOW, colour) for text in notes_of(result)]
    return "\n".join(lines)


def _step_line(
    number: int, step: StepScore, scale: Scale, *, wrong: bool, threshold: float, colour: bool, width: int
) -> str:
    mark = "✗" if wrong else " "
    if step.score is None:
        gauge, shade = f"{step.status:<{BAR + 6}}", GREY
    elif scale == "log_ratio":
        # An unbounded score has no bar, and no range between incorrect and correct.
        gauge, shade = f"{step.score:>{BAR + 6}.6f}", RED if step.score <= threshold else GREEN
    else:
        share = (step.score + 1) / 2 if scale == "margin" else step.score
        filled = round(min(max(share, 0.0), 1.0) * BAR)
        gauge = f"{'█' * filled}{'·' * (BAR - filled)} {step.score:.3f}"
        shade = RED if step.score <= threshold else YELLOW if step.score <= (1 + threshold) / 2 else GREEN
    if step.spread is not None:
        gauge += f" ±{step.spread:.3f}"
    head = f"{number + 1:>3} {mark} {gauge}  "
    text = printable(" ".join(step.text.split()))
    room = max(20, width - len(head))
    if len(text) > room:
        text = text[: room - 1] + "…"
    return paint(head, shade, colour) + (paint(text, BOLD, colour) if wrong else text)


def _summary(result: SolutionScore, threshold: float, colour: bool) -> str:
    numbers = {
        "mean": result.mean,
        "min": result.min,
        "final": result.final,
    }
    if result.scale == "probability":
        numbers["product"] = result.product
    parts = [f"{name} {'none' if value is None else format(value, '.3f')}" for name, value in numbers.items()]
    error = result.first_error(threshold)
    if error is None:
        parts.append("first error unknown")
    else:
        parts.append("no error found" if error == -1 else f"first error at step {error + 1}")
    return paint("  ".join(parts), BOLD, colour)


def notes_of(result: SolutionScore) -> list[str]:
    """Return the reason, warnings and other notes to show with the numbers."""
    notes = [] if result.reason is None else [result.reason]
    outside = sum(span.end - span.start for span in result.outside)
    if outside:
        notes.append(f"{outside} characters are outside the steps and were not scored.")
    if result.empty_steps:
        notes.append(f"Dropped empty steps: {result.empty_steps}.")
    if result.calibration is not None:
        notes.append(f"The scores are calibrated: {result.calibration}.")
    return notes + list(result.warnings)
