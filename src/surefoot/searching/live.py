"""Shows a running search in the terminal: the deepest nodes so far, and what has been spent."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

from surefoot.core.search_result import SearchNode
from surefoot.display.terminal import printable
from surefoot.searching.events import SearchEvent

ROWS = 12
"""The most nodes that are shown."""


class LiveView:
    """A table that follows the events of one search. Shows nothing unless `shown`."""

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown
        self._nodes: dict[int, SearchNode] = {}
        self._label = ""
        self._tokens = 0
        self._live: Any = None

    def __enter__(self) -> LiveView:
        if self._shown:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(file=sys.stderr), transient=True, refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, event: SearchEvent) -> None:
        """Take in what happened."""
        self._nodes |= {node.id: node for node in event.nodes}
        self._label = event.label
        self._tokens = event.spent.generated_tokens
        if self._live is not None:
            self._live.update(self.table())

    def table(self) -> Any:
        """The deepest nodes, best first."""
        from rich.table import Table
        from rich.text import Text

        finished = sum(node.end == "answer" for node in self._nodes.values())
        title = f"{self._label}: {len(self._nodes)} nodes, {finished} finished, {self._tokens:,} tokens"
        table = Table(title=title, title_justify="left", box=None, pad_edge=False, expand=True)
        for name, side in (("step", "right"), ("value", "right"), ("", "left")):
            table.add_column(name, justify=side, no_wrap=True, ratio=None if name else 1)  # type: ignore[arg-type]
        order = sorted(self._nodes.values(), key=lambda node: (-node.depth, -(node.value or 0.0), node.id))
        for node in order[:ROWS]:
            value = "-" if node.value is None else f"{node.value:.3f}"
            text = printable(" ".join(node.text.split()))
            table.add_row(str(node.depth), value, Text(text[:100]))
        return table
