"""FoVer: `problem`, `solution_steps` and `error_labels`, in which true means that the step is correct.

Verified against README.md of psunlpgroup/FoVer (`[true, false, null]` for a correct, a wrong and an unknown step) and
src/dataset_creation/postprocessing/generate_final_dataset.py there, which copies `proof_step_correctness` into
`error_labels`. The README also calls the labels texts; `correct` and `incorrect`, the words of its conversations, are
read as labels, but were not seen in data.
"""

from __future__ import annotations

from typing import Any

from surefoot.data.formats.base import (
    Format,
    Row,
    hard_labels,
    label_target,
    list_of,
    optional_text,
    text_of,
    texts_of,
    without_nulls,
)
from surefoot.data.step_labels import AnnotatedSolution, Loss, Losses

LABELS = {True: 1.0, False: 0.0, None: None, "correct": 1.0, "incorrect": 0.0}


def _parse(row: Row) -> AnnotatedSolution:
    labels = list_of(row, "error_labels")
    lost: list[Loss] = []
    return AnnotatedSolution(
        text_of(row, "problem"),
        texts_of(row, "solution_steps"),
        tuple(label_target(label, LABELS, "error_labels") for label in labels),
        id=optional_text(row, "id", lost),
        source=optional_text(row, "base_dataset", lost),
        reading_losses=tuple(lost),
    )


def _write(solution: AnnotatedSolution, losses: Losses) -> dict[str, Any]:
    return without_nulls(
        id=solution.id,
        problem=solution.question,
        solution_steps=list(solution.steps),
        error_labels=hard_labels(solution, losses),
        base_dataset=solution.source,
    )


FOVER = Format(
    name="fover",
    summary="FoVer: problem, solution_steps, error_labels (true is correct)",
    labels="correct, incorrect, missing",
    limits="neutral or soft labels",
    recognizes=lambda row: {"solution_steps", "error_labels"} <= row.keys(),
    parse=_parse,
    write=_write,
    fields=("id", "problem", "solution_steps", "error_labels", "base_dataset"),
    carries=("id", "source"),
)
