"""The verdicts of people on steps, in `corrections.jsonl` next to the labels.

Invariant: the file only grows, by whole lines. The last line on a step counts, and a line whose hash is not that of the
solution does not apply. Writers hold a lock, and a change counts as saved only after it has reached the disk.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any, Literal, get_args

from surefoot.data.files import sync_folder
from surefoot.data.formats.labels import CORRECTIONS_FILE
from surefoot.errors import JobError
from surefoot.labelling.review.labels import SolutionKey

CORRECTIONS = CORRECTIONS_FILE
LOCK = ".corrections.lock"
LOCK_SECONDS = 10

Opinion = Literal["right", "wrong", "unsure"]
"""What a person says about a step."""
Opinions = Mapping[int, Opinion]
"""By the index of the step; steps without an opinion are missing."""

NO_OPINIONS: Opinions = {}


class ConflictError(Exception):
    """Another page changed the step in the meantime. The change was not saved."""


@dataclass(frozen=True)
class Change:
    """A new opinion on a step; None removes it."""

    step: int
    verdict: Opinion | None
    before: Opinion | None
    """What it replaces. If that is not the current opinion, the change is rejected."""


class Corrections:
    """All opinions in a folder. Several threads and processes may use the folder at the same time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / CORRECTIONS
        self._thread_lock = threading.RLock()
        self._forget()

    def _forget(self) -> None:
        self._opinions: dict[SolutionKey, dict[int, Opinion]] = {}
        self._read_to = 0
        self.damaged = 0
        """Whole lines that are not corrections. They are skipped."""

    def current(self) -> Mapping[SolutionKey, Opinions]:
        """Return all opinions, with what other processes have written."""
        with self._thread_lock:
            self._read()
            return {key: dict(opinions) for key, opinions in self._opinions.items() if opinions}

    def of(self, key: SolutionKey) -> Opinions:
        """Return the opinions on one solution."""
        with self._thread_lock:
            self._read()
            return dict(self._opinions.get(key, NO_OPINIONS))

    def save(self, key: SolutionKey, changes: Sequence[Change]) -> Opinions:
        """Save changes durably, all or none, and return the opinions on the solution."""
        with self._thread_lock, self._locked():
            self._read()
            known = self._opinions.get(key, NO_OPINIONS)
            for change in changes:
                if known.get(change.step) != change.before:
                    now = known.get(change.step) or "without a verdict"
                    raise ConflictError(f"Step {change.step + 1} was changed on another page: it is {now} now.")
            time = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
            lines = [{**vars(key), "step": each.step, "verdict": each.verdict, "time": time} for each in changes]
            try:
                self._append("".join(json.dumps(line) + "\n" for line in lines).encode())
            except OSError as error:
                raise JobError(_not_saved(self._path, error)) from error
            self._read()
            return dict(self._opinions.get(key, NO_OPINIONS))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        from filelock import FileLock, Timeout

        try:
            with FileLock(self._folder / LOCK, timeout=LOCK_SECONDS):
                yield
        except Timeout:
            raise JobError(f"{self._path} is locked by another process. The change is not saved.") from None
        except OSError as error:
            raise JobError(_not_saved(self._path, error)) from error

    def _append(self, content: bytes) -> None:
        new = not self._path.exists()
        with self._path.open("ab+") as stream:
            start = _end_of_whole_lines(stream)
            try:
                stream.truncate(start)  # what a killed writer left of its line
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            except OSError:
                os.truncate(self._path, start)
                raise
        if new:
            sync_folder(self._folder)

    def _read(self) -> None:
        """Read the lines that were added since the last call."""
        try:
            with self._path.open("rb") as stream:
                if os.fstat(stream.fileno()).st_size < self._read_to:
                    self._forget()  # somebody deleted or shortened the file
                stream.seek(self._read_to)
                content = stream.read()
        except FileNotFoundError:
            self._forget()
            return
        except OSError as error:
            raise JobError(f"{self._path} cannot be read: {os.strerror(error.errno or 0)}.") from error
        whole = content[: content.rfind(b"\n") + 1]
        self._read_to += len(whole)
        for line in whole.split(b"\n")[:-1]:
            self._apply(line)

    def _apply(self, line: bytes) -> None:
        try:
            data = json.loads(line)
            key = SolutionKey(_whole(data["index"]), _whole(data["number"]), data["hash"])
            step, verdict = _whole(data["step"]), data["verdict"]
            if not isinstance(key.hash, str) or verdict not in (*get_args(Opinion), None):
                raise ValueError
        except (ValueError, KeyError, TypeError, RecursionError):
            self.damaged += 1
            return
        opinions = self._opinions.setdefault(key, {})
        if verdict is None:
            opinions.pop(step, None)
        else:
            opinions[step] = verdict


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError
    return value


def _end_of_whole_lines(stream: IO[bytes]) -> int:
    """Return the position after the last line break."""
    end = stream.seek(0, os.SEEK_END)
    while end:
        start = max(0, end - 4096)
        stream.seek(start)
        found = stream.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _not_saved(path: Path, error: OSError) -> str:
    problem = os.strerror(error.errno) if error.errno else str(error)
    return f"{path} cannot be written: {problem}. The change is not saved."
