"""Read the records of a data set from a file, a folder of files, or the Hugging Face Hub.

A file is JSON (a list of objects) or JSONL (one object per line), recognized by its first character; either may be
gzipped. Each file is a split, named after the file. Every record knows its location, so errors can name it.
"""

from __future__ import annotations

import codecs
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any

from surefoot.errors import InputError, MissingDependencyError

ENDINGS = re.compile(r"\.jsonl?(\.gz)?\Z")
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
GZIP = b"\x1f\x8b"
MAX_LINE_BYTES = 16 << 20
"""The longest line that is read. A solution of the longest allowed size fits in, however it is escaped."""


@dataclass(frozen=True)
class Entry:
    """One line of a stream, or one item of its list: the parsed JSON or an error."""

    place: str
    """`line 3`, or `item 2 (from 0)`."""
    number: int
    data: Any = None
    error: str | None = None
    """The message, to be appended to `place`."""


@dataclass(frozen=True)
class Record:
    """One object of a data set, unchanged."""

    data: Mapping[str, Any]
    place: str
    """The location, for error messages."""
    split: str | None = None

    def wrong(self, what: str) -> InputError:
        """Return an error that names this record."""
        return InputError(f"{self.place}: {what}")


def read_records(source: str | Path) -> Iterator[Record]:
    """Yield all records of a file, of every .json and .jsonl file in a folder, or of a data set on the Hub."""
    path = Path(source).expanduser()
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.is_file() and ENDINGS.search(file.name))
        if not files:
            raise InputError(f"{path} contains no .json or .jsonl file.")
        for file in files:
            yield from _read_file(file)
    elif path.exists():
        yield from _read_file(path)
    elif HUB_ID.fullmatch(str(source)):
        yield from _read_hub(str(source))
    else:
        raise InputError(f"{str(source)!r} is not a file, a folder or a Hub id such as 'Qwen/ProcessBench'.")


def split_name(file: Path) -> str:
    """Return the file's name without its extensions."""
    return ENDINGS.sub("", file.name)


def file_entries(file: Path) -> Iterator[Entry]:
    """Yield the entries of a file; see `stream_entries`."""
    try:
        with file.open("rb") as stream:
            yield from stream_entries(stream, str(file))
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error}") from error


def stream_entries(stream: IO[bytes], name: str) -> Iterator[Entry]:
    """Yield the entries of a stream. `name` is used in error messages.

    JSONL is streamed, gzipped or not, and an invalid line does not affect the others. A line of more than
    MAX_LINE_BYTES is skipped. Lists are read completely first.
    """
    try:
        first = stream.readline(MAX_LINE_BYTES)
        if first.startswith(GZIP):
            stream = io.BufferedReader(gzip.GzipFile(fileobj=io.BufferedReader(_Rejoined(first, stream))))
            first = stream.readline(MAX_LINE_BYTES)
        lines = chain([first.removeprefix(codecs.BOM_UTF8)], iter(lambda: stream.readline(MAX_LINE_BYTES), b""))
        opening = True
        for number, line in enumerate(lines, start=1):
            if opening and line.lstrip().startswith(b"["):
                yield from _items(line + stream.read(), name)
                return
            if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
                _skip_line(stream)
                yield Entry(f"line {number}", number, error=f"is longer than {MAX_LINE_BYTES >> 20} MiB.")
                opening = False
            elif line.strip():
                opening = False
                yield line_entry(line, number)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{name} cannot be read: {error}") from error


class _Rejoined(io.RawIOBase):
    """A stream with the bytes that were already read from it."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self._head, self._rest = head, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        size = len(buffer)
        taken, self._head = self._head[:size], self._head[size:]
        taken = taken or self._rest.read(size)
        buffer[: len(taken)] = taken
        return len(taken)


def _skip_line(stream: IO[bytes]) -> None:
    while (rest := stream.readline(1 << 20)) and not rest.endswith(b"\n"):
        pass


def _items(text: bytes, name: str) -> Iterator[Entry]:
    try:
        found = json.loads(text.decode())
    except UnicodeDecodeError as error:
        raise InputError(f"{name} cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} is not JSON: {error}") from error
    for number, data in enumerate(found):
        yield Entry(f"item {number} (from 0)", number, data)


def line_entry(text: bytes, number: int) -> Entry:
    """Parse one line of JSONL; `number` counts from 1."""
    place = f"line {number}"
    try:
        return Entry(place, number, json.loads(text.decode()))
    except UnicodeDecodeError as error:
        return Entry(place, number, error=f"cannot be read: {error}")
    except (ValueError, RecursionError) as error:
        return Entry(place, number, error=f"is not JSON: {error}")


def _read_file(file: Path) -> Iterator[Record]:
    split = split_name(file)
    for entry in file_entries(file):
        place = f"{file}, {entry.place}"
        if entry.error is not None:
            raise InputError(f"{place} {entry.error}")
        yield _record(entry.data, place, split)


def _record(data: object, place: str, split: str) -> Record:
    if not isinstance(data, dict):
        raise InputError(f"{place}: expected an object, found {type(data).__name__}.")
    return Record(data, place, split)


def _read_hub(name: str) -> Iterator[Record]:
    try:
        import datasets
    except ImportError as error:
        raise MissingDependencyError(
            f"{name!r} is not a local file, and loading it from the Hub needs the package datasets. Run: "
            'pip install "surefoot[datasets]", or download the files and pass their folder.'
        ) from error
    try:
        loaded = datasets.load_dataset(name)
    except Exception as error:
        raise InputError(
            f"{name!r} is not a local file, and loading it from the Hub failed: {error}. Pass a downloaded folder."
        ) from error
    for split, rows in loaded.items():
        for number, data in enumerate(rows):
            yield Record(data, f"{name}, split {split}, item {number} (from 0)", split)
