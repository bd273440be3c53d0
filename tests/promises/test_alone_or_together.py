"""Promise 3: what else is in the call does not change a solution's scores.

In float32 within 1e-5, whatever is shared: nothing, everything, a step, one token. The scores that a solution gets
alone come from a plain forward pass of transformers' own model, written in `reference.py`.
"""

from __future__ import annotations

import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import surefoot
from helpers.reference import Reference
from surefoot.engine.trie import Pack, build_trie
from surefoot.scoring.local import load_local
from surefoot.testing import write_qwen_checkpoint

# Few words: steps of one token, steps and questions that repeat, solutions that continue one another.
steps = st.lists(st.sampled_from(["so", "one", "1 + 1 = 2", "x", "\n", "。", "the rest"]), min_size=1, max_size=4)
texts = steps.map(" ".join)
solutions = st.lists(texts, min_size=1, max_size=4)
groups = st.lists(st.tuples(st.sampled_from(["q", "q q", "Why?", ""]), solutions), min_size=1, max_size=8)
EXAMPLES = int(os.environ.get("SUREFOOT_EXAMPLES", "600"))
relaxed = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="session")
def reference(checkpoint: Path) -> Reference:
    return Reference(checkpoint)


def alone(scorer: surefoot.Scorer, reference: Reference, question: str, solution: list[str]) -> list[float]:
    kept = [step for step in solution if step.strip()]
    return reference.scores(scorer.family.render(scorer.tokenizer, question, kept)) if kept else []


def padded(scorer: surefoot.Scorer, reference: Reference, items: list[tuple[str, list[str]]]) -> list[list[float]]:
    solutions = [(question, [step for step in solution if step.strip()]) for question, solution in items]
    return reference.padded_scores([scorer.family.render(scorer.tokenizer, *item) for item in solutions])


@given(items=groups, seed=st.integers(0, 2**32), budget=st.sampled_from([7, 40, 100, 512]))
@relaxed
def test_packed_in_any_order_and_size(
    scorer: surefoot.Scorer, reference: Reference, items: list[tuple[str, list[str]]], seed: int, budget: int
) -> None:
    expected = [alone(scorer, reference, *item) for item in items]
    order = list(range(len(items)))
    random.Random(seed).shuffle(order)
    before, scorer.engine.budget = scorer.engine.budget, budget
    try:
        together = scorer.score_many([items[index] for index in order])
    finally:
        scorer.engine.budget = before
    for index, result in zip(order, together, strict=True):
        assert result.step_scores == pytest.approx(expected[index], abs=1e-5)
    assert padded(scorer, reference, items) == [pytest.approx(scores, abs=1e-5) for scores in expected]


