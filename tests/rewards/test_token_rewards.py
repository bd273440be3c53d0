"""Rewards on the policy's tokens: at the end of each step, together the stated total, and nothing to farm."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

import surefoot
from surefoot.core.result import SolutionScore, StepScore
from surefoot.errors import InputError, OptionError
from surefoot.rewards.reward import AGGREGATIONS
from surefoot.rewards.token_rewards import FORMS, place
from surefoot.testing import byte_tokenizer_json, qwen_tokenizer_json
from surefoot.text.split import split

TEXTS = [
    "Step 1: 3 * 4 = 12.\nStep 2: 2 + 12 = 14.\nFinal Answer: 14",
    "Step 1: 3×4 = 12 🍎🍎\n\nStep 2: 数学 é ist schön 🧑‍🚀\n\n\nFinal Answer: 14\nHope that helps!",
    "We add.\n\nThen we multiply.\n\nSo \\boxed{14}.",
    "one line\nanother line 🧮\nthe third",
]
NOT_FARMED = ("min", "product", "clip", "progress")
TOTALS = {"min": "min", "soft-min": "soft-min", "clip": "clip", "progress": "final", "delta": "delta", "mean": "mean"}
scores_of_steps = st.lists(st.floats(0, 1), min_size=1, max_size=8)


@pytest.fixture(scope="module")
def qwen() -> Tokenizer:
    return Tokenizer.from_str(qwen_tokenizer_json())


@pytest.fixture(scope="module")
def letters() -> Tokenizer:
    return Tokenizer.from_str(byte_tokenizer_json("<|endoftext|>"))


def scored(text: str, scores: list[float | None] | None = None) -> SolutionScore:
    solution = split(text)
    values = scores or [0.9 - 0.2 * at for at in range(len(solution.steps))]
    steps = [
        StepScore(
            step.text, step.start, step.end, value, "scored" if value is not None else "over_length", at, step.kind
        )
        for at, (step, value) in enumerate(zip(solution.steps, values, strict=True))
    ]
    return SolutionScore(tuple(steps), "a model", reason="too long" if None in values else None)


def bare(scores: list[float]) -> tuple[SolutionScore, list[tuple[int, int]]]:
    """Steps of ten characters, and tokens of five."""
    steps = [StepScore("ten chars.", 10 * at, 10 * at + 10, value, "scored", at) for at, value in enumerate(scores)]
    return SolutionScore(tuple(steps), "a model"), [(5 * at, 5 * at + 5) for at in range(2 * len(scores))]


def total(scores: list[float], form: str) -> float:
    placed = place(*bare(scores), form)
    assert placed.total is not None
    return placed.total


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("text", TEXTS)
def test_rewards_stand_on_each_steps_last_token(qwen: Tokenizer, letters: Tokenizer, text: str, form: str) -> None:
    result = scored(text)
    for tokenizer in (qwen, letters):
        offsets = tokenizer.encode(text).offsets
        placed = place(result, offsets, form)
        assert placed.rewards is not None
        assert len(placed.rewards) == len(offsets)
        assert math.fsum(placed.rewards) == pytest.approx(placed.total)
        for step, at in zip(result.steps, placed.positions, strict=True):
            start, end = offsets[at]
            assert start < step.end <= end, "the token has the step's last character"
            later = [other for other, span in enumerate(offsets) if span[0] < step.end <= span[1]]
            assert at == max(later), "and of several that have it, it is the last"
        unpaid = [reward for at, reward in enumerate(placed.rewards) if at not in placed.positions]
        assert not any(unpaid)


def test_a_token_may_straddle_the_end_of_a_step(qwen: Tokenizer) -> None:
    text = "Step 1: 3 * 4 = 12.\nStep 2: 14.\n\n\nFinal Answer: 14"
    encoding = qwen.encode(text)
    placed = place(scored(text), encoding.offsets, "mean")
    assert [encoding.tokens[at] for at in placed.positions] == [".Ċ", ".ĊĊĊ", "4"]


def test_a_real_score_is_placed(scorer: surefoot.Scorer, qwen: Tokenizer) -> None:
    for text in TEXTS:
        result = scorer.score("What is 2 + 3 * 4?", text)
        placed = place(result, qwen.encode(text).offsets, "min")
        assert placed.total == result.min
        assert placed.rewards is not None
        assert sorted(placed.rewards)[-1] == pytest.approx(result.min)


def test_special_tokens_get_nothing(qwen: Tokenizer) -> None:
    text = TEXTS[0]
    offsets = [(0, 0), *qwen.encode(text).offsets, (0, 0), (0, 0)]
    placed = place(scored(text), offsets, "mean")
    assert placed.rewards is not None
    assert placed.rewards[0] == placed.rewards[-1] == 0.0
    assert placed.positions == tuple(at + 1 for at in place(scored(text), offsets[1:-2], "mean").positions)


def test_an_unscored_step_leaves_no_placement(qwen: Tokenizer) -> None:
    for form in FORMS:
        placed = place(scored(TEXTS[0], [0.9, 0.8, None]), qwen.encode(TEXTS[0]).offsets, form)
        assert (placed.rewards, placed.total, placed.reason) == (None, None, "too long")
        assert place(SolutionScore((), "a model", reason="empty"), [], form).rewards is None


def test_a_completion_that_was_cut_leaves_no_placement(qwen: Tokenizer) -> None:
    offsets = qwen.encode(TEXTS[0]).offsets
    placed = place(scored(TEXTS[0]), offsets[:-1])
    assert placed.rewards is None
    assert "end before step 2" in (placed.reason or "")
    assert place(scored(TEXTS[0]), []).rewards is None


def test_white_space_that_a_tokenizer_leaves_out_cuts_nothing() -> None:
    steps = (StepScore("one  ", 0, 5, 0.5, "scored", 0), StepScore("two  ", 7, 12, 0.25, "scored", 1))
    placed = place(SolutionScore(steps, "a model"), [(0, 3), (7, 10)], "mean")
    assert placed.positions == (0, 1)


def test_steps_without_a_token_of_their_own_are_not_paid_elsewhere() -> None:
    steps = tuple(StepScore("x", at, at + 1, 0.5, "scored", at) for at in (0, 5, 9))
    assert place(SolutionScore(steps, "a model"), [(0, 1), (9, 10)]).rewards is None
    shared = place(SolutionScore(steps, "a model"), [(0, 10)], "mean")
    assert shared.rewards is not None
    assert list(shared.rewards) == pytest.approx([0.5])


@given(scores_of_steps, st.sampled_from(sorted(FORMS)))
@settings(max_examples=400)
def test_the_tokens_get_the_stated_total(scores: list[float], form: str) -> None:
    result, offsets = bare(scores)
    placed = place(result, offsets, form)
    assert placed.rewards is not None
    assert math.fsum(placed.rewards) == pytest.approx(placed.total, abs=1e-9)
    stated = math.prod(scores) - 1 if form == "product" else AGGREGATIONS[TOTALS[form]](scores)
    assert placed.total == pytest.approx(stated, abs=1e-9)
    assert placed.total is not None
    assert placed.total <= max(scores) + 1e-9, "no form pays more than the best step is worth"


@given(scores_of_steps, st.data(), st.sampled_from(NOT_FARMED))
@settings(max_examples=400)
def test_splitting_a_step_pays_nothing(scores: list[float], data: st.DataObject, form: str) -> None:
    """What a step ends with is judged as before; whatever its first half is judged."""
    at = data.draw(st.integers(0, len(scores) - 1))
    half = data.draw(st.floats(0, 1))
    assert total([*scores[:at], half, *scores[at:]], form) <= total(scores, form) + 1e-9


@given(scores_of_steps, st.lists(st.floats(0, 1), min_size=1, max_size=5), st.sampled_from(("min", "product", "clip")))
@settings(max_examples=400)
def test_more_steps_pay_nothing(scores: list[float], more: list[float], form: str) -> None:
    assert total(scores + more, form) <= total(scores, form) + 1e-9


def test_the_documented_ways_to_farm_the_other_forms() -> None:
    """What the table warns of is true, so that nobody takes those forms for safe."""
    assert total([0.2, 0.9, 0.9], "mean") > total([0.2, 0.9], "mean")
    assert total([0.99, 0.2, 0.9], "delta") > total([0.2, 0.9], "delta")
    assert total([0.2, 0.99], "progress") > total([0.2, 0.5], "progress")
    gap = total([0.1, 0.9], "soft-min")
    assert 0 < total([0.1] + [0.9] * 10, "soft-min") - gap < 0.01, "ten copies move it by less than a hundredth"
    many = round(math.exp(0.8 / 0.1))
    assert total([0.1] + [0.9] * many, "soft-min") == pytest.approx(0.5, abs=0.01), "exp(gap / temperature): half way"


def test_what_is_still_to_come_from_a_step_is_its_score_in_the_delta_form() -> None:
    placed = place(*bare([0.9, 0.3, 0.6]), "delta")
    assert placed.rewards is not None
    assert [math.fsum(placed.rewards[at:]) for at in placed.positions] == pytest.approx([0.9, 0.3, 0.6])


def test_mistakes_are_named() -> None:
    result, offsets = bare([0.5])
    with pytest.raises(OptionError, match="pay for more steps"):
        place(result, offsets, "sum")
    with pytest.raises(InputError, match="token 1 does not follow"):
        place(result, [(5, 10), (0, 5)])
    ratio = SolutionScore(result.steps, "a model", scale="log_ratio")
    with pytest.raises(OptionError, match="needs probabilities"):
        place(ratio, offsets, "product")
    assert place(ratio, offsets, "min").total == 0.5
