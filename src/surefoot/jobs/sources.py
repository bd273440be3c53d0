"""Finds the input files of a job: JSONL, Parquet and Arrow, in folders, globs, URLs of fsspec and data sets of the hub.

A file is recognized by its name. Its size and its time of change, or its ETag, tell whether it has changed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Literal

from surefoot.data.records import HUB_ID
from surefoot.errors import InputError, MissingDependencyError

Kind = Literal["jsonl", "parquet", "arrow", "hub"]

NAMES = re.compile(
    r"\.(?:(?P<jsonl>jsonl|ndjson)(?:\.(?P<compression>gz|zst|zstd))?|(?P<parquet>parquet|pq)|(?P<arrow>arrow|feather))\Z"
)
CODECS = {"gz": "gzip", "zst": "zstd", "zstd": "zstd"}
MAGIC = re.compile(r"[*?\[]")
STAMPS = ("mtime", "ETag", "etag", "LastModified", "last_modified", "updated", "sha256", "oid", "created")
TAIL = 1 << 16


@dataclass(frozen=True)
class Source:
    """One input file, or one split of a data set on the hub."""

    path: str
    kind: Kind
    compression: str | None = None
    bytes: int = 0
    stamp: str = ""
    """Changes when the file does."""
    rows: int = 0
    """Known once the input is planned, like what follows."""
    tail: str = ""
    """A hash of the last bytes: tells whether a file that grew still begins as it did."""
    staged: str | None = None
    """The copy in the job's folder that is read instead."""

    @property
    def identity(self) -> dict[str, Any]:
        """What must not change between two runs."""
        return {"path": self.path, "bytes": self.bytes, "stamp": self.stamp}


def find_sources(given: str | Path | Sequence[str | Path], *, subset: str | None, split: str) -> list[Source]:
    """Return the input files, in a fixed order."""
    each = [given] if isinstance(given, str | Path) else list(given)
    found = [source for one in each for source in _find(str(one), subset, split)]
    if not found:
        raise InputError("No input is given. Name a file, a folder, a glob, a URL or a data set of the hub.")
    if twice := next((source.path for at, source in enumerate(found) if source in found[:at]), None):
        raise InputError(f"{twice} is given twice. Its rows would be scored twice.")
    return found


def _find(given: str, subset: str | None, split: str) -> Iterator[Source]:
    if "://" in given or "::" in given:
        yield from _find_remote(given)
        return
    path = Path(given).expanduser().absolute()
    if MAGIC.search(given) and not path.exists():
        pattern = str(path.relative_to(path.anchor))
        files = sorted(file for file in Path(path.anchor).glob(pattern) if file.is_file())
        if not files:
            raise InputError(f"No file matches {given!r}.")
    elif path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file() and _is_data(file.relative_to(path)))
        if not files:
            raise InputError(f"{given} contains no .jsonl, .parquet or .arrow file.")
    elif path.exists():
        files = [path]
    elif HUB_ID.fullmatch(given):
        yield Source(f"{given}:{subset or ''}:{split}", "hub")
        return
    else:
        raise InputError(f"{given!r} is not a file, a folder, a glob, a URL or a data set of the hub.")
    for file in files:
        yield _local(file)


def _is_data(path: Path) -> bool:
    return bool(NAMES.search(path.name)) and not any(part.startswith(("_", ".")) for part in path.parts)


def _local(file: Path) -> Source:
    status = file.stat()
    return replace(_by_name(str(file)), bytes=status.st_size, stamp=str(status.st_mtime_ns))


def _by_name(path: str) -> Source:
    match = NAMES.search(path)
    if match is None:
        raise InputError(
            f"{path} has an unknown ending. Bulk jobs read .jsonl (also .gz and .zst), .parquet and .arrow files."
        )
    kind: Kind = "jsonl" if match["jsonl"] else "parquet" if match["parquet"] else "arrow"
    return Source(path, kind, CODECS.get(match["compression"] or ""))


def _find_remote(url: str) -> Iterator[Source]:
    system, path = _file_system(url)
    try:
        if MAGIC.search(path):
            paths = sorted(system.glob(path))
        elif system.isdir(path):
            paths = sorted(each for each in system.find(path) if _is_data(Path(each[len(path) :].lstrip("/"))))
        else:
            paths = [path]
        infos = [system.info(each) for each in paths]
    except FileNotFoundError as error:
        raise InputError(f"{url} does not exist.") from error
    except Exception as error:  # every file system raises its own errors
        raise InputError(f"{url} cannot be read: {error}") from error
    if not infos:
        raise InputError(f"{url} has no .jsonl, .parquet or .arrow file.")
    for each, info in zip(paths, infos, strict=True):
        stamp = next((str(info[name]) for name in STAMPS if info.get(name)), "")
        yield replace(_by_name(system.unstrip_protocol(each)), bytes=int(info.get("size") or 0), stamp=stamp)


def _file_system(url: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError as error:
        raise MissingDependencyError('Reading URLs needs fsspec. Run: pip install "surefoot[bulk]"') from error
    try:
        system, path = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise InputError(f"{url} cannot be opened: {error}") from error
    return system, path


def open_source(path: str) -> IO[bytes]:
    """Open a local file or a URL for reading, with random access."""
    if "://" not in path:
        return Path(path).open("rb")
    system, place = _file_system(path)
    stream: IO[bytes] = system.open(place, "rb")
    return stream


def tail_hash(path: str, end: int) -> str:
    """Return a hash of the last bytes before `end`."""
    with open_source(path) as stream:
        stream.seek(max(0, end - TAIL))
        return hashlib.sha256(stream.read(min(end, TAIL))).hexdigest()
