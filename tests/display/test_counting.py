"""Numbers and their nouns."""

from __future__ import annotations

import pytest

from surefoot.display.counting import counted


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 nodes"), (1, "1 node"), (2, "2 nodes"), (1000, "1,000 nodes"), (1001, "1,001 nodes")]
)
def test_one_is_singular(number: int, text: str) -> None:
    assert counted(number, "node") == text
