"""The term `uncertainty`: the reward where members disagree is withheld or lower. Expected values are by hand."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import surefoot
from surefoot.core.members import MemberScore
from surefoot.core.result import NO_STEPS, SolutionScore, StepScore
from surefoot.errors import OptionError, UnscoredError
from surefoot.integrations import verl
from surefoot.rewards.recipes import RECIPES
from surefoot.rewards.terms import uncertainty

QUESTION = "What is 2 + 3 * 4?"
SOLUTION = "Step 1: 3 * 4 = 12.\nStep 2: 2 + 12 = 14.\nFinal Answer: 14"


def scored(*spreads: float | None) -> SolutionScore:
    members = (MemberScore("a", 0.5), MemberScore("b", None, "too long"))
    steps = [
        StepScore("some words", 0, 10, 0.5, "scored", at, spread=spread, members=members if spread is None else ())
        for at, spread in enumerate(spreads)
    ]
    return SolutionScore(tuple(steps), "a model", reason=None if spreads else NO_STEPS)


@pytest.mark.parametrize(
    ("spreads", "options", "value", "reason"),
    [
        ((0.1, 0.25), {"limit": 0.25}, 0.5, None),  # the limit is included
        ((0.1, 0.3), {"limit": 0.25}, None, "uncertainty: the spread of step 1 is 0.300, above the limit of 0.25"),
        ((0.3, 0.1), {}, None, "uncertainty: the spread of step 0 is 0.300, above the limit of 0.2"),
        ((0.1, 0.2), {"mode": "shrink"}, 0.5, None),
        ((0.1, 0.5), {"mode": "shrink", "limit": 0.25}, 0.25, None),
        ((0.1, 0.5), {"mode": "shrink", "limit": 0.25, "weight": 4.0}, -0.5, None),
        ((0.1, 0.5), {"mode": "shrink", "limit": 0.25, "weight": -4.0}, -0.5, None),  # never a bonus
        ((0.1, None), {}, None, "uncertainty: a step was scored by one member only, so its spread is unknown"),
        ((0.1, None), {"mode": "shrink"}, None, "uncertainty: a step was scored by one member only, so its spread"),
        ((), {"mode": "shrink"}, None, "min: The solution has no steps."),
    ],
)
def test_the_reward(
    spreads: tuple[float | None, ...], options: dict[str, Any], value: float | None, reason: str | None
) -> None:
    recipe = RECIPES["min"].plus(uncertainty(**options))
    result = recipe(scored(*spreads))
    assert result.value == (None if value is None else pytest.approx(value))
    assert (result.reason or "").startswith(reason or "")
    assert (result.reason is None) == (value is not None)
    assert pickle.loads(pickle.dumps(recipe))(scored(*spreads)) == result


def test_an_unscored_step_is_missing() -> None:
    result = scored(0.1, 0.1)
    steps = (result.steps[0], replace(result.steps[1], score=None, status="member_missing", spread=None))
    unscored = replace(result, steps=steps, reason="b: too long")
    assert uncertainty().read(unscored, None) == uncertainty(mode="shrink").read(unscored, None)
    assert (
        RECIPES["outcome"].plus(uncertainty())(replace(unscored, answer="1"), "1").reason == "uncertainty: b: too long"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limit": -0.1}, "limit=-0.1 is not a spread"),
        ({"limit": float("nan")}, "limit=nan"),
        ({"mode": "drop"}, "mode='drop' is unknown. Choose one of: withhold, shrink"),
        ({"weight": 0.0}, "weight=0 would turn"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        uncertainty(**options)


def test_an_ensemble_of_real_models(mini: surefoot.Scorer, scorer: surefoot.Scorer) -> None:
    ensemble = surefoot.load([mini, scorer])
    own = np.array([each.score(QUESTION, SOLUTION).step_scores for each in (mini, scorer)], dtype=float)
    lowest, largest = own.mean(0).min(), own.std(0, ddof=1).max()
    assert largest > 0.1
    shrink = RECIPES["min"].plus(uncertainty(0.1, mode="shrink"))
    found = surefoot.compute_reward(QUESTION, SOLUTION, model=ensemble, recipe=shrink)
    assert found.value == pytest.approx(lowest - (largest - 0.1), abs=1e-5)
    assert found.terms["uncertainty"] == pytest.approx(largest - 0.1, abs=1e-5)
    with pytest.raises(OptionError, match="needs a spread, but mini is a single model"):
        surefoot.compute_reward(QUESTION, SOLUTION, model=mini, recipe=shrink)


def test_a_trainer_treats_a_withheld_reward_like_an_unscored_sample(
    mini: surefoot.Scorer, scorer: surefoot.Scorer
) -> None:
    given: dict[str, Any] = {
        "model": surefoot.load([mini, scorer]),
        "recipe": RECIPES["min"].plus(uncertainty(0.01)),
    }
    sample = ("any", SOLUTION, "14", {"question": QUESTION})
    with pytest.raises(UnscoredError, match="above the limit of 0.01"):
        verl.compute_score(*sample, **given)
    assert verl.compute_score(*sample, **given, missing=-1.0)["score"] == -1.0
