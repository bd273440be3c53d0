"""Shows a running search: in a terminal the deepest nodes so far, elsewhere a line every few seconds.

Both go on while the generator writes, because a round can take minutes.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from surefoot.core.search_result import SearchNode
from surefoot.display.counting import counted
from surefoot.display.progress import Progress
from surefoot.display.terminal import printable
from surefoot.searching.events import SearchEvent

ROWS = 12
"""The most nodes that are shown."""
TICK = 0.5
"""Seconds between two looks at the clock where there is no terminal."""


class LiveView:
    """Follows the events of one search and shows them on standard error. Shows nothing unless `shown`."""

    def __init__(self, label: str = "search", *, shown: bool) -> None:
        self._shown = shown
        self._nodes: dict[int, SearchNode] = {}
        self._label = label
        self._tokens = 0
        self._started = time.perf_counter()
        self._live: Any = None
        self._ended = threading.Event()
        self._ticker: threading.Thread | None = None

    def __enter__(self) -> LiveView:
        if self._shown and sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(file=sys.stderr)
            self._live = Live(get_renderable=self.table, console=console, transient=True, refresh_per_second=4)
            self._live.start()
        elif self._shown:
            self._ticker = threading.Thread(target=self._print_lines, name="surefoot-search-progress", daemon=True)
            self._ticker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
        if self._ticker is not None:
            self._ended.set()
            self._ticker.join()

    def show(self, event: SearchEvent) -> None:
        """Take in what happened."""
        self._nodes = {**self._nodes, **{node.id: node for node in event.nodes}}  # another thread reads the old one
        self._label = event.label
        self._tokens = event.spent.generated_tokens

    def _print_lines(self) -> None:
        shown = 0
        with Progress(None, shown=True, unit="node") as bar:
            over = False
            while not over:
                over = self._ended.wait(TICK)
                nodes = self._nodes
                bar.update(len(nodes) - shown, f"{self._label}: {_finished(nodes)} finished, {self._tokens:,} tokens")
                shown = len(nodes)

    def table(self) -> Any:
        """The deepest nodes, best first."""
        from rich.table import Table
        from rich.text import Text

        nodes, seconds = self._nodes, time.perf_counter() - self._started
        counts = [counted(len(nodes), "node"), f"{_finished(nodes)} finished", counted(self._tokens, "token")]
        title = f"{self._label}: {', '.join(counts)}, {seconds:.0f} s"
        table = Table(title=title, title_justify="left", box=None, pad_edge=False, expand=True)
        for name, side in (("step", "right"), ("value", "right"), ("", "left")):
            table.add_column(name, justify=side, no_wrap=True, ratio=None if name else 1)  # type: ignore[arg-type]
        order = sorted(nodes.values(), key=lambda node: (-node.depth, -(node.value or 0.0), node.id))
        for node in order[:ROWS]:
            value = "-" if node.value is None else f"{node.value:.3f}"
            text = printable(" ".join(node.text.split()))
            table.add_row(str(node.depth), value, Text(text[:100]))
        return table


def _finished(nodes: Mapping[int, SearchNode]) -> int:
    return sum(node.end == "answer" for node in nodes.values())
