"""Hand requests for a model in this process to one background thread, also while it runs.

Invariant: every request gets a result, also if the model fails or the worker is closed.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from time import sleep
from typing import Protocol

from surefoot.core.generation import Generation, GenerationRequest, failed
from surefoot.generate.local_decoding import CLOSED, SequenceRequest

WAIT = 0.005
"""Seconds that the first request waits for others."""
PROMPT_TOKENS = 1 << 16
"""The most tokens of all prompts that are computed at a time, with their padding. A longer prompt is computed alone."""

Entry = tuple[GenerationRequest, "Future[Generation]"]


class Inbox(Protocol):
    """The requests that wait for a result, each with a number."""

    def new(self) -> list[tuple[int, GenerationRequest]]:
        """Return the requests that arrived after the last call. Never wait."""

    def is_over(self, number: int) -> bool:
        """Whether nobody waits for a request any more: it was cancelled, or the worker was closed."""


Run = Callable[[Inbox], Iterator[tuple[int, Generation]]]
"""Yields the number of each request with its result as soon as it is complete. Ends when there is nothing to do."""


class BatchWorker:
    """Passes submitted requests to `run`. The thread starts with the first request.

    worker = BatchWorker(run)
    generation = await asyncio.wrap_future(worker.submit(request))
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._thread: _Thread | None = None

    @property
    def is_running(self) -> bool:
        """Whether there is a thread."""
        return self._thread is not None and self._thread.is_alive()

    def submit(self, request: GenerationRequest) -> Future[Generation]:
        """Queue a request."""
        future: Future[Generation] = Future()
        with self._lock:
            if self._thread is None or not self.is_running:  # closed, or lost in a forked process
                self._thread = _Thread(self._run)
                self._thread.start()
            self._thread.waiting.put((request, future))
        return future

    def close(self) -> None:
        """Stop the thread and wait for it. Requests without a result fail; a later request starts a new thread."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None and thread.is_alive():
            thread.closed.set()
            thread.waiting.put(None)
            thread.join()


class _Thread(threading.Thread):
    """The background thread, and the inbox of what it runs."""

    def __init__(self, run: Run) -> None:
        super().__init__(name="surefoot-generate", daemon=True)
        self.waiting: queue.SimpleQueue[Entry | None] = queue.SimpleQueue()
        self.closed = threading.Event()
        self._handle = run
        self._arrived: list[Entry] = []
        self._open: dict[int, Entry] = {}
        self._next = 0

    def run(self) -> None:
        while (entry := self.waiting.get()) is not None:
            sleep(0 if self.closed.is_set() else WAIT)
            self._arrived = [entry]
            self._serve()

    def _serve(self) -> None:
        """Run until no request is left."""
        reason = CLOSED
        try:
            for number, generation in self._handle(self):
                _finish(self._open.pop(number)[1], generation)
        except BaseException as error:  # a crash inside tokenizers is not an Exception
            reason = describe(error)
        for request, future in [*self._open.values(), *self._arrived]:
            _finish(future, failed(request, reason))
        self._open.clear()
        self._arrived = []

    def new(self) -> list[tuple[int, GenerationRequest]]:
        arrived, self._arrived = self._arrived, []
        try:
            while (entry := self.waiting.get_nowait()) is not None:
                arrived.append(entry)
            self.waiting.put(None)  # ends the thread when nothing is left
        except queue.Empty:
            pass
        if arrived:
            for number in [number for number, (_, future) in self._open.items() if future.cancelled()]:
                del self._open[number]
        start = self._next
        for entry in arrived:
            self._open[self._next] = entry
            self._next += 1
        return [(number, self._open[number][0]) for number in range(start, self._next) if not self.is_over(number)]

    def is_over(self, number: int) -> bool:
        entry = self._open.get(number)
        return self.closed.is_set() or entry is None or entry[1].cancelled()


def _finish(future: Future[Generation], generation: Generation) -> None:
    """Set the result, unless the request was cancelled. It could be until now, because it was never marked running."""
    if future.set_running_or_notify_cancel():
        future.set_result(generation)


def describe(error: BaseException) -> str:
    """The reason of a failed continuation."""
    text = " ".join(str(error).split())[:300]
    advice = " Lower max_batch." if "memory" in text.lower() else ""
    return f"{type(error).__name__}: {text}{advice}"


def group_sequences(wanted: Sequence[SequenceRequest], max_batch: int) -> Iterator[list[SequenceRequest]]:
    """Yield groups of sequences of similar length, with at most `max_batch` sequences and PROMPT_TOKENS each."""
    group: list[SequenceRequest] = []
    prompts: set[tuple[int, ...]] = set()
    for each in sorted(wanted, key=lambda each: (len(each.prompt), each.prompt)):
        rows = len(prompts | {each.prompt})
        if group and (len(group) >= max_batch or rows * len(each.prompt) > PROMPT_TOKENS):
            yield group
            group, prompts = [], set()
        group.append(each)
        prompts.add(each.prompt)
    if group:
        yield group
