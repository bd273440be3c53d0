"""Promise 3: what else is in the call does not change a solution's scores.

In float32 within 1e-5, whatever is shared: nothing, everything, a step, one token. The scores that a solution gets
alone come from a plain forward pass of transformers' own model, written in `reference.py`.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference import Reference

import surefoot

# Few words: steps of one token, steps and questions that repeat, solutions that continue one another.
steps = st.lists(st.sampled_from(["so", "one", "1 + 1 = 2", "x", "\n", "。", "the rest"]), min_size=1, max_size=4)
texts = steps.map(" ".join)
solutions = st.lists(texts, min_size=1, max_size=4)
groups = st.lists(st.tuples(st.sampled_from(["q", "q q", "Why?", ""]), solutions), min_size=1, max_size=8)
relaxed = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="session")
def reference(checkpoint: Path) -> Reference:
    return Reference(checkpoint)


def alone(scorer: surefoot.Scorer, reference: Reference, question: str, solution: list[str]) -> list[float]:
    kept = [step for step in solution if step.strip()]
    return reference.scores(scorer.family.render(scorer._encoder, question, kept)) if kept else []


@given(items=groups, seed=st.integers(0, 2**32), budget=st.sampled_from([7, 40, 100, 512]))
@relaxed
def test_packed_in_any_order_and_size(
    scorer: surefoot.Scorer, reference: Reference, items: list[tuple[str, list[str]]], seed: int, budget: int
) -> None:
    expected = [alone(scorer, reference, *item) for item in items]
    order = list(range(len(items)))
    random.Random(seed).shuffle(order)
    before, scorer._runner.budget = scorer._runner.budget, budget
    try:
        together = scorer.score_many([items[index] for index in order])
    finally:
        scorer._runner.budget = before
    for index, result in zip(order, together, strict=True):
        assert result.step_scores == pytest.approx(expected[index], abs=1e-5)


@given(rounds=st.lists(st.lists(solutions, min_size=1, max_size=4), min_size=1, max_size=4), room=st.integers(1, 300))
@relaxed
def test_through_a_session(
    scorer: surefoot.Scorer, reference: Reference, rounds: list[list[list[str]]], room: int
) -> None:
    session = scorer.session("q", max_bytes=room * scorer._runner.token_bytes)
    for candidates in rounds:
        for candidate, result in zip(candidates, session.score(candidates), strict=True):
            assert result.step_scores == pytest.approx(alone(scorer, reference, "q", candidate), abs=1e-5)


@given(items=groups, window=st.integers(1, 9))
@settings(relaxed, max_examples=50)
def test_through_a_stream(
    scorer: surefoot.Scorer, reference: Reference, items: list[tuple[str, list[str]]], window: int
) -> None:
    for item, result in zip(items, scorer.score_stream(iter(items), window=window), strict=True):
        assert result.step_scores == pytest.approx(alone(scorer, reference, *item), abs=1e-5)


@pytest.mark.parametrize("attention", ["eager", "flex"])
def test_through_every_attention(checkpoint: Path, scorer: surefoot.Scorer, attention: str) -> None:
    other = surefoot.load(checkpoint, attention=attention)
    items = [("q", ["one", f"two {n}", "three"][: n % 4]) for n in range(12)]
    for found, expected in zip(other.score_many(items), scorer.score_many(items), strict=True):
        assert found.step_scores == pytest.approx(expected.step_scores, abs=1e-5)
