"""Writes files so that a reader sees the whole file or none, also after a crash."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from surefoot.errors import JobError

TEMPORARY = ".tmp"
BLOCK = 1 << 20


@dataclass(frozen=True)
class FileSum:
    """A file that was written: its path in the job's folder, its size and its hash."""

    path: str
    bytes: int
    sha256: str

    def matches(self, folder: Path) -> bool:
        """Whether the file still has this content."""
        return self.found_at(folder / self.path)

    def found_at(self, path: Path) -> bool:
        """Whether the file at `path` has this content."""
        try:
            return path.stat().st_size == self.bytes and hash_file(path) == self.sha256
        except OSError:
            return False


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else _hash(stream)


def _hash(stream: IO[bytes]) -> str:  # Python 3.10
    digest = hashlib.sha256()
    while block := stream.read(BLOCK):
        digest.update(block)
    return digest.hexdigest()


def json_line(data: Any) -> bytes:
    """Return a line of JSON."""
    try:
        return json.dumps(data, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:  # a lone surrogate, which only an escape can express
        return json.dumps(data).encode() + b"\n"


def write_file(folder: Path, path: str, write: Callable[[Path], Any]) -> FileSum:
    """Let `write` produce a temporary file, then sync it and rename it to `path` in `folder`."""
    place = folder / path
    temporary = place.with_name(f".{place.name}.{uuid.uuid4().hex}{TEMPORARY}")
    with named_errors(place):
        try:
            write(temporary)
            with temporary.open("rb") as stream:
                os.fsync(stream.fileno())
            written = FileSum(path, temporary.stat().st_size, hash_file(temporary))
            os.replace(temporary, place)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(place.parent)
    return written


def sync_folder(folder: Path) -> None:
    """Make renames in a folder durable, where the system can."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_temporary(*folders: Path) -> None:
    """Delete what killed writers left behind."""
    for folder in folders:
        for path in folder.glob(f".*{TEMPORARY}"):
            path.unlink(missing_ok=True)


@contextmanager
def named_errors(place: Path) -> Iterator[None]:
    """Turn a failure to write into a `JobError` that says what to do."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = "Free some space" if full else "Correct that"
        problem = os.strerror(error.errno) if error.errno else str(error)  # Arrow adds details to the text
        raise JobError(
            f"{place} cannot be written: {problem}. Finished units are kept. {advice} and run the same "
            "command again to continue."
        ) from error
