"""What all adapters share: one scorer a process, and no batch poisoned by one sample."""

from __future__ import annotations

import asyncio
import math
import multiprocessing
import threading
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import surefoot
from helpers.counting import Counting
from helpers.serving import served
from surefoot.core.result import SolutionScore
from surefoot.errors import InputError, LoadError, OptionError
from surefoot.integrations.micro_batching import Gather
from surefoot.rewards import source as source_module
from surefoot.rewards.source import Source, find_scorer

QUESTION = "What is 2 + 3 * 4?"
SOLUTION = "Step 1: 3 * 4 = 12.\nStep 2: 2 + 12 = 14.\nFinal Answer: 14"


def test_one_scorer_a_process(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "_shared", {})
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(find_scorer(checkpoint))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(scorer) for scorer in found}) == 1
    assert find_scorer(str(checkpoint)) is found[0]
    assert find_scorer(checkpoint, max_tokens=100) is not found[0], "other options make another scorer"
    monkeypatch.setenv("SUREFOOT_MODEL", str(checkpoint))
    assert find_scorer() is found[0]


def test_compute_reward(checkpoint: Path, scorer: surefoot.Scorer) -> None:
    result = surefoot.compute_reward(QUESTION, SOLUTION, "14", model=checkpoint, recipe="outcome+process")
    again = surefoot.compute_reward(QUESTION, SOLUTION, "14", model=scorer, recipe="outcome+process")
    assert result.value is not None
    assert result.value == pytest.approx(again.value, abs=1e-5)
    assert result.terms["outcome"] == 1.0
    assert surefoot.compute_reward(QUESTION, SOLUTION, model=scorer, recipe="outcome+process").value is None


def test_options_reach_a_scorer_that_is_loaded_already(scorer: surefoot.Scorer) -> None:
    options = surefoot.ReadOptions(split="lines", closing=False, system="Think.")
    expected = scorer.score(QUESTION, SOLUTION, options)
    found = surefoot.compute_reward(QUESTION, SOLUTION, model=scorer, recipe="min", options=options)
    assert found.value == pytest.approx(expected.min, abs=1e-5)
    assert expected.min != pytest.approx(scorer.score(QUESTION, SOLUTION).min, abs=1e-5)


def test_what_a_scorer_that_is_loaded_cannot_do_is_refused(scorer: surefoot.Scorer) -> None:
    with pytest.raises(OptionError, match="loaded already, so max_tokens, spilt would do nothing"):
        surefoot.compute_reward(QUESTION, SOLUTION, model=scorer, max_tokens=100, spilt="lines")
    with pytest.raises(OptionError, match="so dtype would do nothing"):
        Source(scorer, load={"dtype": "bfloat16"})


def test_a_malformed_sample_costs_the_others_nothing(scorer: surefoot.Scorer) -> None:
    solutions: list[Any] = [SOLUTION, None, SOLUTION + "\ud800", SOLUTION.replace("12", "13"), 7, ""]
    results = Source(scorer, "min").rewards([QUESTION] * 6, solutions)
    alone = Source(scorer, "min").rewards([QUESTION] * 2, [solutions[0], solutions[3]])
    assert [result.value is None for result in results] == [False, True, True, False, True, True]
    assert [results[0].value, results[3].value] == pytest.approx([result.value for result in alone], abs=1e-5)
    assert "NoneType" in (results[1].reason or "")
    assert "surrogate" in (results[2].reason or "")
    assert all(list(result.terms) == ["min"] for result in results)


def test_gold_answers_may_be_numbers(scorer: surefoot.Scorer) -> None:
    results = Source(scorer, "outcome").rewards([QUESTION] * 4, [SOLUTION] * 4, [14, 14.0, "x", None])
    assert [result.value for result in results] == [1.0, 1.0, 0.0, None]


