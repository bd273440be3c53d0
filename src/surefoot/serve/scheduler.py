"""Batches the prompts of many requests for one engine: weighted fair queueing at token granularity.

- The engine computes one batch at a time, built from whatever is queued.
- Small requests are not blocked by large ones. Each prompt gets a finish tag: the virtual time at which it would be
  done if all queued requests shared the engine evenly, token by token. The smallest tags go first.
- Prompts of one question go into one batch, whichever request they belong to, so that their shared tokens are computed
  once.
- A batch takes about `batch_seconds`, and longer if many requests are queued: then they share more, and a new request
  waits anyway. If it is worth a batch of its own, the work that the engine can do while replies are on their way stays
  in the queue.
- Before it builds a batch, an idle engine waits briefly for announced requests (see `expecting`): at most a fifth of
  `batch_seconds`.
- A prompt that fails does not affect the other prompts of its batch.
"""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count

from surefoot.core.prompt import Prompt
from surefoot.errors import ServiceError, UnreachableError

logger = logging.getLogger("surefoot.serve")

Compute = Callable[[Sequence[Prompt]], Sequence[list[float]]]
Row = list[float] | Exception
"""The numbers read from a prompt, or why there are none."""

MIN_BATCH_TOKENS = 512
MAX_BATCH_TOKENS = 65_536
QUESTION_TOKENS = 4_096
"""Solutions of one question stay in one batch up to this many tokens, like one long solution: in two batches their
shared tokens would be computed twice."""
REQUESTS_PER_BATCH = 8
"""With more queued requests than this, batches grow in proportion."""
ROUND_TRIP = 0.008
"""Seconds until a client has one reply and its next request is prepared."""
QUANTUM = 256
"""The least tokens that a prompt is charged for, so that a stream of tiny prompts cannot starve the rest."""
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


@dataclass(frozen=True)
class Batch:
    """Statistics of a computed batch."""

    prompts: int
    requests: int
    tokens: int
    seconds: float
    rate: float | None
    """The running average of the tokens per second, this batch included; None before the first measurement."""


@dataclass(eq=False)
class PendingRequest:
    """A request in the queue. Its future returns the rows in the order of the prompts; cancelling it dequeues them."""

    rows: list[Row]
    arrived: float
    future: Future[list[Row]] = field(default_factory=Future)
    entries: list[_Entry] = field(default_factory=list)
    unfinished: int = 0
    """Prompts that are not computed yet."""
    queued: int = 0
    """Prompts that are not in a batch yet."""


@dataclass(eq=False, slots=True)
class _Entry:
    """One prompt of a request."""

    request: PendingRequest
    index: int
    prompt: Prompt
    question: tuple[int, ...]
    """Token ids of the question: prompts that share them belong in one batch."""
    cost: int
    number: int = 0
    queued: bool = True


