"""Weighted fair queueing of prompts at token granularity, without threads or locks.

- Each prompt has a tag: the virtual time at which it would be done if all requests shared the engine evenly, token by
  token. The smallest tags go first.
- Prompts of one question are taken together, whichever request they belong to, so that their shared tokens are computed
  once.
- A question with many tokens is taken alone, so that no small prompt waits for it inside a batch.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count
from math import inf

from surefoot.core.prompt import Prompt

Row = list[float] | Exception
"""The numbers read from a prompt, or why there are none."""

QUESTION_TOKENS = 4_096
"""Solutions of one question stay in one batch up to this many tokens, like one long solution: in two batches their
shared tokens would be computed twice."""
QUANTUM = 256
"""The least tokens that a prompt is charged for, so that a stream of tiny prompts cannot starve the rest."""


@dataclass(eq=False)
class PendingRequest:
    """A submitted request. Its future returns the rows in the order of the prompts; cancelling it cancels them."""

    rows: list[Row]
    arrived: float
    future: Future[list[Row]] = field(default_factory=Future)
    entries: list[Entry] = field(default_factory=list)
    unfinished: int = 0
    """Prompts that are not computed yet."""
    tokens: int = 0
    """The tokens of these prompts."""
    queued: int = 0
    """Prompts that are in the queue."""
    live: bool = False
    """Whether it is neither finished nor cancelled."""


@dataclass(eq=False, slots=True)
class Entry:
    """One prompt of a request."""

    request: PendingRequest
    index: int
    prompt: Prompt
    question: tuple[int, ...]
    """Token ids of the question: prompts that share them belong in one batch."""
    cost: int
    """Tokens of the prompt. Within a request, those of the question count once."""
    tag: float = 0.0
    number: int = 0
    queued: bool = False
    alone: bool = False
    """Whether it must not share a batch with others."""

    @property
    def tokens(self) -> int:
        """Tokens of the prompt, those of the question included."""
        return len(self.prompt.ids)


@dataclass(frozen=True)
class Limits:
    """Which entries a batch takes from the queue."""

    budget: float
    """The batch is full at this many tokens."""
    long: float
    """A question with more tokens than this gets a batch of its own."""
    most: float = inf
    """The batch never has more tokens than this."""
    smaller_than: float = inf
    """Only requests that have fewer tokens left than this are considered. Their siblings are taken in any case."""


class FairQueue:
    """Entries that wait for the engine."""

    def __init__(self) -> None:
        self.virtual_time = 0.0
        """Tokens that each request would have received by now if all shared the engine evenly."""
        self.tokens = self.requests = 0
        self._entries = 0
        # One heap per power of two of the tokens of a request, so that small requests are found behind large ones.
        self._heaps: dict[int, list[tuple[float, int, Entry]]] = {}
        self._questions: dict[tuple[int, ...], dict[int, Entry]] = {}
        self._numbers = count()

    def advance(self, tokens: int, requests: int) -> None:
        """Counts tokens that the engine has computed while it had this many requests to share them."""
        self.virtual_time += tokens / max(1, requests)

    def add(self, entries: Sequence[Entry]) -> None:
        """Queues the entries of a new request."""
        tag = self.virtual_time
        for entry in entries:
            tag += max(entry.cost, QUANTUM)
            entry.tag = tag
            self._push(entry)

    def put_back(self, entry: Entry) -> None:
        """Queues an entry again that was not computed. It keeps its tag and gets a batch of its own."""
        entry.alone = True
        self._push(entry)

    def remove(self, entry: Entry) -> None:
        """Dequeues an entry, if it is queued."""
        if not entry.queued:
            return
        entry.queued = False
        entry.request.queued -= 1
        self.requests -= entry.request.queued == 0
        self.tokens -= entry.cost
        self._entries -= 1
        if not entry.alone:
            siblings = self._questions[entry.question]
            del siblings[entry.number]
            if not siblings:
                del self._questions[entry.question]
        # Removed entries stay in their heap until they reach its top. They must not accumulate meanwhile.
        if (size := sum(map(len, self._heaps.values()))) > 64 and self._entries < size // 2:
            self._compact()

    def first(self, most: float = inf, smaller_than: float = inf) -> Entry | None:
        """The entry with the smallest tag, of those that `Limits` allow.

        Of requests of similar size only the first is considered, so one that just fits may be passed over.
        """
        found: Entry | None = None
        for heap in self._heaps.values():
            while heap and not _is_current(heap[0]):
                heapq.heappop(heap)
            if heap:
                _, _, entry = heap[0]
                fits = entry.tokens <= most and entry.request.tokens < smaller_than
                if fits and (found is None or (entry.tag, entry.number) < (found.tag, found.number)):
                    found = entry
        return found

    def take(self, limits: Limits) -> tuple[list[Entry], int]:
        """Dequeues entries for a batch. Returns them and their tokens; those of a question count once."""
        batch: list[Entry] = []
        questions: set[tuple[int, ...]] = set()
        tokens = 0
        while tokens < limits.budget:
            first = self.first(limits.most - tokens, limits.smaller_than)
            if first is None:
                break
            siblings = list(self._siblings(first))
            together = _shared_cost(siblings)
            alone = first.alone or together > limits.long
            if batch and (alone or tokens + together > 2 * limits.budget):
                break
            for entry in siblings:
                cost = entry.tokens - (entry.prompt.prefix if entry.question in questions else 0)
                if batch and tokens + cost > min(limits.most, max(2 * limits.budget, QUESTION_TOKENS)):
                    break
                self.remove(entry)
                batch.append(entry)
                questions.add(entry.question)
                tokens += cost
            if alone:
                break
        return batch, tokens

    def _siblings(self, first: Entry) -> Iterator[Entry]:
        """An entry and the others of its question. Without a question it is unknown what prompts share."""
        yield first
        if first.question and not first.alone:
            yield from (entry for entry in self._questions[first.question].values() if entry is not first)

    def _push(self, entry: Entry) -> None:
        entry.number = next(self._numbers)
        entry.queued = True
        self.requests += entry.request.queued == 0
        entry.request.queued += 1
        self.tokens += entry.cost
        self._entries += 1
        heap = self._heaps.setdefault(entry.request.tokens.bit_length(), [])
        heapq.heappush(heap, (entry.tag, entry.number, entry))
        if not entry.alone:
            self._questions.setdefault(entry.question, {})[entry.number] = entry

    def _compact(self) -> None:
        for heap in self._heaps.values():
            heap[:] = [item for item in heap if _is_current(item)]
            heapq.heapify(heap)


def entries_of(request: PendingRequest, prompts: Sequence[Prompt]) -> list[Entry]:
    """The entries of prompts that have something to read. The tokens of a question are charged once per request."""
    entries: list[Entry] = []
    seen: set[tuple[int, ...]] = set()
    for index, prompt in enumerate(prompts):
        if prompt.reads:
            question = prompt.ids[: prompt.prefix]
            cost = len(prompt.ids) - (prompt.prefix if question in seen else 0)
            entries.append(Entry(request, index, prompt, question, cost))
            if question:
                seen.add(question)
    return entries


def _is_current(item: tuple[float, int, Entry]) -> bool:
    _, number, entry = item
    return entry.queued and entry.number == number


def _shared_cost(siblings: list[Entry]) -> int:
    """Tokens of prompts that share their question."""
    own = sum(entry.tokens - entry.prompt.prefix for entry in siblings)
    return own + siblings[0].prompt.prefix
