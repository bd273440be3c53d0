"""Calls of one sample that arrive together, answered together.

The rule: trainers that ask for one reward at a time, from many threads or coroutines, cost one call for all that wait.
Nobody waits for a full batch: a batch is what has come in by the time the scorer is free, and a moment longer.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from time import monotonic
from typing import Generic, TypeVar

Asked = TypeVar("Asked")
Answered = TypeVar("Answered")


class Gather(Generic[Asked, Answered]):
    """Hands what was submitted to `answer`, many at a time, in a thread of its own.

    `wait` is how many seconds the first of a batch waits for others; `limit` is how many make a batch at most.
    """

    def __init__(
        self, answer: Callable[[Sequence[Asked]], Sequence[Answered]], *, wait: float = 0.01, limit: int = 256
    ) -> None:
        self._answer, self._wait, self._limit = answer, wait, limit
        self._lock = threading.Lock()
        self._process = 0
        self._waiting: queue.SimpleQueue[tuple[Asked, Future[Answered]]] = queue.SimpleQueue()

    def submit(self, asked: Asked) -> Future[Answered]:
        """The answer to come; `asyncio.wrap_future` makes it something to await."""
        future: Future[Answered] = Future()
        self._start()
        self._waiting.put((asked, future))
        return future

    def _start(self) -> None:
        # The process is compared, not a flag kept: a forked child inherits the flag but not the thread.
        if self._process == os.getpid():
            return
        with self._lock:
            if self._process != os.getpid():
                self._waiting = queue.SimpleQueue()
                threading.Thread(target=self._run, args=(self._waiting,), name="surefoot-gather", daemon=True).start()
                self._process = os.getpid()

    def _run(self, waiting: queue.SimpleQueue[tuple[Asked, Future[Answered]]]) -> None:
        while True:
            batch = [waiting.get()]
            until = monotonic() + self._wait
            while len(batch) < self._limit:
                try:
                    batch.append(waiting.get(timeout=max(0.0, until - monotonic())))
                except queue.Empty:
                    break
            live = [pair for pair in batch if pair[1].set_running_or_notify_cancel()]
            if not live:
                continue
            try:
                answers = self._answer([asked for asked, _ in live])
                for (_, future), answer in zip(live, answers, strict=True):
                    future.set_result(answer)
            except BaseException as error:
                for _, future in live:
                    if not future.done():
                        future.set_exception(error)
