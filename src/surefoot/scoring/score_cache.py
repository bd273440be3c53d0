"""A score cache on disk.

The key is the content: a hash of the model's fingerprint, the token ids and the read positions. So a changed model,
prompt or split has other keys, and entries do not become stale. The exception is a vLLM server, whose weights cannot be
seen: use a new cache when it serves other weights under the same name. Scores are committed every few seconds, so a
killed run continues where it was. Several processes may share one file, and a forked process opens it anew.

Every entry has a checksum over its key and its scores. A damaged file raises `CacheError` or computes scores again; it
never yields a wrong score.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from surefoot.core.cache_folder import cache_folder
from surefoot.core.prompt import Prompt
from surefoot.core.result import Scale
from surefoot.errors import CacheError

if TYPE_CHECKING:
    import torch

    from surefoot.engine.results import PackResult, PackResults, Packs

CACHE_VARIABLE = "SUREFOOT_CACHE"
"""The environment variable with the path of the cache."""

WRITE_EVERY = 64
"""Prompts per call of the model: after each, its scores are committed."""

COMMIT_SECONDS = 3.0
"""Seconds between two commits while a call of the model runs."""

SCORES_VERSION = 2
"""Increment it when the computation from token ids to scores or the format of an entry changes, so that older entries
are ignored."""

RANGES: dict[Scale | None, tuple[float, float]] = {"probability": (0.0, 1.0), "margin": (-1.0, 1.0)}
"""The smallest and largest score of a scale. Others are unbounded, but finite."""

_SLACK = 1e-5  # a sum of probabilities may exceed 1 by rounding
_CHECK_BYTES = 8

_APPLICATION = 0x53756665  # marks the file as ours
_BUSY_SECONDS = 60.0
_ASK_AT_ONCE = 500  # SQLite limits the parameters of one query
_DELETE = "It contains nothing but scores that can be computed again: delete the file, or choose another one."
_inherited: list[sqlite3.Connection] = []  # kept from the garbage collector, which would close them
_reopening = threading.Lock()


def _after_fork_in_child() -> None:
    global _reopening
    _reopening = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def default_path() -> Path:
    """The default path: SUREFOOT_CACHE if it is set, else a file in the user's cache folder."""
    if named := os.environ.get(CACHE_VARIABLE):
        return Path(named).expanduser()
    return cache_folder() / "scores.sqlite"


