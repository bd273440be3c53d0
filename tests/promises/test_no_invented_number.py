"""Promise 1: a step that was not scored has no number, and neither has anything that would need it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import surefoot
from helpers.card import CARD_QUESTION, CARD_STEPS
from surefoot.core.result import SolutionScore, StepScore, StepStatus
from surefoot.critics.processbench import read_index
from surefoot.critics.verdict import Judgement, Vote, failed
from surefoot.rewards.recipes import RECIPES
from surefoot.rewards.token_rewards import TOKEN_AGGREGATIONS, token_rewards
from surefoot.scoring.local import load_local

AGGREGATES = ("mean", "min", "product", "geometric_mean")


def solution_score(scores: list[float | None]) -> SolutionScore:
    steps = [
        StepScore("s", 0, 1, score, "scored" if score is not None else "over_length", index)
        for index, score in enumerate(scores)
    ]
    return SolutionScore(tuple(steps), "test")


@given(st.lists(st.one_of(st.none(), st.floats(0, 1)), max_size=8))
@settings(max_examples=500)
def test_aggregates_of_incomplete_scores_are_none(scores: list[float | None]) -> None:
    result = solution_score(scores)
    complete = bool(scores) and None not in scores
    for name in AGGREGATES:
        value = getattr(result, name)
        assert (value is not None) == complete
        if complete:
            known = [score for score in scores if score is not None]
            assert value <= max(known) + 1e-9
    assert result.final == (scores[-1] if scores else None)
    assert result.status == ("scored" if complete else "partial" if any(s is not None for s in scores) else "unscored")


@pytest.mark.parametrize("limit", range(1, 460, 37))
def test_truncation_never_adds_a_number(checkpoint: Path, limit: int) -> None:
    result = load_local(checkpoint, max_tokens=limit).score(CARD_QUESTION, CARD_STEPS)
    assert len(result.steps) == len(CARD_STEPS)
    for step in result.steps:
        assert (step.score is None) == (step.status != "scored")
    if None in result.step_scores:
        assert result.reason
        assert [getattr(result, name) for name in AGGREGATES] == [None] * 4


@pytest.mark.parametrize("limit", [1, 200, 400])
def test_an_ensemble_does_not_average_over_fewer_members(checkpoint: Path, mini: surefoot.Scorer, limit: int) -> None:
    short = load_local(checkpoint, max_tokens=limit)
    own = short.score(CARD_QUESTION, CARD_STEPS)
    result = surefoot.load([mini, short]).score(CARD_QUESTION, CARD_STEPS)
    assert None in own.step_scores
    assert [score is None for score in result.step_scores] == [score is None for score in own.step_scores]
    assert [step.spread is None for step in result.steps] == [score is None for score in own.step_scores]
    assert result.reason == f"{short.name}: {own.reason}"
    assert [getattr(result, name) for name in AGGREGATES] == [None] * 4
    assert RECIPES["min"](result).value is None


@pytest.mark.parametrize("limit", [1, 200, 400])
def test_a_truncated_solution_has_no_reward(checkpoint: Path, limit: int) -> None:
    result = load_local(checkpoint, max_tokens=limit).score(CARD_QUESTION, CARD_STEPS)
    assert None in result.step_scores
    offsets = [(at, at + 1) for at in range(result.steps[-1].end)]
    for recipe in RECIPES.values():
        if recipe.name != "outcome":  # the answer was read all the same, and is right or wrong
            reward = recipe(result, "100")
            assert reward.value is None
            assert reward.reason
    for aggregation in TOKEN_AGGREGATIONS:
        assert token_rewards(result, offsets, aggregation).rewards is None


FAILED: list[StepStatus] = ["no_verdict", "cut_off", "generator_error", "after_error"]
VERDICTS = st.one_of(
    st.builds(Vote, st.floats(0, 1)), st.sampled_from(FAILED).map(lambda status: failed(status, "unreadable"))
)


@given(st.lists(VERDICTS, min_size=1, max_size=9))
def test_a_critic_without_enough_verdicts_gives_no_score(votes: list[Vote]) -> None:
    judgement = Judgement(tuple(votes))
    known = [vote.score for vote in votes if vote.score is not None]
    silent = sum(vote.status == "after_error" for vote in votes)
    unreadable = len(votes) - len(known) - silent
    if known and silent <= len(known) and unreadable <= len(known):
        assert judgement.score == pytest.approx(sum(known) / len(known))
        assert (judgement.status, judgement.reason) == ("scored", None)
    else:
        assert judgement.score is None
        assert judgement.status != "scored"
        assert judgement.reason


@given(st.text(), st.integers(1, 5))
def test_a_critics_reply_names_a_step_or_nothing(reply: str, steps: int) -> None:
    for text in (reply, f"\\boxed{{{reply}}}", f"<think>{reply}", f"\\boxed{{0}}{reply}"):
        found = read_index(text, steps)
        if isinstance(found, Vote):
            assert found.score is None
            assert found.reason
        else:
            assert -1 <= found < steps
