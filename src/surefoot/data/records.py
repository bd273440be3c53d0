"""Records of a data set: from a file, a folder of files, or the Hugging Face hub.

The rule: a file is JSON (a list of objects) or JSONL (an object a line), told apart by its first character, gzipped or
not; each file is a split named after it. Every record knows its place, so that whatever is wrong with it can be found.
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


@dataclass(frozen=True)
class Entry:
    """One line of a stream, or one item of its list: JSON, or what is wrong with it."""

    place: str
    """`line 3`, or `item 2 (from 0)`."""
    number: int
    data: Any = None
    error: str | None = None
    """What follows its place in a message."""


@dataclass(frozen=True)
class Record:
    """One object of a data set, as it stands there."""

    data: Mapping[str, Any]
    place: str
    """Where it stands, for messages."""
    split: str | None = None

    def wrong(self, what: str) -> InputError:
        """The error that names this record."""
        return InputError(f"{self.place}: {what}")


def read_records(source: str | Path) -> Iterator[Record]:
    """All records of a file, of every .json and .jsonl file in a folder, or of a data set of the hub."""
    path = Path(source).expanduser()
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.is_file() and ENDINGS.search(file.name))
        if not files:
            raise InputError(f"{path} holds no .json or .jsonl file.")
        for file in files:
            yield from _read_file(file)
    elif path.exists():
        yield from _read_file(path)
    elif HUB_ID.fullmatch(str(source)):
        yield from _read_hub(str(source))
    else:
        raise InputError(f"{str(source)!r} is no file and no folder here, nor a hub id such as 'Qwen/ProcessBench'.")


def split_name(file: Path) -> str:
    """The file's name without its ending."""
    return ENDINGS.sub("", file.name)


def file_entries(file: Path) -> Iterator[Entry]:
    """What a file holds; see `stream_entries`."""
    try:
        with file.open("rb") as stream:
            yield from stream_entries(stream, str(file))
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error}") from error


def stream_entries(stream: IO[bytes], name: str) -> Iterator[Entry]:
    """What a stream holds; `name` is for messages. Lines are given as they come, and one that is wrong costs no other.

    What is gzipped, or a list, is read to its end first.
    """
    try:
        first = stream.readline()
        if first.startswith(GZIP):
            stream = io.BytesIO(gzip.decompress(first + stream.read()))
            first = stream.readline()
        lines = chain([first.removeprefix(codecs.BOM_UTF8)], stream)
        opening = True
        for number, line in enumerate(lines, start=1):
            if opening and line.lstrip().startswith(b"["):
                yield from _items(line + b"".join(lines), name)
            elif line.strip():
                opening = False
                yield _line(line, number)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{name} cannot be read: {error}") from error


def _items(text: bytes, name: str) -> Iterator[Entry]:
    try:
        found = json.loads(text.decode())
    except UnicodeDecodeError as error:
        raise InputError(f"{name} cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} is not JSON: {error}") from error
    for number, data in enumerate(found):
        yield Entry(f"item {number} (from 0)", number, data)


def _line(text: bytes, number: int) -> Entry:
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
            f"{name!r} is no file here; reading it from the hub needs the package datasets. Install it with: "
            'pip install "surefoot[datasets]", or download the files and give their folder.'
        ) from error
    try:
        loaded = datasets.load_dataset(name)
    except Exception as error:
        raise InputError(
            f"{name!r} is no file here, and the hub did not give it: {error}. Download it and give the folder."
        ) from error
    for split, rows in loaded.items():
        for number, data in enumerate(rows):
            yield Record(data, f"{name}, split {split}, item {number} (from 0)", split)
