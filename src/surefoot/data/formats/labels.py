"""The labels.jsonl of `surefoot label`: one solution per line, with what each label rests on. It is only read.

The hard labels are read. `surefoot label --train-file` writes rows with soft or relative ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from surefoot.core.labels import LabelledSolution
from surefoot.data.formats.base import Format, Row, label_target, list_of, optional_text, text_of
from surefoot.data.step_labels import AnnotatedSolution, Loss
from surefoot.errors import InputError

LABELS_FILE, CORRECTIONS_FILE = "labels.jsonl", "corrections.jsonl"
TARGETS = {True: 1.0, False: 0.0, None: None}

EVIDENCE = Loss("values, rollouts, scores and costs, and the white space between steps were dropped", "solutions")
NOT_KEPT = Loss("solutions without a label, or that the judge does not confirm, were dropped", "solutions")


def require_no_corrections(source: str | Path) -> None:
    """Raise `InputError` if people corrected the labels of a file or folder: the file alone lacks their verdicts."""
    path = Path(source).expanduser()
    folder = path if path.is_dir() else path.parent
    if (folder == path or path.name == LABELS_FILE) and all(
        (folder / name).is_file() for name in (LABELS_FILE, CORRECTIONS_FILE)
    ):
        raise InputError(
            f"People corrected the labels in {folder}. Export them with `surefoot label --review {folder} --export "
            "FILE`, and use that file."
        )


def _parse(row: Row) -> AnnotatedSolution:
    steps = [_step(step, at) for at, step in enumerate(list_of(row, "steps"))]
    lost = [EVIDENCE]
    return AnnotatedSolution(
        text_of(row, "question"),
        tuple(step["text"].strip() for step in steps),
        tuple(label_target(step.get("hard"), TARGETS, "hard") for step in steps),
        id=optional_text(row, "id", lost),
        answer=optional_text(row, "gold", lost),
        final_answer_correct=row["outcome"] == "right" if row.get("outcome") in ("right", "wrong") else None,
        reading_losses=tuple(lost),
    )


def _step(step: object, at: int) -> Mapping[str, Any]:
    if not isinstance(step, Mapping) or not isinstance(step.get("text"), str):
        raise InputError(f"step {at} (from 0) must be an object with a `text`.")
    return step


def _is_empty(row: Row) -> bool:
    """Whether a solution gives nothing to train on, as `training_rows` decides it."""
    steps = row.get("steps")
    unlabelled = isinstance(steps, list) and all(
        isinstance(each, Mapping) and each.get("hard") is None for each in steps
    )
    return row.get("kept") is False or unlabelled


LABELS = Format(
    name="labels",
    summary="labels.jsonl of `surefoot label`, only read: question, gold, steps with their labels",
    labels="correct, incorrect, missing",
    limits="",
    recognizes=lambda row: {"question", "gold", "steps", "first_error"} <= row.keys(),
    parse=_parse,
    write=None,
    fields=tuple(LabelledSolution(0, 0, "", "", "", ()).to_dict()),
    is_empty=_is_empty,
    empty=NOT_KEPT,
)
