"""Batch concurrent requests for a model in this process, on one background thread.

A batch contains the requests that arrived while the previous one ran, and those of the next few milliseconds. Nothing
waits for a full batch. Invariant: every request gets a result, also if its batch fails or the worker is closed.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from time import sleep

from surefoot.core.generation import Generation, GenerationRequest, failed
from surefoot.generate.local_decoding import CLOSED, SequenceRequest

WAIT = 0.005
"""Seconds that the first request of a batch waits for others."""
PROMPT_TOKENS = 1 << 16
"""The most tokens of all prompts in a batch, with their padding. A longer prompt is a batch of its own."""

IsOver = Callable[[int], bool]
"""Whether nobody waits for the request at a position any more: it was cancelled, or the worker was closed."""
Run = Callable[[Sequence[GenerationRequest], IsOver], Iterator[tuple[int, Generation]]]
"""Takes requests; yields the position of each with its result as soon as it is complete."""


class BatchWorker:
    """Passes submitted requests in batches to `run`. The thread starts with the first request.

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
    def __init__(self, run: Run) -> None:
        super().__init__(name="surefoot-generate", daemon=True)
        self.waiting: queue.SimpleQueue[tuple[GenerationRequest, Future[Generation]] | None] = queue.SimpleQueue()
        self.closed = threading.Event()
        self._handle = run

    def run(self) -> None:
        entry = self.waiting.get()
        while entry is not None:
            batch = [entry]
            sleep(0 if self.closed.is_set() else WAIT)
            try:
                while (entry := self.waiting.get_nowait()) is not None:
                    batch.append(entry)
            except queue.Empty:
                pass
            closing = entry is None
            self._deliver([each for each in batch if not each[1].cancelled()])
            entry = None if closing else self.waiting.get()

    def _deliver(self, batch: list[tuple[GenerationRequest, Future[Generation]]]) -> None:
        reason = CLOSED
        if not self.closed.is_set():
            try:
                for at, generation in self._handle(
                    [request for request, _ in batch], lambda at: self.closed.is_set() or batch[at][1].cancelled()
                ):
                    _finish(batch[at][1], generation)
            except BaseException as error:  # a crash inside tokenizers is not an Exception
                reason = describe(error)
        for request, future in batch:
            if not future.done():
                _finish(future, failed(request, reason))


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
    """Yield batches of sequences of similar length, with at most `max_batch` sequences and PROMPT_TOKENS each."""
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