class ScoreCache:
    """Scores by content, in one SQLite file.

    >>> scorer = surefoot.load("mini", cache=ScoreCache("scores.sqlite"))
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = default_path() if path is None else Path(path).expanduser()
        self.hits = 0
        """Prompts found so far."""
        self.misses = 0
        """Prompts computed so far."""
        if self.path.is_dir():
            raise CacheError(f"The score cache {self.path} is a folder. Name a file in it.")
        self._open()

    def _open(self) -> None:
        with self._named_errors():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(
                self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            try:
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
        self._connection, self._lock = connection, threading.Lock()
        self._process = os.getpid()  # last: other threads look at it first

    def close(self) -> None:
        """Close the file in this process."""
        if self._process == os.getpid():
            self._connection.close()

    def __enter__(self) -> ScoreCache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def size(self) -> int:
        """The number of stored prompts, of all models."""
        with self._connected() as connection:
            (count,) = connection.execute("SELECT count(*) FROM scores").fetchone()
        return int(count)

    def wrap(self, fingerprint: str, packs: Packs, width: int = 1, scale: Scale | None = None) -> Packs:
        """Wrap the function that computes prompts: it is called only for prompts that are not stored.

        It computes `width` numbers per read. If they are scores on a `scale`, numbers outside its range are not stored.
        """

        def cached(prompts: Sequence[Prompt]) -> PackResults:
            keys = [_key(fingerprint, prompt) for prompt in prompts]
            wanted = dict(zip(keys, prompts, strict=True))
            indices: dict[bytes, list[int]] = {key: [] for key in wanted}
            for index, key in enumerate(keys):
                indices[key].append(index)
            known = self._find(wanted, width, scale)
            missing = [key for key in wanted if key not in known]
            self.hits += len(prompts) - len(missing)
            self.misses += len(missing)
            yield _result(0, known, indices, width)
            for start in range(0, len(missing), WRITE_EVERY):
                some = missing[start : start + WRITE_EVERY]
                unwritten: dict[bytes, array[float]] = {}
                last = time.monotonic()
                for result in packs([wanted[key] for key in some]):
                    rows = {some[at]: array("f", row.flatten().tolist()) for at, row in result.completed}
                    # NaN and infinity are returned but not stored.
                    unwritten |= {key: row for key, row in rows.items() if _is_valid(row, scale)}
                    if time.monotonic() - last >= COMMIT_SECONDS:
                        self._write(unwritten)
                        unwritten, last = {}, time.monotonic()
                    yield _result(result.tokens, rows, indices, width)
                self._write(unwritten)

        return cached

    def find_record(self, key: bytes) -> bytes | None:
        """Return the record with this key, such as the verdicts of a critic, or None."""
        with self._connected() as connection:
            row = connection.execute("SELECT record FROM records WHERE key = ?", (key,)).fetchone()
        if row is None:
            self.misses += 1
            return None
        record, check = row[0][:-_CHECK_BYTES], row[0][-_CHECK_BYTES:]
        if check != _check(key, record):
            raise self._damaged("an entry does not match its checksum")
        self.hits += 1
        return bytes(record)

    def store_record(self, key: bytes, record: bytes) -> None:
        """Store a record. One that is stored already stays as it is."""
        with self._connected() as connection:
            connection.execute("INSERT OR IGNORE INTO records VALUES (?, ?)", (key, record + _check(key, record)))

    def _prepare(self, connection: sqlite3.Connection) -> None:
        # In this order: another process that creates the cache writes its mark before its table.
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        if tables and application != _APPLICATION:
            raise CacheError(f"{self.path} is a database of another program. Choose another file for the score cache.")
        _use_log(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        if application != _APPLICATION:
            connection.execute(f"PRAGMA application_id = {_APPLICATION}")
        connection.execute("CREATE TABLE IF NOT EXISTS scores (key BLOB PRIMARY KEY, row BLOB NOT NULL) WITHOUT ROWID")
        connection.execute("CREATE TABLE IF NOT EXISTS records (key BLOB PRIMARY KEY, record BLOB NOT NULL)")

    def _find(self, wanted: Mapping[bytes, Prompt], width: int, scale: Scale | None) -> dict[bytes, array[float]]:
        found: dict[bytes, array[float]] = {}
        keys = list(wanted)
        for start in range(0, len(keys), _ASK_AT_ONCE):
            some = keys[start : start + _ASK_AT_ONCE]
            query = f"SELECT key, row FROM scores WHERE key IN ({','.join('?' * len(some))})"
            with self._connected() as connection:
                rows = connection.execute(query, some).fetchall()
            for key, entry in rows:
                if not isinstance(key, bytes) or key not in wanted or not isinstance(entry, bytes):
                    raise self._damaged("an entry has the wrong type")
                if len(entry) != len(wanted[key].reads) * width * array("f").itemsize + _CHECK_BYTES:
                    raise self._damaged("an entry is truncated")
                numbers, check = entry[:-_CHECK_BYTES], entry[-_CHECK_BYTES:]
                row = array("f", numbers)
                if check != _check(key, numbers) or not _is_valid(row, scale):
                    raise self._damaged("an entry does not match its checksum")
                found[key] = row
        return found

    def _damaged(self, problem: str) -> CacheError:
        return CacheError(f"The score cache {self.path} is damaged: {problem}. {_DELETE}")

    def _write(self, rows: Mapping[bytes, array[float]]) -> None:
        """Store the scores of prompts by their keys, in one transaction."""
        if not rows:
            return
        entries = [(key, (numbers := row.tobytes()) + _check(key, numbers)) for key, row in rows.items()]
        with self._connected() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.executemany("INSERT OR IGNORE INTO scores VALUES (?, ?)", entries)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """The connection of this process, for one thread at a time."""
        if self._process != os.getpid():
            with _reopening:
                if self._process != os.getpid():
                    # SQLite connections must not be used after a fork, nor closed: the parent has the same locks.
                    _inherited.append(self._connection)
                    self._open()
        with self._lock, self._named_errors():
            yield self._connection

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise CacheError(
                f"The score cache {self.path} cannot be used ({error}). Choose another file with --cache or "
                f"{CACHE_VARIABLE}, or do without one."
            ) from error
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
            raise CacheError(
                f"The score cache {self.path} is damaged or not a score cache ({error}). {_DELETE}"
            ) from error
        except OSError as error:
            raise CacheError(
                f"The score cache {self.path} cannot be created ({error}). Choose another file."
            ) from error


def _use_log(connection: sqlite3.Connection) -> None:
    """Switch to a write-ahead log, so that readers and a writer do not block each other.

    Where the file system cannot hold one, SQLite keeps its older journal, which is as safe. While two processes
    switch at once SQLite does not wait by itself, so it is asked again.
    """
    end = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(0.02)


def as_score_cache(given: str | Path | ScoreCache | None) -> ScoreCache | None:
    """Opens a score cache by its path, unless it is open already."""
    return ScoreCache(given) if isinstance(given, str | Path) else given


def _result(
    tokens: int, rows: Mapping[bytes, array[float]], indices: Mapping[bytes, list[int]], width: int
) -> PackResult:
    """The result for all prompts with these keys."""
    import torch

    from surefoot.engine.results import PackResult

    completed: list[tuple[int, torch.Tensor]] = []
    for key, row in rows.items():
        numbers = torch.tensor(row, dtype=torch.float32)
        scores = numbers if width == 1 else numbers.view(len(row) // width, width)
        completed += [(index, scores) for index in indices[key]]
    return PackResult(tokens, tuple(completed))


def _key(fingerprint: str, prompt: Prompt) -> bytes:
    digest = sha256(f"{SCORES_VERSION} {fingerprint} {len(prompt.ids)} {len(prompt.reads)} ".encode())
    digest.update(array("q", prompt.ids).tobytes())
    digest.update(array("q", prompt.reads).tobytes())
    digest.update(array("q", prompt.targets).tobytes())
    return digest.digest()


def _check(key: bytes, numbers: bytes) -> bytes:
    return sha256(key + numbers).digest()[:_CHECK_BYTES]


def _is_valid(row: array[float], scale: Scale | None) -> bool:
    smallest, largest = RANGES.get(scale, (-inf, inf))
    return all(isfinite(number) and smallest - _SLACK <= number <= largest + _SLACK for number in row)
