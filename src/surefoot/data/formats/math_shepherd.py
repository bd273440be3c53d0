"""Math-Shepherd: `input` has the marker `ки` after each step, `label` has `+` or `-` in its places; `task`.

The question ends where the first step begins, with `Step 1:`.

Verified against the card of peiyi9979/Math-Shepherd and TRL's reader of that data set, examples/datasets/
math_shepherd.py in huggingface/trl. As there, a question without `Step 1:` after it ends at its only question mark,
and a marker inside the question is an annotation error, whose label is dropped. TRL knows the rows with such errors by
their first words; here it is any row in which `Step 1:` comes after the first marker.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from surefoot.data.formats.base import (
    Format,
    Row,
    fully_labelled,
    hard_labels,
    optional_text,
    split_question,
    stripped,
    text_of,
    without_nulls,
)
from surefoot.data.step_labels import AnnotatedSolution, Loss, Losses
from surefoot.errors import InputError

MARKER = "ки"
LABELS = {"+": 1.0, "-": 0.0}

IN_QUESTION = Loss("labels inside the question were dropped", "labels")
MARK_GUESSED = Loss("questions without `Step 1:` were ended at their question mark", "solutions")
PREFIXED = Loss("`Step N:` was added to steps", "steps")
MARKER_IN_TEXT = Loss(f"solutions were dropped because a text contains `{MARKER}` or `Step 1:`", "solutions")


def _parse(row: Row) -> AnnotatedSolution:
    *parts, _ = text_of(row, "input").split(MARKER)
    if not parts:
        raise InputError(f"`input` has no marker `{MARKER}`.")
    targets = _targets(parts, text_of(row, "label"))
    # The first part that contains the beginning of step 1; it is another than 0 if the question has a marker.
    first = next((at for at in range(len(parts)) if split_question("".join(parts[: at + 1]))), 0)
    lost = [IN_QUESTION] * first
    question_and_step = split_question("".join(parts[: first + 1]))
    if question_and_step is None:
        question, mark, step = parts[0].partition("?")
        if not mark or "?" in step or not question.strip() or not step.strip():
            raise InputError("`input` does not show where the question ends: it has no `Step 1:` after a question.")
        question_and_step, lost = (question.strip() + mark, step.strip()), [MARK_GUESSED]
    question, step = question_and_step
    return AnnotatedSolution(
        question,
        (step, *(part.strip() for part in parts[first + 1 :])),
        tuple(targets[first:]),
        source=optional_text(row, "task", lost),
        reading_losses=tuple(lost),
    )


def _targets(parts: Sequence[str], label: str) -> list[float]:
    """Read the sign in the place of each marker. The texts between them must be those of `input`."""
    targets, at = [], 0
    for number, part in enumerate(parts):
        end = at + len(part)
        if label[at:end] != part or label[end : end + 1] not in LABELS or end >= len(label):
            raise InputError(
                f"`label` differs from `input` before or at marker {number} (from 0); expected the same text with + or "
                f"- in the place of `{MARKER}`."
            )
        targets.append(LABELS[label[end]])
        at = end + 1
    return targets


def _write(solution: AnnotatedSolution, losses: Losses) -> dict[str, Any] | None:
    whole = fully_labelled(solution, losses)
    if whole is None:
        return None
    whole = _prefixed(stripped(whole, losses), losses)
    signs = ["+" if right else "-" for right in hard_labels(whole, losses)]
    begins = split_question(f"{whole.question} {whole.steps[0]}") == (whole.question, whole.steps[0])
    if not begins or any(MARKER in text for text in (whole.question, *whole.steps)):
        losses.clear()
        losses[MARKER_IN_TEXT] += 1
        return None
    return without_nulls(input=_joined(whole, [MARKER] * len(signs)), label=_joined(whole, signs), task=whole.source)


def _joined(solution: AnnotatedSolution, marks: Sequence[str]) -> str:
    lines = "\n".join(f"{step} {mark}" for step, mark in zip(solution.steps, marks, strict=True))
    return f"{solution.question} {lines}"


def _prefixed(solution: AnnotatedSolution, losses: Losses) -> AnnotatedSolution:
    """Begin every step with its number, unless the first one has it already."""
    if re.match(r"step 1:", solution.steps[0], re.IGNORECASE):
        return solution
    losses[PREFIXED] += len(solution.steps)
    return replace(
        solution, steps=tuple(f"Step {number}: {step}" for number, step in enumerate(solution.steps, start=1))
    )


MATH_SHEPHERD = Format(
    name="math-shepherd",
    summary=f"Math-Shepherd: input with {MARKER} after each step, label with + or - there, task",
    labels="correct, incorrect",
    limits="neutral, soft or missing labels; texts that contain the marker",
    recognizes=lambda row: isinstance(row.get("input"), str) and isinstance(row.get("label"), str),
    parse=_parse,
    write=_write,
    fields=("input", "label", "task"),
    carries=("source",),
)
