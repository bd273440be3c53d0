"""Reads the labels of a folder for a review, and identifies each solution by its content.

Invariant: a solution has another identity as soon as its question or the text of a step changes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from surefoot.core.labels import LabelledSolution
from surefoot.data.records import read_records
from surefoot.errors import InputError
from surefoot.labelling.folder import LABELS


@dataclass(frozen=True)
class SolutionKey:
    """Identifies a solution and its text."""

    index: int
    number: int
    hash: str


def key_of(solution: LabelledSolution) -> SolutionKey:
    """Return the identity of a solution."""
    content = json.dumps([solution.question, [step.text for step in solution.steps]])
    return SolutionKey(solution.index, solution.number, hashlib.sha256(content.encode()).hexdigest()[:16])


def read_labels(folder: Path) -> Sequence[LabelledSolution]:
    """Return all solutions of `labels.jsonl`, in its order."""
    path = folder / LABELS
    if not path.is_file():
        raise InputError(f"{folder} has no {LABELS}, which `surefoot label` writes at its end. Name its output folder.")
    found = []
    for record in read_records(path):
        try:
            solution = LabelledSolution.from_dict(record.data)
        except (InputError, AttributeError) as error:
            raise record.wrong(str(error)) from error
        if not _is_sound(solution):
            raise record.wrong("This is not a labelled solution: a text or a label has a wrong type.")
        found.append(solution)
    return found


def _is_sound(solution: LabelledSolution) -> bool:
    """Whether a file has what its format promises. Nothing checks the types before."""
    texts = [solution.question, solution.gold, *(step.text for step in solution.steps)]
    numbers = [solution.index, solution.number]
    return (
        all(isinstance(text, str) for text in texts)
        and all(type(number) is int and number >= 0 for number in numbers)
        and all(step.hard in (True, False, None) for step in solution.steps)
        and all(len(each.scores) == len(solution.steps) for each in (solution.judge, solution.screen) if each)
    )
