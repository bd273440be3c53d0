"""ProcessBench: `problem`, `steps` and `label`, the index of the first incorrect step or -1.

Verified against the card of Qwen/ProcessBench (`id`, `generator`, `problem`, `steps`, `final_answer_correct`, `label`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from surefoot.data.formats.base import (
    AFTER_ERROR,
    Format,
    Row,
    fully_labelled,
    hard_labels,
    optional_flag,
    optional_text,
    text_of,
    texts_of,
    without_nulls,
)
from surefoot.data.step_labels import AnnotatedSolution, Loss, Losses, targets_of_label
from surefoot.errors import InputError

RICHER = ("targets", "ratings", "qwen_prm")
"""Keys of our own format that say more than `label`."""


def _parse(row: Row) -> AnnotatedSolution:
    question, steps, label = text_of(row, "problem", "question"), texts_of(row, "steps"), row.get("label")
    if not isinstance(label, int) or isinstance(label, bool):
        raise InputError(f"label is {label!r}; expected the index of the first incorrect step, or -1.")
    lost: list[Loss] = []
    return AnnotatedSolution(
        question,
        steps,
        targets_of_label(len(steps), label),
        id=optional_text(row, "id", lost),
        generator=optional_text(row, "generator", lost),
        final_answer_correct=optional_flag(row, "final_answer_correct", lost),
        reading_losses=tuple(lost),
    )


def _write(solution: AnnotatedSolution, losses: Losses) -> dict[str, Any] | None:
    error = solution.first_error
    end = len(solution.steps) if error < 0 else error + 1
    labelled = replace(
        solution,
        steps=solution.steps[:end],
        targets=solution.targets[:end],
        neutral=frozenset(at for at in solution.neutral if at < end),
    )
    whole = fully_labelled(labelled, losses)
    if whole is None:
        return None
    hard_labels(whole, losses)  # counts what a label cannot say
    losses[AFTER_ERROR] += sum(target is not None for target in solution.targets[end:])
    return without_nulls(
        id=solution.id,
        generator=solution.generator,
        problem=solution.question,
        steps=list(whole.steps + solution.steps[end:]),
        final_answer_correct=solution.final_answer_correct,
        label=error,
    )


PROCESSBENCH = Format(
    name="processbench",
    summary="ProcessBench: problem, steps, label (index of the first error, or -1)",
    labels="correct, incorrect; missing after the first error",
    limits="neutral or soft labels; missing labels before the first error; labels after it",
    recognizes=lambda row: (
        {"problem", "steps", "label"} <= row.keys()
        and not isinstance(row["label"], str | dict)
        and not any(key in row for key in RICHER)
    ),
    parse=_parse,
    write=_write,
    fields=("id", "generator", "problem", "question", "steps", "final_answer_correct", "label"),
    carries=("id", "generator", "final_answer_correct"),
)
