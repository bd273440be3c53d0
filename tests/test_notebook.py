"""The quickstart notebook runs offline, and the numbers that it stores are still those.

`python docs/scripts/execute_notebook.py` stores new ones.
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

from execute_notebook import FILE, executed
from notebook_page import notebook_page

NUMBER = re.compile(r"\d+\.\d+")


def shown(notebook: Any) -> list[str]:
    """What each code cell prints or displays, as text."""
    texts = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            parts = [
                each.get("text") or each["data"].get("text/html") or each["data"]["text/plain"] for each in cell.outputs
            ]
            texts.append(html.unescape(re.sub(r"<[^>]*>", " ", "\n".join(parts))))
    return texts


def test_the_stored_outputs_are_what_the_notebook_gives(tmp_path: Path) -> None:
    stored, found = nbformat.read(FILE, as_version=4), executed(tmp_path)
    assert len(shown(stored)) == 8
    assert (tmp_path / "report.html").stat().st_size > 10_000
    for before, now in zip(shown(stored), shown(found), strict=True):
        assert NUMBER.sub("#", before).split() == NUMBER.sub("#", now).split()
        assert list(map(float, NUMBER.findall(now))) == pytest.approx(
            list(map(float, NUMBER.findall(before))), rel=0, abs=0.002
        )


def test_the_notebook_says_what_its_text_claims() -> None:
    """The error is at step 3, the best rollouts are right, and an empty completion has no reward."""
    scored, inspected, cut, compared, best, measured, rewards, report = shown(nbformat.read(FILE, as_version=4))
    assert "first error at step 3" in scored
    assert "first error: 2  answer: 37" in inspected
    assert "partial None" in cut
    assert "first error -1  answer 35" in compared
    assert "-> best 35  reference 35" in best
    assert "-> best 260  reference 260" in best
    assert re.search(r"majority vote .* 0\.0 \[0\.0-0\.0\]", measured)
    outcome, process = 1.0, float(re.findall(r"corrected +min (\d\.\d+)", compared)[0])
    assert rewards.startswith(f"[{round(0.7 * outcome + 0.3 * process, 3)}, ")
    assert rewards.endswith("None]")
    assert report == "True"


def test_nothing_of_the_machine_is_stored() -> None:
    text = FILE.read_text(encoding="utf-8")
    assert "site-packages" not in text
    assert '"stderr"' not in text


def test_an_error_in_the_notebook_does_not_become_a_page() -> None:
    output = {"output_type": "error", "ename": "ValueError", "evalue": "no"}
    cells = [{"cell_type": "code", "source": "1 / 0", "outputs": [output]}]
    with pytest.raises(ValueError, match="Execute it again"):
        notebook_page({"cells": cells})


def test_outputs_become_markdown() -> None:
    shown_html = {
        "output_type": "display_data",
        "data": {"text/html": ["<b>1</b>\n", "\n", "<i>2</i>"], "text/plain": "x"},
    }
    printed = {"output_type": "stream", "text": ["```\n", "a"]}
    cells = [
        {"cell_type": "markdown", "source": ["# A\n", "b"]},
        {"cell_type": "code", "source": ["f()"], "outputs": [shown_html, printed]},
    ]
    assert notebook_page({"cells": cells}) == (
        '# A\nb\n\n```python\nf()\n```\n\n<div class="notebook-output">\n<b>1</b>\n<i>2</i>\n</div>\n\n'
        "```` { .text .notebook-text }\n```\na\n````\n"
    )