class Scheduler:
    """The queue and the thread that runs the engine. All methods are thread-safe."""

    def __init__(
        self,
        compute: Compute,
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
        self._compute = compute
        self._linger = linger
        self._batch_seconds = batch_seconds
        self._observe = observe or (lambda batch: None)
        self._changed = threading.Condition()
        self._heap: list[tuple[int, int, _Entry]] = []
        self._questions: dict[tuple[int, ...], dict[int, _Entry]] = {}
        self._numbers = count()
        # Tokens that each queued request would have received by now if all shared the engine evenly.
        self._virtual_time = 0
        self._queued_entries = 0
        self._queued_requests = 0
        self._queued_tokens = self._running_tokens = 0
        self._expected = 0
        self._idle_since = time.monotonic()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=f"surefoot-{name}", daemon=True)
        self._thread.start()

    @property
    def tokens(self) -> int:
        """Tokens queued or being computed."""
        return self._queued_tokens + self._running_tokens

    @property
    def busy(self) -> bool:
        """Whether the engine is computing a batch."""
        return self._running_tokens > 0

    @property
    def alive(self) -> bool:
        """Whether the engine's thread runs."""
        return self._thread.is_alive()

    def submit(self, prompts: Sequence[Prompt]) -> PendingRequest:
        """Queues the prompts of one request."""
        request = PendingRequest([[] for _ in prompts], time.monotonic())
        entries = _entries(request, prompts)
        cost = sum(entry.cost for entry in entries)
        if cost > self.queue_tokens:
            raise TooLargeError(
                f"The request has {cost} tokens; the queue holds {self.queue_tokens}. Send it as several requests."
            )
        with self._changed:
            if self._closed:
                raise ClosedError("The service is stopping and accepts no new work.")
            if (excess := self.tokens + cost - self.queue_tokens) > 0:
                raise QueueFullError(retry_after=None if self.rate is None else excess / self.rate)
            tag = self._virtual_time
            for entry in entries:
                tag += max(entry.cost, QUANTUM)
                entry.number = next(self._numbers)
                heapq.heappush(self._heap, (tag, entry.number, entry))
                self._questions.setdefault(entry.question, {})[entry.number] = entry
            request.entries, request.unfinished, request.queued = entries, len(entries), len(entries)
            self._queued_entries += len(entries)
            self._queued_tokens += cost
            self._queued_requests += bool(entries)
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
            for entry in request.entries:
                self._dequeue(entry)
            # Dequeued entries stay in the heap until they reach its top. They must not accumulate meanwhile.
            if len(self._heap) > 64 and self._queued_entries < len(self._heap) // 2:
                self._heap = [item for item in self._heap if item[2].queued]
                heapq.heapify(self._heap)

    def _dequeue(self, entry: _Entry) -> None:
        if entry.queued:
            entry.queued = False
            entry.request.queued -= 1
            self._queued_requests -= entry.request.queued == 0
            self._queued_entries -= 1
            self._queued_tokens -= entry.cost
            siblings = self._questions[entry.question]
            del siblings[entry.number]
            if not siblings:
                del self._questions[entry.question]

    def _work(self) -> None:
        while (batch := self._wait_for_batch()) is not None:
            rows = self._run(batch)
            with self._changed:
                self._running_tokens = 0
                self._idle_since = time.monotonic()
            for entry, row in zip(batch, rows, strict=True):
                request = entry.request
                request.rows[entry.index] = row
                request.unfinished -= 1
                if request.unfinished == 0:
                    with suppress(InvalidStateError):  # the request may have been cancelled in the meantime
                        request.future.set_result(request.rows)

    def _wait_for_batch(self) -> list[_Entry] | None:
        with self._changed:
            while True:
                while self._heap and not self._heap[0][2].queued:
                    heapq.heappop(self._heap)
                if not self._heap:
                    if self._closed:
                        return None
                    self._changed.wait()
                    continue
                # The first request of a burst waits for the others: briefly in general, longer if they are announced.
                delay = self._batch_seconds / 5 if self._expected else self._linger
                wait = max(self._heap[0][2].request.arrived, self._idle_since) + delay - time.monotonic()
                enough = 2 * self._token_budget() if self._expected else MIN_BATCH_TOKENS
                if wait <= 0 or self._closed or self._queued_tokens >= enough:
                    return self._build_batch()
                self._changed.wait(wait)

    @property
    def _planned_rate(self) -> float:
        return ASSUMED_RATE if self.rate is None else self.rate

    def _token_budget(self) -> float:
        """Tokens that the engine computes in `batch_seconds`, scaled up if many requests are queued."""
        seconds = self._batch_seconds * max(1.0, self._queued_requests / REQUESTS_PER_BATCH)
        return max(min(seconds * self._planned_rate, MAX_BATCH_TOKENS), MIN_BATCH_TOKENS)

    def _without_reserve(self) -> float:
        """Queued tokens minus those that keep the engine busy while the replies of this batch are on their way."""
        queued = self._queued_tokens
        on_their_way = self._queued_requests * ROUND_TRIP * self._planned_rate  # if all were answered now
        rest = queued * queued / (queued + on_their_way)
        return rest if queued - rest >= MIN_BATCH_TOKENS else queued

    def _build_batch(self) -> list[_Entry]:
        budget = max(min(self._token_budget(), self._without_reserve()), MIN_BATCH_TOKENS)
        batch: list[_Entry] = []
        questions: set[tuple[int, ...]] = set()
        sharing = max(1, self._queued_requests)
        tokens = 0
        while self._heap and tokens < budget:
            first = self._heap[0][2]
            if not first.queued:
                heapq.heappop(self._heap)
                continue
            siblings = self._siblings(first)
            if batch and tokens + _shared_cost(siblings) > 2 * budget:
                break
            for entry in siblings:
                cost = len(entry.prompt.ids) - (entry.prompt.prefix if entry.question in questions else 0)
                if batch and tokens + cost > max(2 * budget, QUESTION_TOKENS):
                    break
                self._dequeue(entry)
                batch.append(entry)
                questions.add(entry.question)
                tokens += cost
        self._virtual_time += max(1, tokens // sharing)
        self._running_tokens = tokens
        return batch

    def _siblings(self, first: _Entry) -> list[_Entry]:
        """An entry and the others of its question. Without a question it is unknown what prompts share."""
        if not first.question:
            return [first]
        return [first, *(entry for entry in self._questions[first.question].values() if entry is not first)]

    def _run(self, batch: list[_Entry]) -> list[Row]:
        started = time.perf_counter()
        rows = self._compute_rows([entry.prompt for entry in batch])
        seconds = time.perf_counter() - started
        # A rejected prompt takes no time, which says nothing about the engine's rate.
        tokens = 0 if any(isinstance(row, Exception) for row in rows) else self._running_tokens
        if tokens >= MIN_BATCH_TOKENS // 2:
            measured = tokens / max(seconds, 1e-6)
            self.rate = measured if self.rate is None else self.rate + 0.3 * (measured - self.rate)
        requests = len({id(entry.request) for entry in batch})
        self._observe(Batch(len(batch), requests, tokens, seconds, self.rate))
        return rows

    def _compute_rows(self, prompts: list[Prompt]) -> list[Row]:
        try:
            return list(self._compute(prompts))
        except UnreachableError as error:
            return [error] * len(prompts)  # a remote engine is down: computing prompts one by one would not help
        except Exception as error:
            if len(prompts) == 1:
                logger.exception("The engine failed on a prompt of %d tokens.", len(prompts[0].ids))
                return [error]
        return [row for prompt in prompts for row in self._compute_rows([prompt])]


def _entries(request: PendingRequest, prompts: Sequence[Prompt]) -> list[_Entry]:
    """The entries of prompts that have something to read. The tokens of a question are charged once per request."""
    entries: list[_Entry] = []
    seen: set[tuple[int, ...]] = set()
    for index, prompt in enumerate(prompts):
        if prompt.reads:
            question = prompt.ids[: prompt.prefix]
            cost = len(prompt.ids) - (prompt.prefix if question in seen else 0)
            entries.append(_Entry(request, index, prompt, question, cost))
            if question:
                seen.add(question)
    return entries


def _shared_cost(siblings: list[_Entry]) -> int:
    """Tokens of prompts that share their question."""
    own = sum(len(entry.prompt.ids) - entry.prompt.prefix for entry in siblings)
    return own + siblings[0].prompt.prefix
