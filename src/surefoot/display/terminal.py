"""Render a scored solution for a terminal: one line per step, with a bar as long as its score.

Colour is opt-in; `wants_colour` says no for files, pipes and NO_COLOR. Text from data goes through `printable`.
"""

from __future__ import annotations

import os
import shutil
import sys
from textwrap import wrap
from typing import TextIO

from surefoot.display.numbers import short_score
from surefoot.display.summary import notes, summary
from surefoot.display.views import SolutionView, StepView

BAR = 10
GREEN, YELLOW, RED, GREY, BOLD = "32", "33", "31", "90", "1"


def wants_colour(stream: TextIO = sys.stdout) -> bool:
    """Return whether output to the stream should be coloured."""
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def paint(text: str, code: str, colour: bool) -> str:
    """Wrap the text in a colour code if `colour` is true."""
    return f"\x1b[{code}m{text}\x1b[0m" if colour else text


def printable(text: str) -> str:
    """Replace everything that a terminal would act on, such as escape codes and line breaks, with a dot."""
    return "".join(char if char.isprintable() else "·" for char in text)


def show(
    result: SolutionView,
    *,
    threshold: float | None = None,
    colour: bool = False,
    width: int | None = None,
    full: bool = False,
) -> str:
    """Render the whole result. `threshold` defaults to the natural one of the result's scale.

    A step takes one line, which ends in an ellipsis if its text is longer. With `full` the text is wrapped instead.

    print(show(scorer.score(question, solution), colour=wants_colour()))
    """
    threshold = result.natural_threshold if threshold is None else threshold
    width = width or shutil.get_terminal_size((100, 24)).columns
    error = result.first_error(threshold)
    lines = []
    for number, step in enumerate(result.steps):
        wrong = number == error
        lines.append(
            _step_line(
                number, step, result.scale, wrong=wrong, threshold=threshold, colour=colour, width=width, full=full
            )
        )
        if step.members:
            shown = _wrapped(_members(step), width, 6) if full else _fitted(_members(step), width - 6)
            lines.append(paint(" " * 6 + shown, GREY, colour))
    lines.append(paint("  ".join(summary(result, threshold)), BOLD, colour))
    said = (f"note: {printable(note)}" for note in notes(result))
    lines += [paint(_wrapped(note, width, 0) if full else note, YELLOW, colour) for note in said]
    return "\n".join(lines)


def _step_line(
    number: int, step: StepView, scale: str, *, wrong: bool, threshold: float, colour: bool, width: int, full: bool
) -> str:
    mark = "✗" if wrong else " "
    if step.score is None:
        gauge, shade = f"{step.status:<{BAR + 6}}", GREY
    elif scale == "log_ratio":
        # A log-ratio has no bounds: there is no bar to fill, and no yellow zone below 1.
        gauge, shade = f"{step.score:>{BAR + 6}.6f}", RED if step.score <= threshold else GREEN
    else:
        fraction = (step.score + 1) / 2 if scale == "margin" else step.score
        filled = round(min(max(fraction, 0.0), 1.0) * BAR)
        gauge = f"{'█' * filled}{'·' * (BAR - filled)} {short_score(step.score):<5}"
        shade = RED if step.score <= threshold else YELLOW if step.score <= (1 + threshold) / 2 else GREEN
    if step.spread is not None:
        gauge += f" ±{short_score(step.spread)}"
    head = f"{number + 1:>3} {mark} {gauge}  "
    text = printable(" ".join(step.text.split()))
    text = _wrapped(text, width, len(head)) if full else _fitted(text, max(20, width - len(head)))
    return paint(head, shade, colour) + (paint(text, BOLD, colour) if wrong else text)


def _members(step: StepView) -> str:
    """Return what each member of an ensemble gave. The notes give the reasons for missing scores."""
    scores = ("none" if member.score is None else short_score(member.score) for member in step.members)
    return printable(", ".join(f"{member.model} {score}" for member, score in zip(step.members, scores, strict=True)))


def _wrapped(text: str, width: int, indent: int) -> str:
    """Break the text between words, and all lines but the first begin with the indent."""
    lines = wrap(text, max(20, width - indent), break_on_hyphens=False)
    return ("\n" + " " * indent).join(lines)


def _fitted(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