def test_a_gold_answer_that_is_none_or_unreadable_makes_no_number() -> None:
    score = surefoot.SolutionScore((), "any", answer="14")
    source = Source("never loaded", "outcome")
    for gold in (math.nan, np.float32("nan"), None):
        assert source.reward(score, gold).reason == "outcome: no gold answer was given"
    for gold in ({"target": ["14"]}, b"14", ["14"], np.array(["14"])):
        result = source.reward(score, gold)
        assert result.value is None
        assert result.reason is not None
        assert type(gold).__name__ in result.reason
    for gold in (np.int64(14), np.array(14), Decimal("14.0"), "14 eggs", torch.tensor(14)):
        assert source.reward(score, gold).value == 1.0
    assert Source("never loaded", "min").reward(score, b"14").reason == "min: a step was not scored"


def test_who_finds_does_not_wait_for_who_loads() -> None:
    started, go_on = threading.Event(), threading.Event()

    @source_module.shared
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


def test_lists_of_other_lengths_are_refused(scorer: surefoot.Scorer) -> None:
    with pytest.raises(InputError, match="2 questions, 1 solutions and 2 gold"):
        Source(scorer).rewards([QUESTION] * 2, [SOLUTION])
    assert Source(scorer).rewards([], []) == []


def test_a_model_that_cannot_be_loaded_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LoadError):
        Source(tmp_path / "nothing").rewards([QUESTION], [SOLUTION])


def test_an_address_opens_one_client(scorer: surefoot.Scorer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "_shared", {})
    with served([scorer]) as (url, _):
        result = Source(url, "min").rewards([QUESTION], [SOLUTION])[0]
        assert isinstance(Source(url).scorer, surefoot.Client)
        assert Source(url).scorer is Source(url, "min").scorer
    assert result.value == pytest.approx(scorer.score(QUESTION, SOLUTION).min, abs=1e-5)


def test_calls_that_arrive_together_are_answered_together(scorer: surefoot.Scorer) -> None:
    counting = Counting(scorer)
    gather: Gather[str, SolutionScore] = Gather(
        lambda asked: list(counting.score_stream([(QUESTION, text) for text in asked])), wait=0.2
    )
    texts = [SOLUTION.replace("14", str(n)) for n in range(20)]
    found: dict[str, SolutionScore] = {}

    def ask(text: str) -> None:
        found[text] = gather.submit(text).result()

    threads = [threading.Thread(target=ask, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counting.calls) == 20
    assert len(counting.calls) <= 3, counting.calls
    for text in texts:
        assert found[text].answer == scorer.score(QUESTION, text).answer

    async def all_at_once() -> list[SolutionScore]:
        return await asyncio.gather(*(asyncio.wrap_future(gather.submit(text)) for text in texts))

    counting.calls.clear()
    assert [score.answer for score in asyncio.run(all_at_once())] == [found[text].answer for text in texts]
    assert len(counting.calls) <= 3, counting.calls


def test_a_failure_reaches_everybody_who_waits_and_the_next_call_works() -> None:
    calls: list[int] = []

    def answer(asked: Sequence[int]) -> Sequence[int]:
        calls.append(len(asked))
        if 13 in asked:
            raise LoadError("the scorer is gone")
        return [number + 1 for number in asked]

    gather = Gather(answer, wait=0.1)
    futures = [gather.submit(number) for number in (1, 13, 2)]
    for future in futures:
        with pytest.raises(LoadError, match="gone"):
            future.result(timeout=5)
    assert gather.submit(4).result(timeout=5) == 5
    assert calls[0] == 3


def _in_child(gather: Gather[int, int], answers: Any) -> None:
    answers.put(gather.submit(1).result(timeout=10))


def test_a_forked_process_gathers_for_itself() -> None:
    gather: Gather[int, int] = Gather(lambda asked: [number + 1 for number in asked])
    assert gather.submit(0).result(timeout=5) == 1
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=_in_child, args=(gather, answers))
    child.start()
    assert answers.get(timeout=20) == 2
    child.join(timeout=10)
