"""Requests of many callers, made into work for one engine.

The rule: the engine computes one slice at a time, made of whatever waits. Who asks for little is not stuck behind who
asks for much: every prompt gets a tag, the time at which it would be done if all requests that wait shared the engine
evenly, token by token, and the smallest tags go first. Prompts of one question go together, whoever sent them, so that
its tokens are computed once. A slice is about as long as `slice_seconds`, longer where many requests wait (they share
the more, and who comes then waits anyway). It leaves behind what the engine can compute while the answers travel, if
that is worth a slice. Before a slice is cut, the engine waits a moment for requests that are announced (see
`expecting`): a fifth of `slice_seconds` at most. A failure of one prompt is that prompt's alone.
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
"""The numbers of a prompt, or why there are none."""

SMALLEST_SLICE = 512
LARGEST_SLICE = 65_536
WHOLE_QUESTION = 4_096
"""Solutions of one question are computed together up to so many tokens, as one long solution would be: in two slices,
what they share would be computed twice."""
FEW_REQUESTS = 8
TRAVEL = 0.008
"""Seconds that a process needs to send one answer and to prepare the request that follows it."""
QUANTUM = 256
"""Tokens that a prompt counts for at least: so a stream of tiny ones does not pass by the rest for ever."""
FIRST_RATE = 2_000.0
"""Tokens a second, until the engine has shown its own."""


class QueueFullError(ServiceError):
    """More waits than may wait; `retry_after` is in how many seconds this request would fit."""

    def __init__(self, retry_after: float) -> None:
        super().__init__("The queue is full. Try again later, or send fewer requests at a time.")
        self.retry_after = retry_after


class ClosedError(ServiceError):
    """Nothing new is taken."""


class TooLargeError(ServiceError):
    """A request that would not fit into an empty queue."""


@dataclass(frozen=True)
class Slice:
    """What the engine has just computed."""

    prompts: int
    requests: int
    tokens: int
    seconds: float


@dataclass(eq=False)
class Ticket:
    """One request in the queue. Its future gives the rows in the order of the prompts; cancel it to leave."""

    rows: list[Row]
    arrived: float
    future: Future[list[Row]] = field(default_factory=Future)
    entries: list[_Entry] = field(default_factory=list)
    left: int = 0
    """Prompts that are not computed yet."""
    waiting: int = 0
    """Prompts that are not taken up yet."""


@dataclass(eq=False, slots=True)
class _Entry:
    """One prompt of a ticket."""

    ticket: Ticket
    place: int
    prompt: Prompt
    group: tuple[int, ...]
    """The ids of the question: prompts that share them should be computed together."""
    cost: int
    number: int = 0
    waiting: bool = True


class Scheduler:
    """The queue, and the thread that runs the engine. Every method may be called from any thread."""

    def __init__(
        self,
        compute: Compute,
        *,
        name: str = "engine",
        linger: float = 0.003,
        slice_seconds: float = 0.25,
        queue_tokens: int = 500_000,
        observe: Callable[[Slice], None] | None = None,
    ) -> None:
        self.queue_tokens = queue_tokens
        self.rate = FIRST_RATE
        """Tokens a second, shared ones counted once: a running average."""
        self._compute = compute
        self._linger = linger
        self._slice_seconds = slice_seconds
        self._observe = observe or (lambda done: None)
        self._changed = threading.Condition()
        self._heap: list[tuple[int, int, _Entry]] = []
        self._groups: dict[tuple[int, ...], dict[int, _Entry]] = {}
        self._numbers = count()
        # What each of those who wait has had of the engine by now, in tokens, if they shared it evenly.
        self._clock = 0
        self._waiting_entries = 0
        self._waiting_tokens = self._running_tokens = 0
        self._waiting_tickets = 0
        self._expected = 0
        self._free_since = time.monotonic()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=f"surefoot-{name}", daemon=True)
        self._thread.start()

    @property
    def tokens(self) -> int:
        """Tokens that wait or are being computed."""
        return self._waiting_tokens + self._running_tokens

    @property
    def alive(self) -> bool:
        """Whether the engine's thread is there to answer."""
        return self._thread.is_alive()

    def submit(self, prompts: Sequence[Prompt]) -> Ticket:
        """Puts the prompts of one request into the queue."""
        ticket = Ticket([[] for _ in prompts], time.monotonic())
        drafts = self._drafts(ticket, prompts)
        cost = sum(entry.cost for entry in drafts)
        if cost > self.queue_tokens:
            raise TooLargeError(
                f"The request has {cost} tokens, and the queue takes {self.queue_tokens}. Send it in several requests."
            )
        with self._changed:
            if self._closed:
                raise ClosedError("The service is stopping and takes no new work.")
            if (excess := self.tokens + cost - self.queue_tokens) > 0:
                raise QueueFullError(retry_after=excess / self.rate)
            tag = self._clock
            for entry in drafts:
                tag += max(entry.cost, QUANTUM)
                entry.number = next(self._numbers)
                heapq.heappush(self._heap, (tag, entry.number, entry))
                self._groups.setdefault(entry.group, {})[entry.number] = entry
            ticket.entries, ticket.left, ticket.waiting = drafts, len(drafts), len(drafts)
            self._waiting_entries += len(drafts)
            self._waiting_tokens += cost
            self._waiting_tickets += bool(drafts)
            self._changed.notify_all()
        if not drafts:
            ticket.future.set_result(ticket.rows)
        ticket.future.add_done_callback(lambda future: self._leave(ticket) if future.cancelled() else None)
        return ticket

    @contextmanager
    def expecting(self) -> Iterator[None]:
        """Announces a request that is being prepared."""
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
        """Takes nothing new, finishes what waits, and ends the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    @staticmethod
    def _drafts(ticket: Ticket, prompts: Sequence[Prompt]) -> list[_Entry]:
        drafts: list[_Entry] = []
        seen: set[tuple[int, ...]] = set()
        for place, prompt in enumerate(prompts):
            if prompt.reads:
                group = prompt.ids[: prompt.prefix]
                cost = len(prompt.ids) - (prompt.prefix if group in seen else 0)
                drafts.append(_Entry(ticket, place, prompt, group, cost))
                if group:
                    seen.add(group)
        return drafts

    def _leave(self, ticket: Ticket) -> None:
        with self._changed:
            for entry in ticket.entries:
                self._take(entry)
            # What was taken out is still in the heap. It must not pile up there while nothing is computed.
            if len(self._heap) > 64 and self._waiting_entries < len(self._heap) // 2:
                self._heap = [item for item in self._heap if item[2].waiting]
                heapq.heapify(self._heap)

    def _take(self, entry: _Entry) -> None:
        if entry.waiting:
            entry.waiting = False
            entry.ticket.waiting -= 1
            self._waiting_tickets -= entry.ticket.waiting == 0
            self._waiting_entries -= 1
            self._waiting_tokens -= entry.cost
            group = self._groups[entry.group]
            del group[entry.number]
            if not group:
                del self._groups[entry.group]

    def _work(self) -> None:
        while (picked := self._next_slice()) is not None:
            rows = self._run(picked)
            with self._changed:
                self._running_tokens = 0
                self._free_since = time.monotonic()
            for entry, row in zip(picked, rows, strict=True):
                ticket = entry.ticket
                ticket.rows[entry.place] = row
                ticket.left -= 1
                if ticket.left == 0:
                    with suppress(InvalidStateError):  # the caller may have left in the meantime
                        ticket.future.set_result(ticket.rows)

    def _next_slice(self) -> list[_Entry] | None:
        with self._changed:
            while True:
                while self._heap and not self._heap[0][2].waiting:
                    heapq.heappop(self._heap)
                if not self._heap:
                    if self._closed:
                        return None
                    self._changed.wait()
                    continue
                # The first of a burst waits for the others: a moment for those who may come, longer for the announced.
                moment = self._slice_seconds / 5 if self._expected else self._linger
                wait = max(self._heap[0][2].ticket.arrived, self._free_since) + moment - time.monotonic()
                enough = 2 * self._room() if self._expected else SMALLEST_SLICE
                if wait <= 0 or self._closed or self._waiting_tokens >= enough:
                    return self._pick()
                self._changed.wait(wait)

    def _room(self) -> float:
        """Tokens of a slice: what the engine computes in `slice_seconds`, and as much again for every few requests."""
        seconds = self._slice_seconds * max(1.0, self._waiting_tickets / FEW_REQUESTS)
        return max(min(seconds * self.rate, LARGEST_SLICE), SMALLEST_SLICE)

    def _all_but_the_next(self) -> float:
        """Tokens of what waits, without those that can be computed while the answers of the others travel."""
        waiting = self._waiting_tokens
        travelling = self._waiting_tickets * TRAVEL * self.rate  # if all of it were answered now
        all_but = waiting * waiting / (waiting + travelling)
        return all_but if waiting - all_but >= SMALLEST_SLICE else waiting

    def _pick(self) -> list[_Entry]:
        room = max(min(self._room(), self._all_but_the_next()), SMALLEST_SLICE)
        picked: list[_Entry] = []
        groups: set[tuple[int, ...]] = set()
        sharing = max(1, self._waiting_tickets)
        tokens = 0
        while self._heap and tokens < room:
            first = self._heap[0][2]
            if not first.waiting:
                heapq.heappop(self._heap)
                continue
            group = self._siblings(first)
            if picked and tokens + _cost(group) > 2 * room:
                break
            for entry in group:
                cost = len(entry.prompt.ids) - (entry.prompt.prefix if entry.group in groups else 0)
                if picked and tokens + cost > max(2 * room, WHOLE_QUESTION):
                    break
                self._take(entry)
                picked.append(entry)
                groups.add(entry.group)
                tokens += cost
        self._clock += max(1, tokens // sharing)
        self._running_tokens = tokens
        return picked

    def _siblings(self, first: _Entry) -> list[_Entry]:
        """A prompt, and the others of its question. Of prompts without a question nothing says what they share."""
        if not first.group:
            return [first]
        return [first, *(entry for entry in self._groups[first.group].values() if entry is not first)]

    def _run(self, picked: list[_Entry]) -> list[Row]:
        started = time.perf_counter()
        rows = self._computed([entry.prompt for entry in picked])
        seconds = time.perf_counter() - started
        # A prompt that was refused took no time, which says nothing of the engine's speed.
        tokens = 0 if any(isinstance(row, Exception) for row in rows) else self._running_tokens
        if tokens >= SMALLEST_SLICE // 2:
            self.rate += 0.3 * (tokens / max(seconds, 1e-6) - self.rate)
        self._observe(Slice(len(picked), len({id(entry.ticket) for entry in picked}), tokens, seconds))
        return rows

    def _computed(self, prompts: list[Prompt]) -> list[Row]:
        try:
            return list(self._compute(prompts))
        except UnreachableError as error:
            return [error] * len(prompts)  # the engine is elsewhere and does not answer: it is nobody's fault here
        except Exception as error:
            if len(prompts) == 1:
                logger.exception("The engine failed on a prompt of %d tokens.", len(prompts[0].ids))
                return [error]
        return [row for prompt in prompts for row in self._computed([prompt])]


def _cost(group: list[_Entry]) -> int:
    """Tokens of prompts that share their question."""
    own = sum(len(entry.prompt.ids) - entry.prompt.prefix for entry in group)
    return own + group[0].prompt.prefix
