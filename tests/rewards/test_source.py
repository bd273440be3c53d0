"""What all integrations share: one scorer per process, and invalid samples that do not affect their batch."""

from __future__ import annotations

import math
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import surefoot
from helpers.counting import Counting
from helpers.serving import served
from surefoot.errors import LoadError, OptionError
from surefoot.rewards.source import RewardSource, Sample, find_scorer, forget_shared, shared
from surefoot.scoring.local import load_local

QUESTION = "What is 2 + 3 * 4?"
SOLUTION = "Step 1: 3 * 4 = 12.\nStep 2: 2 + 12 = 14.\nFinal Answer: 14"


def samples(*solutions: Any) -> list[Sample]:
    return [Sample(QUESTION, solution) for solution in solutions]


def test_one_scorer_per_process(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget_shared()
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(find_scorer(checkpoint))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(scorer) for scorer in found}) == 1
    assert find_scorer(str(checkpoint)) is found[0]
    assert find_scorer(checkpoint, max_tokens=100) is not found[0], "other options, another scorer"
    monkeypatch.setenv("SUREFOOT_MODEL", str(checkpoint))
    assert find_scorer() is found[0]


def test_compute_reward(checkpoint: Path, scorer: surefoot.Scorer) -> None:
    result = surefoot.compute_reward(QUESTION, SOLUTION, "14", model=checkpoint, recipe="outcome+process")
    again = surefoot.compute_reward(QUESTION, SOLUTION, "14", model=scorer, recipe="outcome+process")
    assert result.value is not None
    assert result.value == pytest.approx(again.value, abs=1e-5)
    assert result.terms["outcome"] == 1.0
    assert surefoot.compute_reward(QUESTION, SOLUTION, model=scorer, recipe="outcome+process").value is None
    assert surefoot.compute_reward(QUESTION, SOLUTION, "14", model=scorer).terms == again.terms, "the default recipe"
    assert set(surefoot.compute_reward(QUESTION, SOLUTION, model=scorer).terms) == {"final", "mean", "correct_prefix"}


def test_options_reach_a_loaded_scorer(scorer: surefoot.Scorer) -> None:
    options = surefoot.ReadOptions(split="lines", closing=False, system="Think.")
    expected = scorer.score(QUESTION, SOLUTION, options)
    found = surefoot.compute_reward(QUESTION, SOLUTION, model=scorer, recipe="min", options=options)
    assert found.value == pytest.approx(expected.min, abs=1e-5)
    assert expected.min != pytest.approx(scorer.score(QUESTION, SOLUTION).min, abs=1e-5)


def test_load_options_for_a_loaded_scorer_raise(scorer: surefoot.Scorer) -> None:
    with pytest.raises(OptionError, match="a loaded scorer, so max_tokens, dtype would have no effect"):
        surefoot.compute_reward(QUESTION, SOLUTION, model=scorer, load={"max_tokens": 100, "dtype": "bfloat16"})
    with pytest.raises(OptionError, match="so dtype would have no effect"):
        RewardSource(scorer, load={"dtype": "bfloat16"})


def test_an_invalid_sample_does_not_affect_the_others(scorer: surefoot.Scorer) -> None:
    solutions: list[Any] = [SOLUTION, None, SOLUTION + "\ud800", SOLUTION.replace("12", "13"), 7, ""]
    results = RewardSource(scorer, "min").rewards(samples(*solutions))
    alone = RewardSource(scorer, "min").rewards(samples(solutions[0], solutions[3]))
    assert [result.value is None for result in results] == [False, True, True, False, True, True]
    assert [results[0].value, results[3].value] == pytest.approx([result.value for result in alone], abs=1e-5)
    assert "NoneType" in (results[1].reason or "")
    assert "surrogate" in (results[2].reason or "")
    assert all(list(result.terms) == ["min"] for result in results)


def test_gold_answers_may_be_numbers(scorer: surefoot.Scorer) -> None:
    asked = [Sample(QUESTION, SOLUTION, gold) for gold in (14, 14.0, "x", None)]
    results = RewardSource(scorer, "outcome").rewards(asked)
    assert [result.value for result in results] == [1.0, 1.0, 0.0, None]


def test_a_missing_or_invalid_gold_answer_gives_no_number() -> None:
    score = surefoot.SolutionScore((), "any", answer="14")
    source = RewardSource("never loaded", "outcome")
    for gold in (math.nan, np.float32("nan"), None):
        assert source.reward(Sample(QUESTION, SOLUTION, gold), score).reason == "outcome: no gold answer was given"
    for gold in ({"target": ["14"]}, b"14", ["14"], np.array(["14"])):
        result = source.reward(Sample(QUESTION, SOLUTION, gold), score)
        assert result.value is None
        assert result.reason is not None
        assert type(gold).__name__ in result.reason
    for gold in (np.int64(14), np.array(14), Decimal("14.0"), "14 eggs", torch.tensor(14)):
        assert source.reward(Sample(QUESTION, SOLUTION, gold), score).value == 1.0
    assert (
        RewardSource("never loaded", "min").reward(Sample(QUESTION, SOLUTION, b"14"), score).reason
        == "min: a step is unscored"
    )


def test_loading_one_model_does_not_block_another() -> None:
    started, go_on = threading.Event(), threading.Event()

    @shared
    def slow(name: str) -> str:
        if name == "model":
            started.set()
            go_on.wait(30)
        return name

    thread = threading.Thread(target=slow, args=("model",))
    thread.start()
    started.wait(30)
    try:
        assert slow("another") == "another"
        assert thread.is_alive()
    finally:
        go_on.set()
        thread.join()


def test_shared_objects_are_told_apart_by_their_arguments(checkpoint: Path) -> None:
    first, second = load_local(checkpoint), load_local(checkpoint)
    assert repr(first) == repr(second), "so they cannot be told apart as text"

    @shared
    def create(model: object = None, **options: Any) -> object:
        return object()

    assert create(first) is create(first)
    assert create(first) is not create(second)
    assert create("m", load={"a": 1, "b": [2]}) is create("m", load={"b": [2], "a": 1})
    assert create("m", load={"a": 1, "b": [2]}) is not create("m", load={"a": 1, "b": [3]})
    assert create("m", names={"x"}) is create("m", names={"x"})
    assert create("m", wait=1) is not create("m")


def test_a_sample_with_an_error_is_not_scored(scorer: surefoot.Scorer) -> None:
    counting = Counting(scorer)
    source = RewardSource(counting, "outcome+process")
    broken, whole = source.rewards([Sample(None, None, "14", "no question"), Sample(QUESTION, SOLUTION, "14")])
    assert counting.calls == [1]
    assert (broken.value, broken.reason) == (None, "no question")
    assert broken.terms == {"outcome": None, "min": None}
    assert broken.score is not None
    assert (broken.score.status, broken.score.reason) == ("unscored", "no question")
    assert whole.value is not None
    assert RewardSource("never loaded").rewards([]) == []


def test_a_model_that_cannot_be_loaded_raises(tmp_path: Path) -> None:
    with pytest.raises(LoadError):
        RewardSource(tmp_path / "nothing").rewards(samples(SOLUTION))


def test_an_address_opens_one_client(scorer: surefoot.Scorer) -> None:
    with served([scorer]) as (url, _):
        result = RewardSource(url, "min").rewards(samples(SOLUTION))[0]
        assert isinstance(RewardSource(url).scorer, surefoot.Client)
        assert RewardSource(url).scorer is RewardSource(url, "min").scorer
    assert result.value == pytest.approx(scorer.score(QUESTION, SOLUTION).min, abs=1e-5)
