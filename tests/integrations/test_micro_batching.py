"""Concurrent calls with one sample each are answered in batches."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from collections.abc import Sequence
from typing import Any

import pytest

import surefoot
from helpers.counting import Counting
from surefoot.core.result import SolutionScore
from surefoot.errors import LoadError
from surefoot.integrations.micro_batching import MicroBatcher

QUESTION = "What is 2 + 3 * 4?"
SOLUTION = "Step 1: 3 * 4 = 12.\nStep 2: 2 + 12 = 14.\nFinal Answer: 14"


def test_concurrent_calls_are_batched(scorer: surefoot.Scorer) -> None:
    counting = Counting(scorer)
    batcher: MicroBatcher[str, SolutionScore] = MicroBatcher(
        lambda asked: list(counting.score_stream([(QUESTION, text) for text in asked])), wait=0.2
    )
    texts = [SOLUTION.replace("14", str(n)) for n in range(20)]
    found: dict[str, SolutionScore] = {}

    def ask(text: str) -> None:
        found[text] = batcher.submit(text).result()

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
        return await asyncio.gather(*(asyncio.wrap_future(batcher.submit(text)) for text in texts))

    counting.calls.clear()
    assert [score.answer for score in asyncio.run(all_at_once())] == [found[text].answer for text in texts]
    assert len(counting.calls) <= 3, counting.calls


def test_a_failure_reaches_all_callers_and_the_next_call_works() -> None:
    calls: list[int] = []

    def answer(asked: Sequence[int]) -> Sequence[int]:
        calls.append(len(asked))
        if 13 in asked:
            raise LoadError("the scorer failed")
        return [number + 1 for number in asked]

    batcher = MicroBatcher(answer, wait=0.1)
    futures = [batcher.submit(number) for number in (1, 13, 2)]
    for future in futures:
        with pytest.raises(LoadError, match="failed"):
            future.result(timeout=5)
    assert batcher.submit(4).result(timeout=5) == 5
    assert calls[0] == 3


def _in_child(batcher: MicroBatcher[int, int], answers: Any) -> None:
    answers.put(batcher.submit(1).result(timeout=10))


def test_a_forked_process_has_its_own_thread() -> None:
    batcher: MicroBatcher[int, int] = MicroBatcher(lambda asked: [number + 1 for number in asked])
    assert batcher.submit(0).result(timeout=5) == 1
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=_in_child, args=(batcher, answers))
    child.start()
    assert answers.get(timeout=20) == 2
    child.join(timeout=10)