@given(rounds=st.lists(st.lists(solutions, min_size=1, max_size=4), min_size=1, max_size=4), room=st.integers(1, 300))
@settings(relaxed, max_examples=EXAMPLES // 2)
def test_through_a_session(
    scorer: surefoot.Scorer, reference: Reference, rounds: list[list[list[str]]], room: int
) -> None:
    session = scorer.session("q", max_bytes=room * scorer.engine.token_bytes)
    for candidates in rounds:
        for candidate, result in zip(candidates, session.score(candidates), strict=True):
            assert result.step_scores == pytest.approx(alone(scorer, reference, "q", candidate), abs=1e-5)


@given(items=groups, window=st.integers(1, 9))
@settings(relaxed, max_examples=EXAMPLES // 4)
def test_through_a_stream(
    scorer: surefoot.Scorer, reference: Reference, items: list[tuple[str, list[str]]], window: int
) -> None:
    for item, result in zip(items, scorer.score_stream(iter(items), window=window), strict=True):
        assert result.step_scores == pytest.approx(alone(scorer, reference, *item), abs=1e-5)


@pytest.mark.parametrize(
    ("options", "tolerance"),
    [
        ({"dtype": "bfloat16"}, 0.1),
        ({"dtype": "float16"}, 0.02),
        ({"quantize": "nf4"}, 1e-5),
        ({"quantize": "int8"}, 0.01),
    ],
)
def test_in_other_formats_within_their_tolerance(
    checkpoint: Path, scorer: surefoot.Scorer, options: dict[str, str], tolerance: float
) -> None:
    """Coarser numbers round differently in products of another shape. These bounds are what we promise."""
    other = load_local(checkpoint, **options)
    items = [(f"q {n % 5}", ["one", f"two {n}", "1 + 1 = 2", "so 3"][: n % 5]) for n in range(40)]
    together = other.score_many(items)
    drift = [
        abs(one - other_one)
        for item, result in zip(items, together, strict=True)
        for one, other_one in zip(other.score(*item).step_scores, result.step_scores, strict=True)
        if one is not None and other_one is not None
    ]
    assert len(drift) == sum(len(steps) for _, steps in items)
    assert max(drift) <= tolerance


def test_in_an_ensemble(scorer: surefoot.Scorer, reference: Reference, tmp_path: Path) -> None:
    """The mean of the members' plain forward passes, alone or in any company, and through a session."""
    folder = write_qwen_checkpoint(tmp_path / "second", seed=1)
    other = load_local(folder)
    second = Reference(folder)
    ensemble = surefoot.load([scorer, other])
    items = [(f"q {n % 3}", ["one", f"two {n}", "1 + 1 = 2", "so 3"][: n % 5]) for n in range(20)]
    expected = [
        [(one + two) / 2 for one, two in zip(alone(scorer, reference, *item), alone(other, second, *item), strict=True)]
        for item in items
    ]
    backwards = ensemble.score_many(items[::-1])[::-1]
    sessions = {question: ensemble.session(question) for question, _ in items}
    for number, item in enumerate(items):
        searched = sessions[item[0]].score([item[1]])[0]
        for result in (ensemble.score(*item), backwards[number], searched):
            assert result.step_scores == pytest.approx(expected[number], abs=1e-5)


def test_from_many_threads_at_once(scorer: surefoot.Scorer) -> None:
    items = [(f"q {n % 3}", ["one", f"two {n}", "three"][: n % 4]) for n in range(24)]
    expected = [result.step_scores for result in scorer.score_many(items)]

    def work(number: int) -> list[list[float | None]]:
        if number % 2:
            return [result.step_scores for result in scorer.score_many(items)]
        sessions = {question: scorer.session(question) for question, _ in items}
        return [sessions[question].score([steps])[0].step_scores for question, steps in items]

    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(work, range(16)):
            for one, other in zip(found, expected, strict=True):
                assert one == pytest.approx(other, abs=1e-5)


def test_a_solution_that_overflows_harms_no_other(checkpoint: Path, scorer: surefoot.Scorer) -> None:
    """One token whose embedding is infinite: only steps that see it are lost, in any company."""
    broken = load_local(checkpoint)
    token = scorer.tokenizer.encode(" bomb")[0][0]
    with torch.inference_mode():
        broken.engine.backbone.state_dict()["embed_tokens.weight"][token] = float("inf")
    items = [("q", ["one", "a bomb", "three"]), ("q", ["one", "two"]), ("other", ["x"])]
    fine = [result.step_scores for result in scorer.score_many(items)]
    expected = [[fine[0][0], None, None], fine[1], fine[2]]
    found = [result.step_scores for result in broken.score_many(items)]
    session = broken.session("q")
    searched = [session.score([steps])[0].step_scores for _, steps in items[:2]]
    for scores, wanted in zip([*found, *searched], [*expected, *expected[:2]], strict=True):
        assert [score is None for score in scores] == [score is None for score in wanted]
        known = [score for score in scores if score is not None]
        assert known == pytest.approx([score for score in wanted if score is not None], abs=1e-5)


@pytest.mark.parametrize("kind", ["autocast", "default dtype"])
def test_under_a_trainers_settings(checkpoint: Path, scorer: surefoot.Scorer, kind: str) -> None:
    expected = scorer.score("q", ["one", "two"]).step_scores
    if kind == "autocast":
        with torch.autocast("cpu", torch.bfloat16):
            found = scorer.score("q", ["one", "two"]).step_scores
    else:
        torch.set_default_dtype(torch.float64)
        try:
            found = scorer.score("q", ["one", "two"]).step_scores
        finally:
            torch.set_default_dtype(torch.float32)
    assert found == pytest.approx(expected, abs=1e-5)


def test_compiled(checkpoint: Path, scorer: surefoot.Scorer, caplog: pytest.LogCaptureFixture) -> None:
    """Packs of one fixed shape go through the compiled pass, cut wherever they are full."""
    compiled = load_local(checkpoint, compile=True)
    compiled.engine.budget = 64
    items = [(f"q {n // 6}", ["one", f"two {n}", "1 + 1 = 2", "so 3"][: n % 5]) for n in range(30)]
    assert any(len(pack.ids) == 64 and pack.inherited for pack in packs(compiled, items))
    for found, expected in zip(compiled.score_many(items), scorer.score_many(items), strict=True):
        assert found.step_scores == pytest.approx(expected.step_scores, abs=1e-5)
    assert "Compiling the forward pass" in caplog.text


def packs(scorer: surefoot.Scorer, items: list[tuple[str, list[str]]]) -> list[Pack]:
    prompts = [scorer.family.render(scorer.tokenizer, *item).cut(4096) for item in items if item[1]]
    return list(build_trie(prompts, scorer.engine.budget, fixed_size=True).packs())


@pytest.mark.parametrize("attention", ["eager", "flex"])
def test_through_every_attention(checkpoint: Path, scorer: surefoot.Scorer, attention: str) -> None:
    other = load_local(checkpoint, attention=attention)
    items = [("q", ["one", f"two {n}", "three"][: n % 4]) for n in range(12)]
    for found, expected in zip(other.score_many(items), scorer.score_many(items), strict=True):
        assert found.step_scores == pytest.approx(expected.step_scores, abs=1e-5)
