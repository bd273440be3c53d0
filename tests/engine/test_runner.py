"""Packs of a real model, one at a time: interleaved calls, cancelled calls, locks."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path

import pytest
import torch

import surefoot
from surefoot.core.prompt import Prompt
from surefoot.engine.results import PackResult, collect
from surefoot.scoring.local import load_local


@pytest.fixture
def small_packs(scorer: surefoot.Scorer) -> Iterator[surefoot.Scorer]:
    """The small checkpoint with packs of 40 tokens."""
    before, scorer.engine.budget = scorer.engine.budget, 40
    yield scorer
    scorer.engine.budget = before


def prompts(scorer: surefoot.Scorer, seed: int, lengths: tuple[int, ...]) -> list[Prompt]:
    """Prompts of one question, with that many steps each."""
    rng = random.Random(seed)
    steps = [[f"{rng.randint(1, 99)} + {rng.randint(1, 99)} = {rng.randint(1, 99)}."] * length for length in lengths]
    return [scorer.family.render(scorer.tokenizer, f"What is {seed} + 1?", each) for each in steps]


def lists(rows: list[torch.Tensor]) -> list[list[float]]:
    return [row.tolist() for row in rows]


def test_interleaved_calls_compute_the_same_scores(small_packs: surefoot.Scorer) -> None:
    """Alone, a call never finds keys and values of another call in the shared buffer."""
    groups = [prompts(small_packs, seed, lengths) for seed, lengths in enumerate([(30,), (2, 1, 4), (12, 20), (1,)])]
    alone = [lists(small_packs.engine.scores(group)) for group in groups]
    calls = [small_packs.engine.packs(group) for group in groups]
    found: list[list[PackResult]] = [[] for _ in groups]
    for turn in zip_longest(*calls):
        for number, result in enumerate(turn):
            if result is not None:
                found[number].append(result)
    assert len(found[0]) >= 10, "the long prompt took many packs"
    for group, each, expected in zip(groups, found, alone, strict=True):
        for row, other in zip(collect(iter(each)), expected, strict=True):
            assert row.tolist() == pytest.approx(other, abs=1e-5)
        assert max(result.tokens for result in each) <= 40
        shared = len(group[0].ids[: group[0].prefix])
        assert sum(result.tokens for result in each) <= sum(len(prompt.ids) - shared for prompt in group) + shared


def test_prompts_are_completed_as_soon_as_they_are_computed(small_packs: surefoot.Scorer) -> None:
    group = [*prompts(small_packs, 0, (1, 30)), *prompts(small_packs, 5, (1, 1)), Prompt((), (), 0)]
    results = list(small_packs.engine.packs(group))
    order = [index for result in results for index, _ in result.completed]
    assert sorted(order) == [0, 1, 2, 3, 4], "each prompt is completed once"
    assert order[0] == 4, "a prompt without reads needs no computation"
    assert sum(bool(result.completed) for result in results) > 2
    assert lists(collect(iter(results))) == lists(small_packs.engine.scores(group))


def test_nothing_is_locked_between_packs_or_after_cancelling(small_packs: surefoot.Scorer) -> None:
    engine = small_packs.engine
    call = engine.packs(prompts(small_packs, 0, (30,)))

    def is_free() -> bool:
        """Whether another thread gets the lock."""
        with ThreadPoolExecutor(1) as pool:
            got: bool = pool.submit(engine.lock.acquire, timeout=5).result()
            if got:
                pool.submit(engine.lock.release).result()
        return got

    next(call), next(call)
    assert is_free()
    assert not torch.is_inference_mode_enabled()
    assert torch.ones(1, requires_grad=True).mul(2).requires_grad, "the caller's mode is its own"
    call.close()
    assert is_free()
    assert not torch.is_inference_mode_enabled()
    with pytest.raises(StopIteration):
        next(call)


def test_two_threads_take_turns(small_packs: surefoot.Scorer) -> None:
    """A short call does not wait until a long one in another thread is done."""
    long, short = prompts(small_packs, 1, (60,)), prompts(small_packs, 2, (1,))
    ended = []
    call = small_packs.engine.packs(long)
    next(call)
    thread = threading.Thread(target=lambda: ended.append(lists(small_packs.engine.scores(short))))
    thread.start()
    thread.join(20)
    assert ended == [lists(small_packs.engine.scores(short))]
    assert len(list(call)) > 10


def test_memory_that_runs_out_in_one_of_two_calls(checkpoint: Path) -> None:
    """Both continue with half the budget, and prompts that were complete are not computed again."""
    scorer = load_local(checkpoint)
    groups = [prompts(scorer, 1, (40, 1, 3)), prompts(scorer, 2, (40, 2))]
    expected = [lists(scorer.engine.scores(group)) for group in groups]
    sizes: list[int] = []

    def full(module: torch.nn.Module, args: object, kwargs: dict[str, torch.Tensor]) -> None:
        sizes.append(kwargs["inputs_embeds"].shape[1])
        if len(sizes) > 2 and sizes[-1] > 64:
            raise torch.OutOfMemoryError("CUDA out of memory")

    scorer.engine.budget = 128
    scorer.engine.backbone.register_forward_pre_hook(full, with_kwargs=True)
    calls = [scorer.engine.packs(group) for group in groups]
    started = [next(call) for call in calls]
    for call, first, rows in zip(calls, started, expected, strict=True):
        for row, other in zip(collect(iter([first, *call])), rows, strict=True):
            assert row.tolist() == pytest.approx(other, abs=1e-5)
    assert scorer.engine.budget == 64, "the second call does not halve the budget again"
    assert sum(size > 64 for size in sizes[2:]) == 2
