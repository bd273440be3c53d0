"""The output folder of a search over many questions, and what a later run needs to continue it.

Invariant: `_surefoot/job.json` says what the records in `_surefoot/journal.jsonl` were made with. `results.jsonl` has
all records in the order of the input; it is written at the end of a run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from surefoot.core.search_result import SearchRecord
from surefoot.data.differences import differences
from surefoot.data.files import named_errors, remove_temporary, write_file
from surefoot.data.folder_lock import locked
from surefoot.data.journal import append_line, read_journal
from surefoot.errors import InputError, JobError
from surefoot.searching.record import Question

VERSION = 1
OWN = "_surefoot"
JOB, JOURNAL, RESULTS = f"{OWN}/job.json", f"{OWN}/journal.jsonl", "results.jsonl"


class SearchFolder:
    """The records of a job on disk. Only one process writes: use it inside `opened`."""

    def __init__(self, out: Path, questions: Sequence[Question]) -> None:
        self.out = out
        self._questions = questions
        self.done: dict[int, SearchRecord] = {}
        """The finished questions by position."""
        hashes = [_hash(question) for question in questions]
        for data in read_journal(out / JOURNAL):
            try:
                record = SearchRecord.from_dict(data)
            except InputError:
                continue  # a damaged line: its question is searched again
            if record.index < len(hashes) and data.get("hash") == hashes[record.index]:
                self.done[record.index] = record

    def add(self, record: SearchRecord) -> None:
        """Record a finished question, durably."""
        line = record.to_dict() | {"hash": _hash(self._questions[record.index])}
        append_line(self.out / JOURNAL, line)
        self.done[record.index] = record

    def write_results(self) -> list[SearchRecord]:
        """Write the finished records in the order of the input, and return them."""
        records = [self.done[index] for index in sorted(self.done)]
        lines = (json.dumps(record.to_dict(), ensure_ascii=False) + "\n" for record in records)
        write_file(self.out, RESULTS, lambda path: path.write_text("".join(lines), encoding="utf-8"))
        return records


@contextmanager
def opened(
    out: Path, questions: Sequence[Question], identity: Mapping[str, Any], *, fresh: bool
) -> Iterator[SearchFolder]:
    """Hold the folder for one run. One that was started with something else raises `JobError`."""
    with named_errors(out):
        if out.exists() and not out.is_dir():
            raise JobError(f"{out} is a file. Name a folder for the output.")
        if out.is_dir() and not (out / OWN).is_dir() and any(out.iterdir()):
            raise JobError(f"{out} is not empty and holds no search. Choose another folder.")
        (out / OWN).mkdir(parents=True, exist_ok=True)
    with locked(out, OWN):
        remove_temporary(out, out / OWN)
        if fresh:
            for name in (JOB, JOURNAL, RESULTS):
                (out / name).unlink(missing_ok=True)
        _require_same(out, {"version": VERSION, **identity})
        yield SearchFolder(out, questions)


def _require_same(out: Path, identity: Mapping[str, Any]) -> None:
    """Reject a folder whose records were made with something else, and describe the difference."""
    try:
        before = json.loads((out / JOB).read_text(encoding="utf-8"))
    except FileNotFoundError:
        text = json.dumps(identity, indent=1, ensure_ascii=False)
        write_file(out, JOB, lambda path: path.write_text(text, encoding="utf-8"))
        return
    except (OSError, ValueError) as error:
        raise JobError(f"The search in {out} cannot be read: {error}. Start anew with fresh=True.") from error
    if changed := list(differences(before, json.loads(json.dumps(identity)))):
        raise JobError(
            f"The search in {out} was started differently ({'; '.join(changed)}). Undo the change, or start anew with "
            "fresh=True, which deletes its results."
        )


def _hash(question: Question) -> str:
    return hashlib.sha256(json.dumps([question.text, question.gold, question.id]).encode()).hexdigest()[:16]
