"""What a search reports while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from surefoot.core.search_result import SearchNode, SearchResult, Spent


@dataclass(frozen=True)
class SearchEvent:
    """New nodes of a search, or its end."""

    question: str
    label: str
    """The strategy and its shape, such as `beam 4x2`."""
    spent: Spent
    """What the search has cost so far."""
    nodes: tuple[SearchNode, ...] = ()
    """New nodes, scored. Later rounds may prune or expand them."""
    result: SearchResult | None = None
    """The whole result, once the search has ended."""


Listener = Callable[[SearchEvent], None]


def ignore(event: SearchEvent) -> None:
    """Do nothing with an event."""
