"""How a result looks in a prompt, in a log and when it is printed."""

from __future__ import annotations

import pytest

from surefoot import SolutionScore, StepScore


def steps(*scores: float | None) -> tuple[StepScore, ...]:
    return tuple(
        StepScore(f"step {at}", 0, 1, score, "scored" if score is not None else "over_length", at)
        for at, score in enumerate(scores)
    )


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (
            SolutionScore(steps(0.9, 0.25), "mini", answer="14"),
            "<surefoot.SolutionScore scored: 2 steps, min 0.250, mean 0.575, answer '14', model 'mini'>",
        ),
        (
            SolutionScore(steps(0.9, None), "mini", reason="1 of 2 steps end after the limit of 60 tokens."),
            "<surefoot.SolutionScore partial: 2 steps, "
            "reason '1 of 2 steps end after the limit of 60 …', model 'mini'>",
        ),
        (
            SolutionScore((), "mini", reason="The solution has no steps."),
            "<surefoot.SolutionScore unscored: 0 steps, reason 'The solution has no steps.', model 'mini'>",
        ),
    ],
)
def test_the_repr_is_one_short_line(result: SolutionScore, text: str) -> None:
    assert repr(result) == text


def test_the_repr_of_a_long_solution_stays_short() -> None:
    result = SolutionScore(steps(*[0.5] * 500), "mini", answer="9" * 1000)
    assert len(repr(result)) < 160


def test_printing_shows_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = str(SolutionScore(steps(0.9, 0.2), "mini")).splitlines()
    assert [line.split() for line in lines[:2]] == [
        ["1", "█████████·", "0.900", "step", "0"],
        ["2", "✗", "██········", "0.200", "step", "1"],
    ]
    assert lines[2].endswith("first error at step 2")
    assert "\x1b" not in "".join(lines)
