"""Progress of long calls: a bar in a terminal or notebook, a line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any

LINE_EVERY = 10.0
"""Seconds between two lines where there is no terminal."""


class Progress:
    """Counts solutions and tokens. Shows nothing unless `shown`."""

    def __init__(self, total: int | None, *, shown: bool) -> None:
        self._total = total
        self._shown = shown
        self._done = self._settled = self._tokens = 0
        self._started = self._last_line = time.perf_counter()
        self._bar: Any = None
        if shown and (sys.stderr.isatty() or "ipykernel" in sys.modules):
            from tqdm.auto import tqdm

            self._bar = tqdm(total=total, unit="solution")

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
        elif self._shown:
            self._line()

    def update(self, solutions: int) -> None:
        """Counts solutions that were computed."""
        self._done += solutions
        if self._bar is not None:
            self._bar.update(solutions)
        elif self._shown and time.perf_counter() - self._last_line >= LINE_EVERY:
            self._line()

    def settle(self, solutions: int, tokens: int) -> None:
        """Counts finished results, also those that needed no computation."""
        self._settled += solutions
        self._tokens += tokens
        if self._bar is not None:
            self._bar.set_postfix_str(f"{self._rate():,.0f} tokens/s", refresh=False)
        self.update(self._settled - self._done)

    def _rate(self) -> float:
        return self._tokens / max(1e-9, time.perf_counter() - self._started)

    def _line(self) -> None:
        self._last_line = time.perf_counter()
        total = "" if self._total is None else f" of {self._total}"
        seconds = self._last_line - self._started
        print(
            f"surefoot: {self._done}{total} solutions, {seconds:.0f} s, {self._rate():,.0f} tokens/s", file=sys.stderr
        )
