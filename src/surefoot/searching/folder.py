"""The output folder of a search over many questions, and what a later run needs to continue it.

Invariant: `_surefoot/job.json` says what the runs in `_surefoot/journal.jsonl` were made with. `results.jsonl` has the
records of all finished questions in the order of the input; it is written at the end.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from surefoot.core.search_result import SearchRecord, SearchResult
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
    """The runs of a job on disk. Only one process writes: use it inside `opened`."""

    def __init__(self, out: Path, questions: Sequence[Question]) -> None:
        self.out = out
        self._hashes = [_hash(question) for question in questions]
        self.runs: list[dict[str, SearchResult]] = [{} for _ in questions]
        """Of each question the finished searches and baselines, by name."""
        for data in read_journal(out / JOURNAL):
            try:
                index, name, result = data["index"], data["run"], SearchResult.from_dict(data["result"])
                if self._hashes[index] == data["hash"]:
                    self.runs[index][name] = result
            except (InputError, KeyError, TypeError, IndexError):
                continue  # a damaged line is done again; a question that is no longer asked is left alone

    def save(self, index: int, name: str, result: SearchResult) -> None:
        """Record a finished run of a question, durably."""
        line = {"index": index, "hash": self._hashes[index], "run": name, "result": result.to_dict()}
        append_line(self.out / JOURNAL, line)
        self.runs[index][name] = result

    def write_results(self, records: Sequence[SearchRecord]) -> None:
        """Write the finished records, in the order of the input."""
        lines = (json.dumps(record.to_dict(), ensure_ascii=False) + "\n" for record in records)
        write_file(self.out, RESULTS, lambda path: path.write_text("".join(lines), encoding="utf-8"))


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
    """Reject a folder whose runs were made with something else, and describe the difference."""
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
