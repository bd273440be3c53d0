"""Progress of long calls: a bar in a terminal or notebook, a line every few seconds elsewhere.

A call that takes less than that prints no line.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from surefoot.display.counting import counted

LINE_EVERY = 10.0
"""Seconds between two lines where there is no terminal."""


class Progress:
    """Counts solutions or other units of work. Shows nothing unless `shown`. Work that is `done` before is not new."""

    def __init__(self, total: int | None, *, shown: bool, unit: str = "solution", done: int = 0) -> None:
        self._total = total
        self._shown = shown
        self._unit = unit
        self._done = done
        self._settled = self._tokens = 0
        self._note = ""
        self._printed: int | None = None
        self._started = self._last_line = time.perf_counter()
        self._bar: Any = None
        if shown and (sys.stderr.isatty() or "ipykernel" in sys.modules):
            from tqdm.auto import tqdm

            self._bar = tqdm(total=total, initial=done, unit=unit)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
        elif self._printed not in (None, self._done):
            self._line()

    def update(self, count: int, note: str = "") -> None:
        """Counts work that was done. The note is shown next to the counts."""
        self._done += count
        self._note = note or self._note
        if self._bar is not None:
            self._bar.set_postfix_str(self._note, refresh=False)
            self._bar.update(count)
        elif self._shown and time.perf_counter() - self._last_line >= LINE_EVERY:
            self._line()

    def settle(self, solutions: int, tokens: int) -> None:
        """Counts finished results, also those that needed no computation."""
        self._settled += solutions
        self._tokens += tokens
        rate = self._tokens / max(1e-9, time.perf_counter() - self._started)
        self.update(self._settled - self._done, f"{rate:,.0f} tokens/s")

    def _line(self) -> None:
        self._last_line, self._printed = time.perf_counter(), self._done
        if self._total is None:
            count = counted(self._done, self._unit)
        else:
            count = f"{self._done:,} of {counted(self._total, self._unit)}"
        parts = [count, f"{self._last_line - self._started:.0f} s", self._note]
        print(f"surefoot: {', '.join(part for part in parts if part)}", file=sys.stderr)
