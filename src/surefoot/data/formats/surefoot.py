"""Our own format: `question`, `steps`, and one of `targets`, `ratings` or `label`.

`targets` has a probability or null per step, `ratings` has 1, 0, -1 or null as in PRM800K, and `label` is the index of
the first incorrect step, or -1. If a row has several of them, the first of this list counts. Rows are written with
`label` where it says everything, because benchmarks read it, else with `ratings`, else with `targets`.
"""

from __future__ import annotations

from typing import Any

from surefoot.data.formats.base import (
    NEUTRAL,
    Format,
    Row,
    list_of,
    optional_flag,
    optional_text,
    text_of,
    texts_of,
    without_nulls,
)
from surefoot.data.step_labels import (
    AnnotatedSolution,
    Loss,
    Losses,
    Targets,
    rating_of,
    targets_of_label,
    targets_of_ratings,
)
from surefoot.errors import InputError

LABELS = ("targets", "ratings", "label")


def _parse(row: Row) -> AnnotatedSolution:
    question, steps = text_of(row, "question", "problem"), texts_of(row, "steps")
    neutral: frozenset[int] = frozenset()
    if "targets" in row:
        targets = numbers(list_of(row, "targets"), "targets")
    elif "ratings" in row:
        ratings = list_of(row, "ratings")
        if len(ratings) != len(steps):
            raise InputError(f"Got {len(steps)} steps but {len(ratings)} ratings.")
        targets = targets_of_ratings(ratings)
        neutral = frozenset(at for at, rating in enumerate(ratings) if rating == 0)
    else:
        label = row.get("label")
        if not isinstance(label, int) or isinstance(label, bool):
            raise InputError("expected one of `targets`, `ratings`, `qwen_prm` or `label`.")
        targets = targets_of_label(len(steps), label)
    lost: list[Loss] = []
    return AnnotatedSolution(
        question,
        steps,
        targets,
        neutral,
        id=optional_text(row, "id", lost),
        answer=optional_text(row, "answer", lost),
        final_answer_correct=optional_flag(row, "final_answer_correct", lost),
        generator=optional_text(row, "generator", lost),
        source=optional_text(row, "source", lost),
        reading_losses=tuple(lost),
    )


def numbers(values: list[Any], name: str) -> Targets:
    """Return a list of numbers and nulls."""
    for value in values:
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise InputError(f"`{name}` must contain only numbers and null.")
    return tuple(None if value is None else float(value) for value in values)


def _write(solution: AnnotatedSolution, losses: Losses) -> dict[str, Any]:
    row = without_nulls(id=solution.id, question=solution.question, steps=list(solution.steps))
    hard = all(target in (0.0, 1.0, None) for target in solution.targets)
    if solution.neutral and hard:
        rated = enumerate(solution.targets)
        row["ratings"] = [rating_of(target, at in solution.neutral) for at, target in rated]
    elif not solution.neutral and solution.targets == targets_of_label(len(solution.steps), solution.first_error):
        row["label"] = solution.first_error
    else:
        losses[NEUTRAL] += len(solution.neutral)
        row["targets"] = list(solution.targets)
    return row | without_nulls(
        answer=solution.answer,
        final_answer_correct=solution.final_answer_correct,
        generator=solution.generator,
        source=solution.source,
    )


SUREFOOT = Format(
    name="surefoot",
    summary="our own: question, steps, and label, ratings or targets",
    labels="correct, neutral, incorrect, soft, missing",
    limits="neutral and soft labels in one solution; alternative steps",
    recognizes=lambda row: (
        isinstance(row.get("question", row.get("problem")), str)
        and "steps" in row
        and ("targets" in row or "ratings" in row or ("question" in row and isinstance(row.get("label"), int)))
    ),
    parse=_parse,
    write=_write,
    fields=("id", "question", "problem", "steps", *LABELS, "answer", "final_answer_correct", "generator", "source"),
    carries=("id", "answer", "final_answer_correct", "generator", "source"),
)
