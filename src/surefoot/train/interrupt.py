"""Ctrl-C, heard between two steps.

The rule: what is being computed is finished, so that what is saved is a state the run has really been in. A second
Ctrl-C ends at once, and the last snapshot stays as it is.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class Interrupt:
    """While it is entered, the first interrupt only sets `asked`."""

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None

    def __enter__(self) -> Interrupt:
        # Only the main thread may listen to signals; elsewhere nobody sends one.
        if threading.current_thread() is threading.main_thread():
            self._before = signal.getsignal(signal.SIGINT)
            if callable(self._before):
                signal.signal(signal.SIGINT, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        if callable(self._before):
            signal.signal(signal.SIGINT, self._before)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            self._before(number, frame)
        self.asked = True
