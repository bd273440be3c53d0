"""Computes the prompts of many requests with one engine: batches them, and preempts long batches between packs.

- The engine computes one pack at a time. Batches are built from whatever is queued: see `fair_queue`.
- A batch takes about `batch_seconds`, and longer if many requests are queued: then they share more, and a new request
  waits anyway. If it is worth a batch of its own, the work that the engine can do while replies are on their way stays
  in the queue.
- Small requests are not blocked by large ones: between two packs, a batch is suspended for smaller requests. They get
  at most half of the tokens that it still has to compute, so the keys and values of suspended batches form a geometric
  series. A batch that lags behind its fair share of the engine is suspended after every other pack at most.
- A batch whose requests are cancelled stops after the current pack.
- Before it builds a batch, an idle engine waits briefly for announced requests (see `expecting`): at most a fifth of
  `batch_seconds`.
- A prompt that fails does not affect the other prompts of its batch.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import InvalidStateError
from contextlib import contextmanager, suppress

from surefoot.core.prompt import Prompt
from surefoot.engine.results import Packs
from surefoot.errors import ServiceError, UnreachableError
from surefoot.serve.batch_size import MIN_BATCH_TOKENS, long_tokens, token_budget, without_reserve
from surefoot.serve.fair_queue import Entry, FairQueue, Limits, PendingRequest, Row, entries_of
from surefoot.serve.running_batch import Batch, RunningBatch, cost_of

logger = logging.getLogger("surefoot.serve")

ASSUMED_RATE = 2_000.0
"""Tokens per second that batches are sized for until the rate of the engine is measured. It is never reported."""


class QueueFullError(ServiceError):
    """The queue is full. `retry_after`: seconds until this request would fit, or None if the rate is not known yet."""

    def __init__(self, retry_after: float | None) -> None:
        super().__init__("The queue is full. Retry later, or send fewer requests at a time.")
        self.retry_after = retry_after


class ClosedError(ServiceError):
    """The scheduler accepts no new requests."""


class TooLargeError(ServiceError):
    """The request would not fit into an empty queue."""


class Scheduler:
    """The queue and the thread that runs the engine. All methods are thread-safe."""

    def __init__(
        self,
        packs: Packs,
        *,
        name: str = "engine",
        linger: float = 0.003,
        batch_seconds: float = 0.25,
        queue_tokens: int = 500_000,
        observe: Callable[[Batch], None] | None = None,
    ) -> None:
        self.queue_tokens = queue_tokens
        self.rate: float | None = None
        """Tokens per second, shared tokens counted once: a running average. None before the first measurement."""
        self._packs = packs
        self._linger = linger
        self._batch_seconds = batch_seconds
        self._observe = observe or (lambda batch: None)
        self._changed = threading.Condition()
        self._queue = FairQueue()
        # The last batch runs, those before it are suspended.
        self._running: list[RunningBatch] = []
        self._requests = 0  # neither finished nor cancelled
        self._cancelled = False  # whether a request was cancelled since the last pack
        self._pack_tokens = MIN_BATCH_TOKENS  # of the largest pack so far
        self._expected = 0
        self._idle_since = time.monotonic()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=f"surefoot-{name}", daemon=True)
        self._thread.start()

    @property
    def tokens(self) -> int:
        """Tokens queued or being computed."""
        with self._changed:
            return self._queue.tokens + sum(batch.remaining for batch in self._running)

    @property
    def busy(self) -> bool:
        """Whether the engine is computing a batch."""
        return bool(self._running)

    @property
    def alive(self) -> bool:
        """Whether the engine's thread runs."""
        return self._thread.is_alive()

    def submit(self, prompts: Sequence[Prompt]) -> PendingRequest:
        """Queues the prompts of one request."""
        request = PendingRequest([[] for _ in prompts], time.monotonic())
        entries = entries_of(request, prompts)
        cost = cost_of(entries)
        if cost > self.queue_tokens:
            raise TooLargeError(
                f"The request has {cost} tokens; the queue holds {self.queue_tokens}. Send it as several requests."
            )
        with self._changed:
            if self._closed:
                raise ClosedError("The service is stopping and accepts no new work.")
            if (excess := self.tokens + cost - self.queue_tokens) > 0:
                raise QueueFullError(retry_after=None if self.rate is None else excess / self.rate)
            if entries:
                request.entries, request.unfinished, request.tokens = entries, len(entries), cost
                request.live = True
                self._requests += 1
                self._queue.add(entries)
                self._changed.notify_all()
        if not entries:
            request.future.set_result(request.rows)
        request.future.add_done_callback(lambda future: self._cancel(request) if future.cancelled() else None)
        return request

    @contextmanager
    def expecting(self) -> Iterator[None]:
        """Announces a request that is being prepared, so that the engine waits for it."""
        with self._changed:
            self._expected += 1
        try:
            yield
        finally:
            with self._changed:
                self._expected -= 1
                if self._expected == 0:
                    self._changed.notify_all()

    def close(self) -> None:
        """Accepts no new requests, finishes the queued ones, and ends the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def _cancel(self, request: PendingRequest) -> None:
        with self._changed:
            if request.live:
                request.live = False
                self._requests -= 1
                self._cancelled = True
                for entry in request.entries:
                    self._queue.remove(entry)

    def _work(self) -> None:
        while (batch := self._next_batch()) is not None:
            for request in self._run_pack(batch):
                with suppress(InvalidStateError):  # the request may have been cancelled in the meantime
                    request.future.set_result(request.rows)

    def _run_pack(self, batch: RunningBatch) -> list[PendingRequest]:
        """Computes the next pack of a batch. Returns the requests that are finished now."""
        rows: list[tuple[Entry, Row]] = []
        failure: Exception | None = None
        tokens, started = batch.computed, time.perf_counter()
        try:
            rows = batch.next_pack(self._packs)
        except Exception as error:
            failure = error
        batch.seconds += time.perf_counter() - started
        tokens = batch.computed - tokens
        with self._changed:
            self._pack_tokens = max(self._pack_tokens, tokens)
            self._queue.advance(tokens, self._requests)
            if failure is not None:
                rows = self._fail(batch, failure)
            elif not batch.unfinished:
                self._end(batch, batch.tokens, complete=True)
            return self._record(rows)

    def _next_batch(self) -> RunningBatch | None:
        """The batch whose next pack is to be computed, or None when the scheduler is closed and all is done."""
        with self._changed:
            self._drop_cancelled()
            if self._running:
                self._preempt(self._running[-1])
            elif self._wait_for_entries():
                available = without_reserve(self._queue.tokens, self._planned_rate, self._queue.requests)
                budget = max(min(self._token_budget(), available), MIN_BATCH_TOKENS)
                self._start(Limits(budget, self._long_tokens()))
            else:
                return None
            return self._running[-1]

    def _wait_for_entries(self) -> bool:
        """Waits until a batch can be built. Returns whether there is anything to compute."""
        while True:
            first = self._queue.first()
            if first is None:
                if self._closed:
                    return False
                self._changed.wait()
                continue
            # The first request of a burst waits for the others: briefly in general, longer if they are announced.
            delay = self._batch_seconds / 5 if self._expected else self._linger
            wait = max(first.request.arrived, self._idle_since) + delay - time.monotonic()
            enough = 2 * self._token_budget() if self._expected else MIN_BATCH_TOKENS
            if wait <= 0 or self._closed or self._queue.tokens >= enough:
                return True
            self._changed.wait(wait)

    def _preempt(self, batch: RunningBatch) -> None:
        """Suspends a batch that has half a pack left or more, if a queued request is smaller than all that wait for it.

        A batch that lags behind its fair share computes at least as many packs as those that suspend it.
        """
        if not self._queue.tokens or batch.remaining < self._pack_tokens / 2:
            return
        most = batch.remaining // 2
        if batch.lags(self._queue.virtual_time):
            most = min(most, self._pack_tokens) if batch.resumed else 0
        smallest = min((request.tokens for request in batch.requests), default=0)
        if self._start(Limits(min(self._token_budget(), most), self._long_tokens(), most, smallest)):
            batch.resumed = False

    def _start(self, limits: Limits) -> bool:
        """Starts a batch of queued entries, if the limits allow any."""
        entries, tokens = self._queue.take(limits)
        if entries:
            self._running.append(RunningBatch(entries, tokens, started=self._queue.virtual_time))
        return bool(entries)

    @property
    def _planned_rate(self) -> float:
        return ASSUMED_RATE if self.rate is None else self.rate

    def _token_budget(self) -> float:
        return token_budget(self._batch_seconds, self._planned_rate, self._queue.requests)

    def _long_tokens(self) -> float:
        return long_tokens(self._batch_seconds, self._planned_rate, self._pack_tokens)

    def _drop_cancelled(self) -> None:
        """Drops batches whose unfinished entries are cancelled, or most of them by tokens.

        The others are queued again, at most once each: then they have a batch of their own.
        """
        if self._cancelled:
            self._cancelled = False
            for batch in list(self._running):
                cancelled, live = batch.cancelled()
                if cost_of(cancelled) > cost_of(live):
                    self._end(batch, min(batch.computed, batch.tokens), complete=False)
                    for entry in live:
                        self._queue.put_back(entry)

    def _fail(self, batch: RunningBatch, error: Exception) -> list[tuple[Entry, Row]]:
        """Ends a batch that failed. Returns rows for the entries that are to blame; the others are queued again."""
        self._end(batch, 0, complete=False)
        _, live = batch.cancelled()
        if isinstance(error, UnreachableError):
            return [(entry, error) for entry in live]  # a remote engine is down: to compute them again would not help
        if len(batch.unfinished) == 1:
            (entry,) = batch.unfinished.values()
            logger.error("The engine failed on a prompt of %d tokens.", entry.tokens, exc_info=error)
            return [(entry, error)]
        for entry in live:
            self._queue.put_back(entry)
        return []

    def _end(self, batch: RunningBatch, tokens: int, *, complete: bool) -> None:
        """Removes a batch and reports it. Only a complete one says something about the rate."""
        batch.close()
        self._running.remove(batch)
        self._idle_since = time.monotonic()
        if complete and tokens >= MIN_BATCH_TOKENS // 2:
            measured = tokens / max(batch.seconds, 1e-6)
            self.rate = measured if self.rate is None else self.rate + 0.3 * (measured - self.rate)
        self._observe(batch.statistics(tokens, self.rate))

    def _record(self, rows: list[tuple[Entry, Row]]) -> list[PendingRequest]:
        """Stores rows in their requests. Returns the requests that are finished by them."""
        finished: list[PendingRequest] = []
        for entry, row in rows:
            request = entry.request
            request.rows[entry.index] = row
            request.unfinished -= 1
            request.tokens -= entry.cost
            if request.unfinished == 0 and request.live:
                request.live = False
                self._requests -= 1
                finished.append(request)
        return finished
