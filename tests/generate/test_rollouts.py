"""Policies made of recorded solutions, with continuations counted by hand."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from surefoot.core.generation import GREEDY, Continuation, GenerationRequest, Sampling
from surefoot.errors import InputError
from surefoot.generate.rollouts import RolloutGenerator

QUESTION = "What is 2 + 3?"
ROWS: list[dict[str, Any]] = [
    {"question": QUESTION, "solution": "Add them.\n\n2 + 3 = 5.\n\nThe answer is 5.", "tokens": 21},
    {"question": QUESTION, "solution": "Count.\n\nThe answer is 6."},
    {"question": QUESTION, "steps": ["Add them.", "2 + 3 = 6.", "The answer is 6."]},
    {"question": QUESTION, "solution": "Count.\n\nThe answer is 5."},
    {"question": QUESTION, "solution": "Add them.\n\n2 + 3", "end": "cut_off", "tokens": 8},
    {"question": "Other", "solution": "Yes."},
]


def sample(generator: RolloutGenerator, question: str = QUESTION, **settings: Any) -> tuple[Continuation, ...]:
    settings = {"sampling": Sampling(1.0)} | settings
    return asyncio.run(generator.generate(GenerationRequest(question, **settings))).continuations


def test_solutions_with_the_prefix_are_equally_likely() -> None:
    found = Counter((each.text, each.end) for each in sample(RolloutGenerator(ROWS), n=5000))
    whole = ["\n\n".join(row["steps"]) if "steps" in row else row["solution"] for row in ROWS[:5]]
    assert set(found) == {(text, "cut_off" if text.endswith("2 + 3") else "answer") for text in whole}
    statistic = sum((count - 1000) ** 2 / 1000 for count in found.values())
    assert statistic < 18.467  # chi-square with 4 degrees of freedom at 0.001


@pytest.mark.parametrize("seed", [0, 1, 7, 2**31 - 50])
def test_a_request_gets_every_solution_once_before_any_is_repeated(seed: int) -> None:
    found = [each.text for each in sample(RolloutGenerator(ROWS), n=10, seed=seed)]
    assert len(set(found[:5])) == 5
    assert found[5:] == found[:5]


def test_neighbours_in_a_sorted_file_are_not_drawn_together() -> None:
    rows = [{"question": f"Q{at}", "solution": f"{number}"} for at in range(400) for number in range(4)]
    generator = RolloutGenerator(rows)
    pairs = [[each.text for each in sample(generator, f"Q{at}", n=2)] for at in range(400)]
    found = Counter((first, second) for first, second in pairs)
    assert all(first != second for first, second in found)
    statistic = sum((found[str(a), str(b)] - 400 / 12) ** 2 / (400 / 12) for a in range(4) for b in range(4) if a != b)
    assert statistic < 31.264  # chi-square with 11 degrees of freedom at 0.001


def test_a_step_has_the_share_of_the_solutions_that_begin_with_it() -> None:
    found = Counter((each.text, each.end) for each in sample(RolloutGenerator(ROWS), n=5000, step_end="\n\n"))
    assert set(found) == {("Add them.\n\n", "step"), ("Count.\n\n", "step")}
    assert abs(found["Add them.\n\n", "step"] - 3000) < 150  # more than four standard deviations


def test_a_prefix_is_continued_exactly() -> None:
    generator = RolloutGenerator(ROWS)
    found = {(each.text, each.end) for each in sample(generator, prefix="Add them.\n\n", n=50, step_end="\n\n")}
    assert found == {("2 + 3 = 5.\n\n", "step"), ("2 + 3 = 6.\n\n", "step"), ("2 + 3", "cut_off")}
    assert {each.text for each in sample(generator, prefix="Add them.\n\n2 + 3 = 5", n=9)} == {".\n\nThe answer is 5."}
    done = "Count.\n\nThe answer is 5."
    assert sample(generator, prefix=done) == (Continuation("", "answer", 0, 0),)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"question": "Unknown"}, "no recorded solutions of this question"),
        ({"prefix": "Guess"}, "None of the 5 recorded solutions of this question begins with this prefix"),
        ({"prefix": "add them."}, "begins with this prefix"),
        ({"prefix": "Count.\n\nThe answer is 5. "}, "begins with this prefix"),
    ],
)
def test_what_was_not_recorded_is_an_error(settings: dict[str, Any], reason: str) -> None:
    for each in sample(RolloutGenerator(ROWS), n=2, **settings):
        assert (each.text, each.end, each.tokens) == ("", "error", 0)
        assert reason in str(each.reason)


def test_the_seed_decides() -> None:
    generator = RolloutGenerator(ROWS)
    several = sample(generator, n=6, seed=3)
    assert several == tuple(sample(generator, seed=3 + index)[0] for index in range(6))
    assert len({each.text for each in several}) > 1


def test_greedy_takes_the_most_frequent_continuation_and_the_first_of_equals() -> None:
    generator = RolloutGenerator(ROWS)
    step = sample(generator, n=2, sampling=GREEDY, step_end="\n\n", seed=9)
    assert [(each.text, each.seed) for each in step] == [("Add them.\n\n", 9), ("Add them.\n\n", 10)]
    assert sample(generator, sampling=GREEDY)[0].text == ROWS[0]["solution"]
    twice = RolloutGenerator([*ROWS, ROWS[1]])
    assert sample(twice, sampling=GREEDY)[0].text == ROWS[1]["solution"]


def test_tokens_are_those_of_the_row_or_words_or_counted() -> None:
    def tokens(generator: RolloutGenerator, **settings: Any) -> int:
        return sample(generator, sampling=GREEDY, **settings)[0].tokens

    words, letters = RolloutGenerator(ROWS), RolloutGenerator(ROWS, count_tokens=len, name="mine")
    assert (words.name, letters.name) == ("rollouts (counted in words)", "mine")
    assert (tokens(words), tokens(letters)) == (21, 21)
    assert (tokens(words, step_end="\n\n"), tokens(letters, step_end="\n\n")) == (2, len("Add them.\n\n"))
    assert (tokens(words, question="Other"), tokens(letters, question="Other")) == (1, 4)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (21, (ROWS[0]["solution"], "answer", 21)),
        (20, (ROWS[0]["solution"].removesuffix(" 5."), "cut_off", 10)),
        (11, (ROWS[0]["solution"].removesuffix(" 5."), "cut_off", 10)),
        (10, (ROWS[0]["solution"].removesuffix(" 5."), "cut_off", 10)),
        (3, ("Add them.\n\n2", "cut_off", 3)),
        (1, ("Add", "cut_off", 1)),
    ],
)
def test_the_limit_of_tokens_cuts_off_after_a_word(limit: int, expected: tuple[str, str, int]) -> None:
    (found,) = sample(RolloutGenerator(ROWS), sampling=GREEDY, max_tokens=limit)
    assert (found.text, found.end, found.tokens) == expected


def test_a_step_that_is_too_long_is_cut_off_and_can_be_continued() -> None:
    generator = RolloutGenerator(ROWS)
    (first,) = sample(generator, sampling=GREEDY, step_end="\n\n", max_tokens=1)
    assert (first.text, first.end) == ("Add", "cut_off")
    (second,) = sample(generator, prefix=first.text, sampling=GREEDY, step_end="\n\n", max_tokens=1)
    assert (second.text, second.end) == (" them.\n\n", "step")


def test_the_fingerprint_is_that_of_the_content() -> None:
    generator = RolloutGenerator(ROWS)
    assert generator.fingerprint == RolloutGenerator(iter(ROWS)).fingerprint
    assert generator.fingerprint != RolloutGenerator(ROWS, delimiter="\n").fingerprint
    assert generator.fingerprint != RolloutGenerator(ROWS[::-1]).fingerprint


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"solution": "A"}, "row 1: `question` must be a text"),
        ({"question": "Q"}, "row 1: add `solution` as a text"),
        ({"question": "Q", "steps": "A"}, "row 1: add `solution` as a text"),
        ({"question": "Q", "steps": []}, "row 1: add `solution` as a text"),
        ({"question": "Q", "steps": ["A", 1]}, "row 1: add `solution` as a text"),
        ({"question": "Q", "solution": "A", "end": "step"}, "row 1: `end` is 'step'"),
        ({"question": "Q", "solution": "A", "tokens": "3"}, "row 1: `tokens` is '3'"),
        ({"question": "Q", "solution": "A", "tokens": True}, "row 1: `tokens` is True"),
    ],
)
def test_rows_are_checked(row: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        RolloutGenerator([row])


def test_an_empty_policy_fails_the_check() -> None:
    with pytest.raises(InputError, match="no recorded solutions"):
        asyncio.run(RolloutGenerator([]).check())
    asyncio.run(RolloutGenerator(ROWS).check())


def test_the_repr_says_what_it_holds() -> None:
    found = repr(RolloutGenerator(ROWS, name="gsm8k.jsonl"))
    assert found == "<surefoot.RolloutGenerator gsm8k.jsonl (counted in words): 6 solutions to 2 questions>"
