from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.core import aggregation
from surefoot.core.aggregation import AGGREGATIONS, find_aggregation
from surefoot.core.result import SolutionScore, StepScore
from surefoot.errors import OptionError

SCORES = [0.9, 0.5, 0.8]


@pytest.mark.parametrize(
    ("function", "scores", "expected"),
    [
        (aggregation.mean, SCORES, 2.2 / 3),
        (aggregation.minimum, SCORES, 0.5),
        (aggregation.final, SCORES, 0.8),
        (aggregation.product, SCORES, 0.36),
        (aggregation.geometric_mean, SCORES, 0.36 ** (1 / 3)),
        (aggregation.geometric_mean, [0.5, 0.0], 0.0),
        (aggregation.geometric_mean, [1e-200] * 3, 1e-200),
        # PURE's turn_process_reward_logits_to_reward (CJReinforce/PURE, openrlhf/utils/utils.py) for these rewards.
        (aggregation.soft_minimum, [0.796875, 0.185546875, -0.0625, 0.078125], -0.020825470418611144),
        (aggregation.soft_minimum, [0.9, -0.3, 0.5], -0.2997243510064358),
        (aggregation.soft_minimum, [-0.95], -0.95),
        (aggregation.soft_minimum, [0.2, 0.2], 0.2),
        (aggregation.mean, [0.9, None], None),
        (aggregation.minimum, [0.9, None], None),
        (aggregation.product, [0.0, None], None),
        (aggregation.geometric_mean, [None], None),
        (aggregation.final, [None, 0.7], 0.7),
        (aggregation.final, [0.7, None], None),
        (aggregation.mean, [], None),
        (aggregation.minimum, [], None),
        (aggregation.final, [], None),
        (aggregation.product, [], None),
        (aggregation.geometric_mean, [], None),
    ],
)
def test_aggregations(function: object, scores: list[float | None], expected: float | None) -> None:
    assert callable(function)
    found = function(scores)
    assert found is None if expected is None else math.isclose(found, expected)


@pytest.mark.parametrize(
    ("scores", "threshold", "expected"),
    [
        (SCORES, 0.5, 1),  # a step that is exactly at the threshold is not above it
        (SCORES, 0.4, -1),
        ([0.2, None], 0.5, 0),
        ([0.9, None, 0.1], 0.5, None),
        ([0.9, None], 0.5, None),
        ([], 0.5, None),
    ],
)
def test_first_error(scores: list[float | None], threshold: float, expected: int | None) -> None:
    assert aggregation.first_error(scores, threshold) == expected


@pytest.mark.parametrize(
    ("scores", "expected"),
    [(SCORES, 1 / 3), ([0.9, 0.9], 1.0), ([0.1, 0.9], 0.0), ([0.9, None], None), ([], None), ([0.9, 0.2, None], 1 / 3)],
)
def test_correct_prefix(scores: list[float | None], expected: float | None) -> None:
    assert aggregation.correct_prefix(scores) == expected


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_names_have_one_spelling(name: str) -> None:
    assert name.isidentifier()
    assert AGGREGATIONS[name].name == name
    assert AGGREGATIONS[name].label


@pytest.mark.parametrize("name", [each.name for each in AGGREGATIONS.values() if each.credits])
@given(scores=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12))
def test_step_credits_sum_to_the_aggregate(name: str, scores: list[float]) -> None:
    chosen = find_aggregation(name)
    assert chosen.credits is not None
    credits = chosen.credits(scores)
    assert len(credits) == len(scores)
    # The product telescopes from 1, so that its credits sum to what is lost.
    expected = chosen.function(scores)
    assert expected is not None
    assert sum(credits) == pytest.approx(expected - (name == "product"), abs=1e-9)


def test_an_unknown_aggregation_names_the_choices() -> None:
    with pytest.raises(OptionError, match="There is no aggregation 'geometric-mean'. Choose one of: mean, min,"):
        find_aggregation("geometric-mean")


def test_products_of_margins_are_not_reported() -> None:
    step = StepScore("x", 0, 1, -0.5, "scored", 0)
    margins = SolutionScore((step, step), "m", scale="margin")
    assert margins.aggregates == {"mean": -0.5, "min": -0.5, "final": -0.5, "product": None, "geometric_mean": None}
