"""Joined steps: nothing is lost, and every label follows from those of the parts."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from surefoot.errors import OptionError
from surefoot.train.example import Example, from_label, from_scores
from surefoot.train.joining import join_some, join_steps
from surefoot.train.readers import Reading, read_examples

SENTENCES = [f"Sentence number {number} says that {number} + 1 = {number + 1}." for number in range(12)]


def joined(example: Example, seed: int) -> Example:
    return join_steps(example, random.Random(seed))


@pytest.mark.parametrize("seed", range(20))
def test_the_text_stays_and_steps_get_longer(seed: int) -> None:
    example = from_label("q", SENTENCES, -1, "s")
    found = joined(example, seed)
    assert " ".join(found.steps) == " ".join(SENTENCES)
    assert 1 < len(found.steps) < len(SENTENCES)
    assert (found.question, found.source) == ("q", "s")
    assert set(found.targets) == {1.0}


@pytest.mark.parametrize("label", range(len(SENTENCES)))
@pytest.mark.parametrize("seed", range(5))
def test_the_first_error_is_in_the_step_that_contains_it(seed: int, label: int) -> None:
    found = joined(from_label("q", SENTENCES, label), seed)
    assert SENTENCES[label] in found.steps[found.first_error]
    assert all(target == 1.0 for target in found.targets[: found.first_error])
    assert all(target is None for target in found.targets[found.first_error + 1 :])


def test_an_unknown_part_makes_a_step_unknown_unless_another_is_wrong() -> None:
    steps = ["a.", "b.", "c."]
    for targets, expected in (
        ([0.9, 0.7, 0.8], 0.7),
        ([1.0, None, 1.0], None),
        ([None, 0.0, None], 0.0),
        ([None, None, None], None),
    ):
        assert joined(from_scores("q", steps, targets), 0).targets == (expected,)


def test_lines_that_are_no_sentences_stay_lines() -> None:
    assert joined(from_label("q", ["- Meat: $2", "- Cheese: $1", "Total: 2 + 1 = 3"], -1), 0).steps == (
        "- Meat: $2\n- Cheese: $1\nTotal: 2 + 1 = 3",
    )


def test_the_share_and_the_seed_decide() -> None:
    examples = [from_label(f"q{number}", SENTENCES, -1) for number in range(400)]
    some = join_some(examples, 0.25, 0)
    assert 70 < sum(len(one.steps) < len(SENTENCES) for one in some) < 130
    assert some == join_some(examples, 0.25, 0)
    assert some != join_some(examples, 0.25, 1)


def test_files_can_be_read_with_joined_steps(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"question": "q", "steps": SENTENCES, "label": 3}) + "\n")
    plain, long = read_examples(file), read_examples(file, Reading(join=1.0))
    assert len(plain[0].steps) == len(SENTENCES)
    assert len(long[0].steps) < len(SENTENCES)
    with pytest.raises(OptionError, match=r"join=1\.5 must be between 0 and 1"):
        Reading(join=1.5)
