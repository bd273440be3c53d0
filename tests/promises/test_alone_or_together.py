"""Promise 3: what else is in the call does not change a solution's scores."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import surefoot

WORDS = ["one", "two", "apples", "12", "+", "=", "so", "\\frac{1}{2}", "。", "\n", "x"]
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=25).map(" ".join)
groups = st.lists(st.tuples(texts, st.lists(texts, min_size=1, max_size=5)), min_size=1, max_size=8)


@given(items=groups, seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_alone_together_and_in_any_order(
    scorer: surefoot.Scorer, items: list[tuple[str, list[str]]], seed: int
) -> None:
    alone = [scorer.score(question, steps).step_scores for question, steps in items]
    order = list(range(len(items)))
    random.Random(seed).shuffle(order)
    together = scorer.score_many([items[index] for index in order])
    for index, result in zip(order, together, strict=True):
        assert result.step_scores == pytest.approx(alone[index], abs=1e-5)
