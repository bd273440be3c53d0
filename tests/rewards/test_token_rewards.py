"""Token rewards: on the last token of each step, with the documented total, and not inflatable by more steps."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

import surefoot
from surefoot.core.aggregation import AGGREGATIONS
from surefoot.core.result import SolutionScore, StepScore
from surefoot.errors import InputError, OptionError
from surefoot.rewards.token_rewards import TOKEN_AGGREGATIONS, token_rewards
from surefoot.testing import byte_tokenizer_json, qwen_tokenizer_json
from surefoot.text.split import split

TEXTS = [
    "Step 1: 3 * 4 = 12.\nStep 2: 2 + 12 = 14.\nFinal Answer: 14",
    "Step 1: 3×4 = 12 🍎🍎\n\nStep 2: 数学 é ist schön 🧑‍🚀\n\n\nFinal Answer: 14\nHope that helps!",
    "We add.\n\nThen we multiply.\n\nSo \\boxed{14}.",
    "one line\nanother line 🧮\nthe third",
]
NOT_RAISED_BY_SPLITTING = ("min", "product", "clip", "final")
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


def total(scores: list[float], aggregation: str) -> float:
    placed = token_rewards(*bare(scores), aggregation)
    assert placed.total is not None
    return placed.total


@pytest.mark.parametrize("aggregation", TOKEN_AGGREGATIONS)
@pytest.mark.parametrize("text", TEXTS)
def test_rewards_are_on_the_last_token_of_each_step(
    qwen: Tokenizer, letters: Tokenizer, text: str, aggregation: str
) -> None:
    result = scored(text)
    for tokenizer in (qwen, letters):
        offsets = tokenizer.encode(text).offsets
        placed = token_rewards(result, offsets, aggregation)
        assert placed.rewards is not None
        assert len(placed.rewards) == len(offsets)
        assert math.fsum(placed.rewards) == pytest.approx(placed.total)
        for step, at in zip(result.steps, placed.positions, strict=True):
            start, end = offsets[at]
            assert start < step.end <= end, "the token has the step's last character"
            later = [other for other, span in enumerate(offsets) if span[0] < step.end <= span[1]]
            assert at == max(later), "and of several that have it, it is the last"
        others = [reward for at, reward in enumerate(placed.rewards) if at not in placed.positions]
        assert not any(others)


def test_a_token_may_straddle_the_end_of_a_step(qwen: Tokenizer) -> None:
    text = "Step 1: 3 * 4 = 12.\nStep 2: 14.\n\n\nFinal Answer: 14"
    encoding = qwen.encode(text)
    placed = token_rewards(scored(text), encoding.offsets, "mean")
    assert [encoding.tokens[at] for at in placed.positions] == [".Ċ", ".ĊĊĊ", "4"]


def test_a_real_score(scorer: surefoot.Scorer, qwen: Tokenizer) -> None:
    for text in TEXTS:
        result = scorer.score("What is 2 + 3 * 4?", text)
        placed = token_rewards(result, qwen.encode(text).offsets, "min")
        assert placed.total == result.min
        assert placed.rewards is not None
        assert sorted(placed.rewards)[-1] == pytest.approx(result.min)


def test_special_tokens_get_nothing(qwen: Tokenizer) -> None:
    text = TEXTS[0]
    offsets = [(0, 0), *qwen.encode(text).offsets, (0, 0), (0, 0)]
    placed = token_rewards(scored(text), offsets, "mean")
    assert placed.rewards is not None
    assert placed.rewards[0] == placed.rewards[-1] == 0.0
    assert placed.positions == tuple(at + 1 for at in token_rewards(scored(text), offsets[1:-2], "mean").positions)


def test_an_unscored_step_gives_no_token_rewards(qwen: Tokenizer) -> None:
    for aggregation in TOKEN_AGGREGATIONS:
        placed = token_rewards(scored(TEXTS[0], [0.9, 0.8, None]), qwen.encode(TEXTS[0]).offsets, aggregation)
        assert (placed.rewards, placed.total, placed.reason) == (None, None, "too long")
        assert token_rewards(SolutionScore((), "a model", reason="empty"), [], aggregation).rewards is None


def test_a_truncated_completion_gives_no_token_rewards(qwen: Tokenizer) -> None:
    offsets = qwen.encode(TEXTS[0]).offsets
    placed = token_rewards(scored(TEXTS[0]), offsets[:-1])
    assert placed.rewards is None
    assert "end before step 2" in (placed.reason or "")
    assert token_rewards(scored(TEXTS[0]), []).rewards is None


def test_a_truncation_is_found_in_a_step_whose_label_has_emphasis() -> None:
    text = "**Step 1: Add**\nx = 5"  # the text of the step is two characters shorter than its span
    characters = [(at, at + 1) for at in range(len(text))]
    assert token_rewards(scored(text), characters).positions == (len(text) - 1,)
    for missing in range(1, 4):
        assert token_rewards(scored(text), characters[:-missing]).rewards is None


def test_white_space_that_a_tokenizer_skips_is_not_a_truncation() -> None:
    steps = (StepScore("one  ", 0, 5, 0.5, "scored", 0), StepScore("two  ", 7, 12, 0.25, "scored", 1))
    placed = token_rewards(SolutionScore(steps, "a model"), [(0, 3), (7, 10)], "mean")
    assert placed.positions == (0, 1)


def test_steps_without_a_token_are_not_rewarded_elsewhere() -> None:
    steps = tuple(StepScore("x", at, at + 1, 0.5, "scored", at) for at in (0, 5, 9))
    assert token_rewards(SolutionScore(steps, "a model"), [(0, 1), (9, 10)]).rewards is None
    shared = token_rewards(SolutionScore(steps, "a model"), [(0, 10)], "mean")
    assert shared.rewards is not None
    assert list(shared.rewards) == pytest.approx([0.5])


@given(scores_of_steps, st.sampled_from(TOKEN_AGGREGATIONS))
@settings(max_examples=400)
def test_the_tokens_sum_to_the_documented_total(scores: list[float], aggregation: str) -> None:
    result, offsets = bare(scores)
    placed = token_rewards(result, offsets, aggregation)
    assert placed.rewards is not None
    assert math.fsum(placed.rewards) == pytest.approx(placed.total, abs=1e-9)
    stated = math.prod(scores) - 1 if aggregation == "product" else AGGREGATIONS[aggregation].function(scores)
    assert placed.total == pytest.approx(stated, abs=1e-9)
    assert placed.total is not None
    assert placed.total <= max(scores) + 1e-9, "no aggregation exceeds the best score"


@given(scores_of_steps, st.data(), st.sampled_from(NOT_RAISED_BY_SPLITTING))
@settings(max_examples=400)
def test_splitting_a_step_does_not_raise_the_total(scores: list[float], data: st.DataObject, aggregation: str) -> None:
    """The second half is scored as the whole step was; the first half gets any score."""
    at = data.draw(st.integers(0, len(scores) - 1))
    half = data.draw(st.floats(0, 1))
    assert total([*scores[:at], half, *scores[at:]], aggregation) <= total(scores, aggregation) + 1e-9


@given(scores_of_steps, st.lists(st.floats(0, 1), min_size=1, max_size=5), st.sampled_from(("min", "product", "clip")))
@settings(max_examples=400)
def test_more_steps_do_not_raise_the_total(scores: list[float], more: list[float], aggregation: str) -> None:
    assert total(scores + more, aggregation) <= total(scores, aggregation) + 1e-9


def test_the_documented_ways_to_inflate_the_other_aggregations() -> None:
    """The table in the documentation is true."""
    assert total([0.2, 0.9, 0.9], "mean") > total([0.2, 0.9], "mean")
    assert total([0.99, 0.2, 0.9], "first") > total([0.2, 0.9], "first")
    assert total([0.2, 0.99], "final") > total([0.2, 0.5], "final")
    gap = total([0.1, 0.9], "soft_min")
    assert 0 < total([0.1] + [0.9] * 10, "soft_min") - gap < 0.01, "ten copies move it by less than a hundredth"
    many = round(math.exp(0.8 / 0.1))
    assert total([0.1] + [0.9] * many, "soft_min") == pytest.approx(0.5, abs=0.01), "exp(gap / temperature): half way"


def test_with_first_the_return_from_a_step_is_its_score() -> None:
    placed = token_rewards(*bare([0.9, 0.3, 0.6]), "first")
    assert placed.rewards is not None
    assert [math.fsum(placed.rewards[at:]) for at in placed.positions] == pytest.approx([0.9, 0.3, 0.6])


def test_invalid_options_raise() -> None:
    result, offsets = bare([0.5])
    with pytest.raises(OptionError, match="would reward additional steps"):
        token_rewards(result, offsets, "sum")
    with pytest.raises(InputError, match="token 1 does not follow the previous"):
        token_rewards(result, [(5, 10), (0, 5)])
    ratio = SolutionScore(result.steps, "a model", scale="log_ratio")
    with pytest.raises(OptionError, match="needs probabilities"):
        token_rewards(ratio, offsets, "product")
    assert token_rewards(ratio, offsets, "min").total == 0.5
