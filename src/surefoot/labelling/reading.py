"""Reads questions, reference answers and given solutions, and cuts solutions into steps without changing their text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot.core.generation import end_at
from surefoot.data.columns import Columns
from surefoot.data.items import over_limit, read_record
from surefoot.data.records import read_records
from surefoot.errors import InputError
from surefoot.text.answers import reference_answer


@dataclass(frozen=True)
class Question:
    """A question of a job, with its reference answer and the solutions that are given, each as steps."""

    index: int
    """Its position in the input."""
    text: str
    gold: str
    id: str | None = None
    solutions: tuple[tuple[str, ...], ...] = ()
    """Empty if solutions are to be sampled. The texts of the steps together are the solution."""

    @property
    def hash(self) -> str:
        """Identifies the content."""
        content = json.dumps([self.text, self.gold, self.id, self.solutions])
        return hashlib.sha256(content.encode()).hexdigest()[:16]


def cut(text: str, step_end: str) -> tuple[str, ...]:
    """Cut a text after every `step_end`. Blank pieces are joined to the step before, or else to the one after.

    >>> cut("First.\\n\\n\\n\\nSecond.", "\\n\\n")
    ('First.\\n\\n\\n\\n', 'Second.')
    """
    steps: list[str] = []
    while text:
        piece = end_at(text, [step_end]) or text
        text = text[len(piece) :]
        if steps and (not piece.strip() or not steps[-1].strip()):
            steps[-1] += piece
        else:
            steps.append(piece)
    return tuple(steps)


def read_questions(
    source: str | Path | Iterable[Mapping[str, Any]], columns: Columns, step_end: str
) -> Iterator[Question]:
    """Yield the questions of a file, or of rows. An invalid row raises `InputError` with its location."""
    rows: Iterable[tuple[Mapping[str, Any], str]]
    if isinstance(source, str | Path):
        rows = ((record.data, record.place) for record in read_records(source))
    else:
        rows = ((row, f"row {number} (from 0)") for number, row in enumerate(source))
    for index, (row, place) in enumerate(rows):
        try:
            yield _read(index, row, columns, step_end)
        except InputError as error:
            raise InputError(f"{place}: {error}") from error


def _read(index: int, row: Mapping[str, Any], columns: Columns, step_end: str) -> Question:
    text, gold, id = columns.key(row), columns.gold_answer(row), row.get("id")
    if gold is None:
        raise InputError(f"`{columns.gold}` is missing. Labels need a reference answer: name its column with gold=...")
    if not (reference := reference_answer(str(gold))):
        raise InputError(f"`{columns.gold}` is empty.")
    solutions: list[tuple[str, ...]] = []
    if columns.solution or columns.steps or columns.completions:
        solutions = [_steps(solution, step_end) for _, solution in columns.items(row)]
        if not solutions:
            raise InputError(f"`{columns.completions}` is empty. Give at least one solution.")
    for steps in [(reference,), *solutions]:
        read_record({"question": text, "steps": list(steps)})
        if problem := over_limit(text, steps):
            raise InputError(problem)
    return Question(index, text, reference, None if id is None else str(id), tuple(solutions))


def _steps(solution: str | Sequence[str], step_end: str) -> tuple[str, ...]:
    if isinstance(solution, str):
        found = cut(solution, step_end)
    else:
        whole = [step if step.endswith(step_end) else step + step_end for step in solution[:-1]]
        found = (*whole, *solution[-1:])
    if blank := [at for at, step in enumerate(found) if not step.strip()]:
        raise InputError(f"Step {blank[0]} is blank.")
    if not found:
        raise InputError("The solution has no steps.")
    return found
