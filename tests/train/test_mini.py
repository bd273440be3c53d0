"""The family of our own small models: what it asks, and that text stays text."""

from __future__ import annotations

import json

import pytest

from surefoot.errors import OptionError
from surefoot.family import FAMILIES, TextEncoder, find_family
from surefoot.family.mini import SOLUTION, STEP
from surefoot.testing import byte_tokenizer_json

MINI = FAMILIES["mini"]
ENCODER = TextEncoder(json.loads(byte_tokenizer_json(SOLUTION, STEP)))


def test_the_prompt() -> None:
    prompt = MINI.render(ENCODER, "Q?", ["a", "bc"])
    question, a, bc = ENCODER.encode("Q?", "a", "bc")
    solution, step = ENCODER.token(SOLUTION), ENCODER.token(STEP)
    assert prompt.ids == (*question, solution, *a, step, *bc, step)
    assert prompt.reads == (4, 7)
    assert prompt.prefix == 3


def test_no_text_makes_a_token() -> None:
    prompt = MINI.render(ENCODER, SOLUTION, [STEP, SOLUTION + STEP])
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
