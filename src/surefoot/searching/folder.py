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
from surefoot.data.files import write_file
from surefoot.data.job_folder import JOURNAL, held_folder
from surefoot.data.journal import append_line, read_journal
from surefoot.errors import InputError
from surefoot.searching.record import Question

VERSION = 1
RESULTS = "results.jsonl"


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
    with held_folder(out, "search", {"version": VERSION, **identity}, output=RESULTS, fresh=fresh):
        yield SearchFolder(out, questions)


def _hash(question: Question) -> str:
    return hashlib.sha256(json.dumps([question.text, question.gold, question.id]).encode()).hexdigest()[:16]
