"""Batch concurrent calls that bring one sample each.

A batch contains the calls that arrived while the scorer was busy and those of the next few milliseconds. Nothing waits
for a full batch.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from time import monotonic
from typing import Generic, TypeVar

Request = TypeVar("Request")
Response = TypeVar("Response")

WAIT = 0.01
"""Seconds that the first sample of a batch waits for others."""


class MicroBatcher(Generic[Request, Response]):
    """Passes submitted requests in batches to `handle`, on a background thread.

        batcher = MicroBatcher(source.rewards)
        result = batcher.submit(Sample(question, solution)).result()

    `wait` is how many seconds the first request of a batch waits for others; `max_batch` limits the batch.
    """

    def __init__(
        self, handle: Callable[[Sequence[Request]], Sequence[Response]], *, wait: float = WAIT, max_batch: int = 256
    ) -> None:
        self._handle, self._wait, self._max_batch = handle, wait, max_batch
        self._lock = threading.Lock()
        self._process = 0
        self._queue: queue.SimpleQueue[tuple[Request, Future[Response]]] = queue.SimpleQueue()

    def submit(self, request: Request) -> Future[Response]:
        """Queue a request. To await the response, use `asyncio.wrap_future`."""
        future: Future[Response] = Future()
        self._start()
        self._queue.put((request, future))
        return future

    def _start(self) -> None:
        # Compare process ids instead of setting a flag: a forked child inherits a flag, but not the thread.
        if self._process == os.getpid():
            return
        with self._lock:
            if self._process != os.getpid():
                self._queue = queue.SimpleQueue()
                threading.Thread(target=self._run, args=(self._queue,), name="surefoot-batcher", daemon=True).start()
                self._process = os.getpid()

    def _run(self, waiting: queue.SimpleQueue[tuple[Request, Future[Response]]]) -> None:
        while True:
            batch = [waiting.get()]
            deadline = monotonic() + self._wait
            while len(batch) < self._max_batch:
                try:
                    batch.append(waiting.get(timeout=max(0.0, deadline - monotonic())))
                except queue.Empty:
                    break
            live = [pair for pair in batch if pair[1].set_running_or_notify_cancel()]
            if not live:
                continue
            try:
                responses = self._handle([request for request, _ in live])
                for (_, future), response in zip(live, responses, strict=True):
                    future.set_result(response)
            except BaseException as error:
                for _, future in live:
                    if not future.done():
                        future.set_exception(error)
