"""A scored solution in a terminal: wrapped steps and small numbers."""

from __future__ import annotations

import pytest

from surefoot import SolutionScore, StepScore
from surefoot.display.numbers import short_score
from surefoot.display.terminal import show

TEXT = " ".join(f"word{at}" for at in range(30))


def solution(*scores: float) -> SolutionScore:
    return SolutionScore(tuple(StepScore(TEXT, 0, 1, each, "scored", at) for at, each in enumerate(scores)), "m")


def test_long_steps_are_shortened_or_wrapped() -> None:
    short = show(solution(0.9), width=60).split("\n")
    assert len(short) == 2
    assert short[0].endswith("…")
    full = show(solution(0.9), width=60, full=True).split("\n")
    assert len(full) > 3
    assert max(map(len, full[:-1])) <= 60
    assert [word for line in full[:-1] for word in line.split() if word.startswith("word")] == TEXT.split()
    margin = full[0].index("word0")
    assert all(line[:margin].strip() == "" and line[margin] != " " for line in full[1:-1])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.500"),
        (0.0005, "0.001"),
        (0.00049, "4.9e-04"),
        (1.2e-7, "1.2e-07"),
        (0.0, "0.000"),
        (-0.0001, "-1.0e-04"),
    ],
)
def test_small_numbers_keep_their_digits(value: float, text: str) -> None:
    assert short_score(value) == text


def test_small_products_are_not_zero() -> None:
    tiny = solution(1e-4, 1e-4)
    assert "product 1.0e-08" in show(tiny)
    assert "product 1.0e-08" in tiny._repr_html_()
    assert "1.0e-04" in tiny._repr_html_()
