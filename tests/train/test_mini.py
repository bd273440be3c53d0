"""The family of our own small models: what it asks, and that text stays text."""

from __future__ import annotations

import json
import time

import pytest

from surefoot.errors import OptionError
from surefoot.families import FAMILIES, PromptTokenizer, find_family
from surefoot.families.mini.calculator import FAILS, HOLDS, NEW, NEW_SMALL, notes_on
from surefoot.families.mini.family import SOLUTION, STEP
from surefoot.testing import byte_tokenizer_json

MINI = FAMILIES["mini"]
ENCODER = PromptTokenizer(json.loads(byte_tokenizer_json(*MINI.added_tokens)))


def test_the_prompt() -> None:
    prompt = MINI.render(ENCODER, "Q?", ["a", "bc"])
    question, a, bc = ENCODER.encode("Q?", "a", "bc")
    solution, step = ENCODER.token(SOLUTION), ENCODER.token(STEP)
    assert prompt.ids == (*question, solution, *a, step, *bc, step)
    assert prompt.reads == (4, 7)
    assert prompt.prefix == 3


def test_the_calculators_notes_stand_before_the_marker() -> None:
    steps = ["3 + 4 = 7", "7 * 3 = 15"]
    prompt = MINI.render(ENCODER, "3 and 4", steps)
    _, first, second = ENCODER.encode("3 and 4", *steps)
    holds, fails, step = map(ENCODER.token, (HOLDS, FAILS, STEP))
    assert prompt.ids[prompt.prefix :] == (*first, holds, step, *second, fails, step)
    assert [prompt.ids[read] for read in prompt.reads] == [step, step]


@pytest.mark.parametrize(
    ("question", "steps", "notes"),
    [
        ("Ann has 17 pens.", ["She has 17."], [[]]),
        ("Ann has 17 pens.", ["She has 18."], [[NEW]]),
        ("Ann has 17 pens.", ["17 + 14 = 31", "So 31, and 14 more."], [[HOLDS, NEW], []]),
        (
            "Ann has 17 pens.",
            ["17 * 2 = 34 pens.", "34 + 17 = 50", "50 * 2 = 100."],
            [[HOLDS, NEW_SMALL], [FAILS], [HOLDS]],
        ),
        ("Ann has twice as many.", ["17 * 2 = 34 pens."], [[HOLDS, NEW]]),
        ("A loaf costs $4. Ann buys 5.", ["5 * $4 = $20", "5 * $7 = $35"], [[HOLDS], [HOLDS, NEW_SMALL]]),
        ("A loaf costs $4. Ann buys 5.", ["Take 7 loaves.", "7 * $4 = $28"], [[], [HOLDS]]),
        ("12 pens for 4 boys.", ["12 / 4 = 3", "3 + 3 = 6", "6 + 1 = 7 of 8 pens."], [[HOLDS], [HOLDS], [HOLDS]]),
        ("Ann has 17 pens.", ["A year has 365 days.", "Then 60 minutes.", "x = y"], [[], [], []]),
        ("Tom saves 20% of $150.", ["150 * .2 = 30", "150 - 30 = 120, which is 80%."], [[HOLDS], [HOLDS]]),
        ("Twenty boys, 3/4 of them tall.", ["20 * 0.75 = 15", "**Step 13:** so 15."], [[HOLDS], []]),
        ("", [], []),
    ],
)
def test_notes(question: str, steps: list[str], notes: list[list[str]]) -> None:
    assert notes_on(question, steps) == notes


def test_models_without_the_newer_notes_get_the_older_ones() -> None:
    tokens = [token for token in MINI.added_tokens if token != NEW_SMALL]
    older = PromptTokenizer(json.loads(byte_tokenizer_json(*tokens)))
    prompt = MINI.render(older, "A loaf costs $4.", ["5 * $7 = $36"])
    _, text = older.encode("A loaf costs $4.", "5 * $7 = $36")
    assert prompt.ids[prompt.prefix :] == (*text, older.token(FAILS), older.token(STEP))


def test_notes_on_a_prefix_stay_what_they_are() -> None:
    steps = ["17 + 14 = 31", "Thanks 99.", "99 + 1 = 101", "31 is it."]
    for count in range(len(steps)):
        assert notes_on("17 and 14", steps[:count]) == notes_on("17 and 14", steps)[:count]


def test_many_steps_take_no_longer_than_their_length() -> None:
    started = time.process_time()
    notes_on("q", [f"{number} apples and {number + 7} pears" for number in range(20_000)])
    notes_on("q", [" ".join(f"{number} + 7 = {number + 7}." for number in range(5_000))])
    assert time.process_time() - started < 10


def test_no_text_makes_a_token() -> None:
    prompt = MINI.render(ENCODER, SOLUTION, [STEP, SOLUTION + STEP + HOLDS])
    assert ENCODER.token(HOLDS) not in prompt.ids
    assert prompt.ids.count(ENCODER.token(STEP)) == 2
    assert prompt.ids.count(ENCODER.token(SOLUTION)) == 1


def test_it_has_no_system_message() -> None:
    with pytest.raises(OptionError, match="no system message"):
        MINI.render(ENCODER, "q", ["a"], system="Be kind.")


def test_no_steps() -> None:
    prompt = MINI.render(ENCODER, "q", [])
    assert (len(prompt.ids), prompt.reads) == (2, ())


def test_it_is_found_by_its_architecture() -> None:
    assert find_family(["SurefootMiniForProcessRewardModel"]) is MINI
