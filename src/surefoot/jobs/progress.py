"""Reports how far a job is: a bar in a terminal, a line now and then elsewhere, and `progress.json` for monitoring."""

from __future__ import annotations

import os
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from surefoot.display.progress import LINE_EVERY, Progress
from surefoot.errors import JobError
from surefoot.jobs.folder import PROGRESS, Entry, write_json

WRITE_SECONDS = 2.0


class JobProgress:
    """Counts the rows of finished units against those of the plan. `done` were finished by earlier runs."""

    def __init__(self, out: Path, rows: int, units: int, done: list[Entry], *, shown: bool) -> None:
        self._out, self._total, self._units = out, rows, units
        self._done = sum(_rows(entry) for entry in done)
        self._finished = len(done)
        self._bad = sum(entry.bad for entry in done)
        self._new = self._tokens = 0
        self._started = time.time()
        self._clock = time.perf_counter()
        self._written = 0.0
        self._bar = Progress(rows, shown=shown, unit="row", done=self._done)
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._write("running")
        threading.Thread(target=self._tick, name="surefoot-progress", daemon=True).start()

    def add(self, entry: Entry) -> None:
        """Count a finished unit."""
        rows = _rows(entry)
        with self._lock:
            self._new += rows
            self._done += rows
            self._tokens += entry.tokens
            self._bad += entry.bad
            self._finished += 1
            self._show(rows)

    def _tick(self) -> None:
        """Report while a unit takes long, too."""
        while not self._ended.wait(LINE_EVERY):
            with self._lock:
                self._show(0)

    def _show(self, rows: int) -> None:
        self._bar.update(rows, self._note())
        if time.perf_counter() - self._written >= WRITE_SECONDS:
            self._write("running")

    def close(self, state: str) -> None:
        """Write the last state: `finished`, or `stopped`."""
        self._ended.set()
        with self._lock:
            self._bar.__exit__()
            self._write(state)

    @property
    def _seconds(self) -> float:
        return max(1e-9, time.perf_counter() - self._clock)

    @property
    def _eta(self) -> float | None:
        """Seconds to go at the speed of this run; None before the first unit."""
        return (self._total - self._done) * self._seconds / self._new if self._new else None

    def _note(self) -> str:
        eta = "" if self._eta is None else f", {duration(self._eta)} to go"
        return f"{self._tokens / self._seconds:,.0f} tokens/s{eta}"

    def _write(self, state: str) -> None:
        self._written = time.perf_counter()
        content: dict[str, Any] = {
            "state": state,
            "rows": self._done,
            "total_rows": self._total,
            "units": self._finished,
            "total_units": self._units,
            "bad_rows": self._bad,
            "rows_per_second": round(self._new / self._seconds, 3),
            "tokens_per_second": round(self._tokens / self._seconds, 1),
            "seconds_to_go": None if self._eta is None else round(self._eta, 1),
            "started": round(self._started, 3),
            "updated": round(time.time(), 3),
            "host": socket.gethostname(),
            "pid": os.getpid(),
        }
        with suppress(JobError):  # a full disk: what matters reports it
            write_json(self._out, PROGRESS, content)


def _rows(entry: Entry) -> int:
    return entry.rows + entry.bad


def duration(seconds: float) -> str:
    """Return a time span as 3:07 or 1:02:45."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
