"""The output folder of a labelling job, and what a later run needs to continue it.

Invariant: `_surefoot/job.json` says what the labels in `_surefoot/journal.jsonl` were made with. `labels.jsonl` has all
solutions in the order of the input; it is written at the end of a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from surefoot.core.labels import LabelledSolution
from surefoot.data.files import json_line, write_file
from surefoot.data.formats.labels import LABELS_FILE
from surefoot.data.job_folder import JOURNAL, held_folder
from surefoot.data.journal import append_line, read_journal
from surefoot.errors import InputError
from surefoot.labelling.reading import Question

VERSION = 1
LABELS = LABELS_FILE

Solutions = tuple[LabelledSolution, ...]


class LabelFolder:
    """The labels of a job on disk. Only one process writes: use it inside `opened`."""

    def __init__(self, out: Path, questions: Sequence[Question]) -> None:
        self.out = out
        self._questions = questions
        self.done: dict[int, Solutions] = {}
        """The solutions of finished questions, by the position of the question."""
        hashes = [question.hash for question in questions]
        for line in read_journal(out / JOURNAL):
            try:
                solutions = tuple(map(LabelledSolution.from_dict, line["solutions"]))
                index, known = solutions[0].index, line["hash"]
            except (InputError, KeyError, TypeError, IndexError):
                continue  # a damaged line: its question is labelled again
            if index < len(hashes) and known == hashes[index]:
                self.done[index] = solutions

    def add(self, index: int, solutions: Solutions) -> None:
        """Record a finished question, durably."""
        line = {"hash": self._questions[index].hash, "solutions": [each.to_dict() for each in solutions]}
        append_line(self.out / JOURNAL, line)
        self.done[index] = solutions

    def write_labels(self, solutions: Sequence[LabelledSolution]) -> None:
        """Write the labels, as a whole."""
        lines = (json_line(solution.to_dict()) for solution in solutions)
        write_file(self.out, LABELS, lambda path: path.write_bytes(b"".join(lines)))


@contextmanager
def opened(
    out: Path, questions: Sequence[Question], identity: Mapping[str, Any], *, fresh: bool
) -> Iterator[LabelFolder]:
    """Hold the folder for one run. One that was started with something else raises `JobError`."""
    with held_folder(out, "labelling", {"version": VERSION, **identity}, output=LABELS, fresh=fresh):
        yield LabelFolder(out, questions)
