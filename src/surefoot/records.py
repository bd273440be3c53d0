"""Records of a data set: from a file, a folder of files, or the Hugging Face hub.

The rule: a file is JSON (a list of objects) or JSONL (an object a line), told apart by its first character, gzipped or
not; each file is a split named after it. Every record knows its place, so that whatever is wrong with it can be found.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surefoot.errors import InputError, MissingDependencyError

ENDINGS = re.compile(r"\.jsonl?(\.gz)?\Z")
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


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


def _read_file(file: Path) -> Iterator[Record]:
    try:
        raw = file.read_bytes()
        text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8-sig")
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise InputError(f"{file} cannot be read: {error}") from error
    split = split_name(file)
    if text.lstrip()[:1] == "[":
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{file} is not JSON: {error}") from error
        for number, data in enumerate(found):
            yield _record(data, f"{file}, item {number} (from 0)", split)
        return
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            place = f"{file}, line {number}"
            try:
                data = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise InputError(f"{place} is not JSON: {error}") from error
            yield _record(data, place, split)


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
