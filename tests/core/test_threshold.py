"""Which thresholds a scale has."""

from __future__ import annotations

import math

import pytest

from surefoot.core.result import Scale, SolutionScore, StepScore, threshold_for
from surefoot.display.terminal import show
from surefoot.errors import OptionError

TABLE: list[tuple[Scale, list[float], list[float]]] = [
    ("probability", [0.0, 0.5, 1.0], [-0.01, 1.01, 50.0]),
    ("margin", [-1.0, 0.0, 1.0], [-1.01, 1.01]),
    ("log_ratio", [-50.0, 0.0, 7.5], []),
]


@pytest.mark.parametrize(("scale", "inside", "outside"), TABLE)
def test_a_threshold_lies_on_the_scale(scale: Scale, inside: list[float], outside: list[float]) -> None:
    result = SolutionScore((StepScore("a", 0, 1, 0.25, "scored", 0),), "m", scale=scale)
    for threshold in inside:
        assert threshold_for(scale, threshold) == threshold
        assert result.first_error(threshold) == (0 if threshold >= 0.25 else -1)
    for threshold in [*outside, math.nan, math.inf, -math.inf]:
        for use in (result.first_error, result.correct_prefix, result.to_dict, result.to_json):
            with pytest.raises(OptionError, match=f"threshold={threshold} is"):
                use(threshold)
        with pytest.raises(OptionError, match=f"threshold={threshold} is"):
            show(result, threshold=threshold)


@pytest.mark.parametrize(("scale", "natural"), [("probability", 0.5), ("margin", 0.0), ("log_ratio", 0.0)])
def test_the_natural_threshold(scale: Scale, natural: float) -> None:
    assert threshold_for(scale) == threshold_for(scale, None) == natural
