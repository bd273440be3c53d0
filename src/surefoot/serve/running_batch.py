"""A batch that the engine has begun to compute. It may be suspended between two packs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from surefoot.engine.results import PackResults, Packs
from surefoot.errors import SurefootError
from surefoot.serve.fair_queue import Entry, PendingRequest, Row


@dataclass(frozen=True)
class Batch:
    """Statistics of a computed batch."""

    prompts: int
    requests: int
    tokens: int
    """Its tokens, or those computed before it was cancelled; 0 if a prompt failed."""
    seconds: float
    """How long its own packs took."""
    rate: float | None
    """The running average of the tokens per second, this batch included; None before the first measurement."""


@dataclass(eq=False)
class RunningBatch:
    """The entries of one call of the engine, and how far it is."""

    entries: list[Entry]
    tokens: int
    """All of its tokens; those of a question count once."""
    started: float
    """The virtual time at which it started."""
    computed: int = 0
    """Tokens computed so far."""
    seconds: float = 0.0
    """How long its own packs have taken so far."""
    unfinished: dict[int, Entry] = field(init=False)
    """The entries that are not computed yet, by their index."""
    resumed: bool = True
    """Whether it has computed a pack since it was suspended."""
    _results: PackResults | None = None

    def __post_init__(self) -> None:
        self.unfinished = dict(enumerate(self.entries))

    @property
    def requests(self) -> list[PendingRequest]:
        """The requests that wait for it."""
        return list({id(each.request): each.request for each in self.unfinished.values() if each.request.live}.values())

    def lags(self, virtual_time: float) -> bool:
        """Whether it has computed less than the fair share of its requests since it started."""
        return self.computed < len(self.requests) * (virtual_time - self.started)

    @property
    def remaining(self) -> int:
        """Tokens that are not computed yet.

        An engine that runs out of memory, or reads a score that is not finite, computes tokens again. A batch with more
        tokens than expected is assumed to take as many once more.
        """
        return self.tokens - self.computed % self.tokens

    def next_pack(self, packs: Packs) -> list[tuple[Entry, Row]]:
        """Computes the next pack. Returns the entries that it completed, and their rows."""
        if self._results is None:
            self._results = packs([entry.prompt for entry in self.entries])
        result = next(self._results, None)
        if result is None:
            raise SurefootError(f"The engine returned no scores for {len(self.unfinished)} prompts.")
        self.computed += result.tokens
        self.resumed = True
        return [(self.unfinished.pop(index), row.tolist()) for index, row in result.completed]

    def cancelled(self) -> tuple[list[Entry], list[Entry]]:
        """Its unfinished entries: those of cancelled requests, and the others."""
        cancelled = [entry for entry in self.unfinished.values() if not entry.request.live]
        return cancelled, [entry for entry in self.unfinished.values() if entry.request.live]

    def statistics(self, tokens: int, rate: float | None) -> Batch:
        """Its statistics, given the tokens to report and the rate of the engine."""
        requests = len({id(entry.request) for entry in self.entries})
        return Batch(len(self.entries), requests, tokens, self.seconds, rate)

    def close(self) -> None:
        """Cancels the rest, and releases its keys and values."""
        if self._results is not None:
            self._results.close()


def cost_of(entries: Iterable[Entry]) -> int:
    """Tokens of entries, as their requests count them."""
    return sum(entry.cost for entry in entries)
