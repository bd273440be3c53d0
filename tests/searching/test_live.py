"""The live view shows the deepest nodes of a running search, and no text can change how it is drawn."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys

import pytest
from rich.console import Console

from surefoot.core.search_result import SearchNode, Spent
from surefoot.searching.events import SearchEvent
from surefoot.searching.live import ROWS, LiveView


def drawn(view: LiveView) -> str:
    console = Console(file=io.StringIO(), width=100, color_system=None)
    console.print(view.table())
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def node(id: int, depth: int, text: str, value: float | None = 0.5) -> SearchNode:
    return SearchNode(id, 0, text, "step", tokens=10, depth=depth, value=value)


def event(*nodes: SearchNode, tokens: int = 0) -> SearchEvent:
    return SearchEvent("What?", "beam 4x2", Spent(generated_tokens=tokens), nodes)


def test_the_deepest_and_best_nodes_come_first() -> None:
    view = LiveView(shown=False)
    view.show(event(node(1, 1, "One"), node(2, 1, "Two", 0.9), node(3, 1, "Odd", None), tokens=30))
    view.show(event(node(4, 2, "Deep\n\n", 0.123), tokens=55))  # with those of a lookahead
    lines = drawn(view).splitlines()
    assert lines[0].strip() == "beam 4x2: 4 nodes, 0 finished, 55 tokens, 0 s"
    assert [line.split() for line in lines[2:]] == [
        ["2", "0.123", "Deep"],
        ["1", "0.900", "Two"],
        ["1", "0.500", "One"],
        ["1", "-", "Odd"],
    ]


def test_a_large_tree_is_cut() -> None:
    view = LiveView(shown=False)
    view.show(event(*(node(at, 1, f"Step {at}") for at in range(1, 100))))
    assert len(drawn(view).splitlines()) == 2 + ROWS


def test_markup_and_escape_codes_are_text() -> None:
    view = LiveView(shown=False)
    view.show(event(node(1, 1, "[red]so[/red] \x1b[31m7")))
    assert "[red]so[/red]" in drawn(view)
    assert "\x1b" not in drawn(view)


SHOW = """
from surefoot.core.search_result import SearchNode, Spent
from surefoot.searching.events import SearchEvent
from surefoot.searching.live import LiveView

with LiveView(shown=True) as view:
    node = SearchNode(1, 0, "One", "step", tokens=7, depth=1, value=0.5)
    view.show(SearchEvent("What?", "beam 4x2", Spent(generated_tokens=7), (node,)))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals.")
def test_a_view_draws_in_a_real_terminal() -> None:
    import pty

    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    child = subprocess.run([sys.executable, "-c", SHOW], stderr=theirs, stdout=subprocess.PIPE, env=environment)
    os.close(theirs)
    told = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert (child.returncode, child.stdout) == (0, b"")
    assert "beam 4x2: 1 node, 0 finished, 7 tokens" in told
    assert "One" in told


SLOW = """
import time
from surefoot.core.search_result import SearchNode, Spent
from surefoot.display import progress
from surefoot.searching import live
from surefoot.searching.events import SearchEvent

progress.LINE_EVERY, live.TICK = 0.2, 0.05
with live.LiveView("beam", shown=True) as view:
    time.sleep(1)  # the generator writes
    node = SearchNode(1, 0, "One", "answer", tokens=7, depth=1, value=0.5)
    view.show(SearchEvent("What?", "beam 4x2", Spent(generated_tokens=7), (node,)))
"""


def test_without_a_terminal_lines_tell_that_it_goes_on() -> None:
    child = subprocess.run([sys.executable, "-c", SLOW], capture_output=True, text=True)
    assert (child.returncode, child.stdout) == (0, "")
    first, *_, last = child.stderr.splitlines()
    assert re.fullmatch(r"surefoot: 0 nodes, \d+ s, beam: 0 finished, 0 tokens", first)
    assert re.fullmatch(r"surefoot: 1 node, \d+ s, beam 4x2: 1 finished, 7 tokens", last)


def test_a_short_search_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    for shown in (True, False):
        with LiveView(shown=shown) as view:
            view.show(event(node(1, 1, "One")))
    assert capsys.readouterr() == ("", "")
