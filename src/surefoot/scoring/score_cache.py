"""A score cache on disk.

The key is the content: a hash of the model's fingerprint, the token ids and the read positions. So a changed model,
prompt or split has other keys, and entries do not become stale. The exception is a vLLM server, whose weights cannot be
seen: use a new cache when it serves other weights under the same name. Scores are committed in small batches, so a
killed run continues where it was. Several processes may share one file.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from surefoot.core.cache_folder import cache_folder
from surefoot.core.prompt import Prompt
from surefoot.errors import CacheError

if TYPE_CHECKING:
    import torch

Scores = Callable[[Sequence[Prompt]], "Sequence[torch.Tensor]"]

CACHE_VARIABLE = "SUREFOOT_CACHE"
"""The environment variable with the path of the cache."""

WRITE_EVERY = 64
"""Prompts per transaction: the most that a killed run loses."""

SCORES_VERSION = 1
"""Increment it when the computation from token ids to scores changes, so that older entries are ignored."""

_APPLICATION = 0x53756665  # marks the file as ours
_BUSY_SECONDS = 60.0
_ASK_AT_ONCE = 500  # SQLite limits the parameters of one query


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
        self._lock = threading.Lock()
        if self.path.is_dir():
            raise CacheError(f"The score cache {self.path} is a folder. Name a file in it.")
        with self._named_errors():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(
                self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            try:
                self._prepare()
            except BaseException:
                self._connection.close()
                raise

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> ScoreCache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def size(self) -> int:
        """The number of stored prompts, of all models."""
        with self._named_errors():
            (count,) = self._connection.execute("SELECT count(*) FROM scores").fetchone()
        return int(count)

    def wrap(self, fingerprint: str, scores: Scores, width: int = 1) -> Scores:
        """Wrap the function that computes prompts: it is called only for prompts that are not stored.

        It returns `width` numbers per read.
        """

        def cached(prompts: Sequence[Prompt]) -> list[torch.Tensor]:
            import torch

            keys = [_key(fingerprint, prompt) for prompt in prompts]
            wanted = dict(zip(keys, prompts, strict=True))
            known = self._find(wanted, width)
            missing = [(key, prompt) for key, prompt in wanted.items() if key not in known]
            self.hits += len(prompts) - len(missing)
            self.misses += len(missing)
            for start in range(0, len(missing), WRITE_EVERY):
                some = missing[start : start + WRITE_EVERY]
                rows = scores([prompt for _, prompt in some])
                fresh = {key: array("f", row.flatten().tolist()) for (key, _), row in zip(some, rows, strict=True)}
                # NaN and infinity are returned but not stored.
                self._write({key: row for key, row in fresh.items() if all(map(isfinite, row))})
                known |= fresh
            found = [torch.tensor(known[key], dtype=torch.float32) for key in keys]
            return found if width == 1 else [row.view(len(row) // width, width) for row in found]

        return cached

    def _prepare(self) -> None:
        # In this order: another process that creates the cache writes its mark before its table.
        (tables,) = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        (application,) = self._connection.execute("PRAGMA application_id").fetchone()
        if tables and application != _APPLICATION:
            raise CacheError(f"{self.path} is a database of another program. Choose another file for the score cache.")
        self._use_log()
        self._connection.execute("PRAGMA synchronous = NORMAL")
        if application != _APPLICATION:
            self._connection.execute(f"PRAGMA application_id = {_APPLICATION}")
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS scores (key BLOB PRIMARY KEY, row BLOB NOT NULL) WITHOUT ROWID"
        )

    def _use_log(self) -> None:
        """Switch to a write-ahead log, so that readers and a writer do not block each other.

        Where the file system cannot hold one, SQLite keeps its older journal, which is as safe. While two processes
        switch at once SQLite does not wait by itself, so it is asked again.
        """
        end = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > end:
                    raise
                time.sleep(0.02)

    def _find(self, wanted: Mapping[bytes, Prompt], width: int) -> dict[bytes, array[float]]:
        found: dict[bytes, array[float]] = {}
        keys = list(wanted)
        for start in range(0, len(keys), _ASK_AT_ONCE):
            some = keys[start : start + _ASK_AT_ONCE]
            query = f"SELECT key, row FROM scores WHERE key IN ({','.join('?' * len(some))})"
            with self._named_errors():
                rows = self._connection.execute(query, some).fetchall()
            for key, row in rows:
                if len(row) != len(wanted[key].reads) * width * array("f").itemsize:
                    raise CacheError(f"The score cache {self.path} is damaged: an entry is truncated. Delete the file.")
                found[key] = array("f", row)
        return found

    def _write(self, rows: dict[bytes, array[float]]) -> None:
        with self._named_errors():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self._connection.executemany(
                    "INSERT OR IGNORE INTO scores VALUES (?, ?)", [(key, row.tobytes()) for key, row in rows.items()]
                )
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except sqlite3.OperationalError as error:
                raise CacheError(
                    f"The score cache {self.path} cannot be used ({error}). Choose another file with --cache or "
                    f"{CACHE_VARIABLE}, or do without one."
                ) from error
            except sqlite3.DatabaseError as error:
                raise CacheError(
                    f"The score cache {self.path} is damaged or not a score cache ({error}). It contains nothing "
                    "but scores that can be computed again: delete the file, or choose another one."
                ) from error
            except OSError as error:
                raise CacheError(
                    f"The score cache {self.path} cannot be created ({error}). Choose another file."
                ) from error


def as_score_cache(given: str | Path | ScoreCache | None) -> ScoreCache | None:
    """Opens a score cache by its path, unless it is open already."""
    return ScoreCache(given) if isinstance(given, str | Path) else given


def _key(fingerprint: str, prompt: Prompt) -> bytes:
    digest = sha256(f"{SCORES_VERSION} {fingerprint} {len(prompt.ids)} {len(prompt.reads)} ".encode())
    digest.update(array("q", prompt.ids).tobytes())
    digest.update(array("q", prompt.reads).tobytes())
    digest.update(array("q", prompt.targets).tobytes())
    return digest.digest()
