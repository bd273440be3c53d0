"""Tables of results, as they reach a terminal."""

from __future__ import annotations

from dataclasses import replace

from surefoot.display.tables import table
from surefoot.evaluate import ProcessBenchRow, processbench

CLEAR = "\x1b[2J\x1b]0;taken\x07"


def test_no_escape_code_of_the_data_reaches_the_terminal() -> None:
    rows = [
        ProcessBenchRow("x", f"{CLEAR}split", "p", ("s",), label, scores=(score,), generator=f"{CLEAR}generator")
        for label, score in ((0, 0.1), (-1, 0.9))
    ]
    result = processbench(None, rows, draws=0, name=f"{CLEAR}model", tune_on=f"{CLEAR}split")
    shown = str(replace(result, notes=(f"{CLEAR}note",)))
    assert all(char.isprintable() or char == "\n" for char in shown)
    for name in ("split", "generator", "model", "note"):
        assert f"·[2J·]0;taken·{name}" in shown


def test_a_cell_stays_in_its_row_and_column() -> None:
    assert table(["a", "b"], [["x\ny\x1b", "1"]]).splitlines() == ["a     b", "----  -", "x·y·  1"]
