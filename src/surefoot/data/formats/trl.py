"""TRL's stepwise supervision: `prompt`, `completions` (the steps) and `labels` (one bool per step).

Verified against the "Stepwise supervision" row of docs/source/dataset_formats.md in huggingface/trl, TRL's conversion
scripts examples/datasets/math_shepherd.py and prm800k.py, and the cards of trl-lib/math_shepherd and
plaguss/prm_800k_trl. The first card also allows floats as labels; they are read as soft labels, but never written,
because a trainer that expects bools would round them.
"""

from __future__ import annotations

from typing import Any

from surefoot.data.formats.base import Format, Row, fully_labelled, hard_labels, list_of, text_of, texts_of
from surefoot.data.step_labels import AnnotatedSolution, Losses
from surefoot.errors import InputError


def _parse(row: Row) -> AnnotatedSolution:
    targets = []
    for label in list_of(row, "labels"):
        if not isinstance(label, bool | int | float):
            raise InputError(f"`labels` has the label {label!r}; expected true or false.")
        targets.append(float(label))
    return AnnotatedSolution(text_of(row, "prompt"), texts_of(row, "completions"), tuple(targets))


def _write(solution: AnnotatedSolution, losses: Losses) -> dict[str, Any] | None:
    whole = fully_labelled(solution, losses)
    if whole is None:
        return None
    return {"prompt": whole.question, "completions": list(whole.steps), "labels": hard_labels(whole, losses)}


TRL = Format(
    name="trl",
    summary="TRL's stepwise supervision: prompt, completions, labels",
    labels="correct, incorrect",
    limits="neutral, soft or missing labels",
    recognizes=lambda row: {"prompt", "completions", "labels"} <= row.keys(),
    parse=_parse,
    write=_write,
    fields=("prompt", "completions", "labels"),
)
