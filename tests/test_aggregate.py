from __future__ import annotations

import math

import pytest

from surefoot import aggregate

SCORES = [0.9, 0.5, 0.8]


@pytest.mark.parametrize(
    ("function", "scores", "expected"),
    [
        (aggregate.mean, SCORES, 2.2 / 3),
        (aggregate.minimum, SCORES, 0.5),
        (aggregate.final, SCORES, 0.8),
        (aggregate.product, SCORES, 0.36),
        (aggregate.geometric_mean, SCORES, 0.36 ** (1 / 3)),
        (aggregate.geometric_mean, [0.5, 0.0], 0.0),
        (aggregate.geometric_mean, [1e-200] * 3, 1e-200),
        (aggregate.mean, [0.9, None], None),
        (aggregate.minimum, [0.9, None], None),
        (aggregate.product, [0.0, None], None),
        (aggregate.geometric_mean, [None], None),
        (aggregate.final, [None, 0.7], 0.7),
        (aggregate.final, [0.7, None], None),
        (aggregate.mean, [], None),
        (aggregate.minimum, [], None),
        (aggregate.final, [], None),
        (aggregate.product, [], None),
        (aggregate.geometric_mean, [], None),
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
    assert aggregate.first_error(scores, threshold) == expected


@pytest.mark.parametrize(
    ("scores", "expected"),
    [(SCORES, 1 / 3), ([0.9, 0.9], 1.0), ([0.1, 0.9], 0.0), ([0.9, None], None), ([], None), ([0.9, 0.2, None], 1 / 3)],
)
def test_correct_prefix(scores: list[float | None], expected: float | None) -> None:
    assert aggregate.correct_prefix(scores) == expected
