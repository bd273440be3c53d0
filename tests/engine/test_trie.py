"""Packs: they contain every prompt, compute no token twice, and attend only to ancestors."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import surefoot
from surefoot.core.prompt import Prompt
from surefoot.engine import trie as trie_module
from surefoot.engine.trie import Indices, Pack, Trie, build_trie

# Few token values and short lists, so that prompts share prefixes of every shape, repeat and contain each other.
ids = st.lists(st.integers(1, 3), min_size=1, max_size=12)


@st.composite
def prompts(draw: st.DrawFn) -> list[Prompt]:
    found = []
    for tokens in draw(st.lists(ids, max_size=12)):
        reads = draw(st.sets(st.integers(0, len(tokens) - 1), max_size=4))
        found.append(Prompt(tuple(tokens), tuple(sorted(reads)), 0))
    return found


def trie_size(group: list[Prompt]) -> int:
    return len({prompt.ids[: end + 1] for prompt in group for end in range(len(prompt.ids))})


def ancestors(trie: Trie, token: int) -> list[int]:
    return [other for other in range(token + 1) if token < trie.ends[other]]


@given(prompts(), st.integers(1, 20))
@settings(max_examples=400)
def test_unpacking_gives_back_every_prompt(group: list[Prompt], budget: int) -> None:
    trie = build_trie(group, budget)
    assert len(trie.ids) == trie_size(group)
    for prompt, reads in zip(group, trie.reads, strict=True):
        for position, token in zip(prompt.reads, reads, strict=True):
            path = ancestors(trie, int(token))
            assert tuple(trie.ids[path]) == prompt.ids[: position + 1]
            assert list(trie.positions[path]) == list(range(position + 1))


@given(prompts(), st.integers(1, 20), st.booleans())
@settings(max_examples=600)
def test_packs_are_complete(group: list[Prompt], budget: int, fixed_size: bool) -> None:
    trie = build_trie(group, budget, fixed_size=fixed_size)
    if fixed_size:
        assert all(len(pack.ids) == budget for pack in list(trie.packs())[:-1])
    computed: list[int] = []
    inherited: list[int] = []
    for pack in trie.packs():
        assert list(pack.keys[: pack.inherited]) == inherited, "what the previous pack kept"
        assert 0 < len(pack.ids) <= budget
        for row, query in zip(pack.mask(), pack.queries, strict=True):
            assert list(pack.keys[row]) == ancestors(trie, int(query))
        computed += pack.queries.tolist()
        assert set(pack.reads) <= set(pack.queries)
        inherited = pack.keys[pack.kept].tolist()
    assert computed == list(range(len(trie.ids)))
    assert sorted({int(token) for reads in trie.reads for token in reads}) == [
        int(token) for pack in trie.packs() for token in pack.reads
    ]


@given(prompts(), st.integers(12, 30))
@settings(max_examples=300)
def test_a_prompt_that_fits_is_never_cut(group: list[Prompt], budget: int) -> None:
    whole = [Prompt(prompt.ids, (len(prompt.ids) - 1,), 0) for prompt in group]
    trie = build_trie(whole, budget)
    last_tokens = {int(token) for reads in trie.reads for token in reads}
    assert {int(pack.queries[-1]) for pack in trie.packs()} <= last_tokens


def test_a_prompt_longer_than_the_budget_is_cut() -> None:
    trie = build_trie([Prompt(tuple(range(10)), (9,), 0), Prompt((*range(8), 77), (8,), 0)], 4)
    assert [len(pack.ids) for pack in trie.packs()] == [4, 4, 3]
    assert [pack.inherited for pack in trie.packs()] == [0, 4, 8]


@pytest.mark.parametrize("copies", [1, 5])
def test_identical_prompts_cost_nothing_extra(copies: int) -> None:
    trie = build_trie([Prompt((5, 6, 7), (1, 2), 0)] * copies, 100)
    assert len(trie.ids) == 3
    assert [list(reads) for reads in trie.reads] == [[1, 2]] * copies


def test_no_prompts_give_no_packs() -> None:
    assert list(build_trie([], 10).packs()) == []
    assert list(build_trie([Prompt((), (), 0)], 10).packs()) == []


def test_a_worked_example() -> None:
    """a b c / a b d e / x: eight tokens, of which six are computed."""
    trie = build_trie([Prompt((1, 2, 3), (2,), 0), Prompt((1, 2, 4, 5), (1, 3), 0), Prompt((9,), (0,), 0)], 3)
    assert trie.ids.tolist() == [1, 2, 3, 4, 5, 9]
    assert trie.positions.tolist() == [0, 1, 2, 2, 3, 0]
    assert trie.ends.tolist() == [5, 5, 3, 5, 5, 6]
    first, second = trie.packs()
    assert isinstance(first, Pack)
    assert first.mask().astype(int).tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert first.kept.tolist() == [0, 1]
    assert second.mask().astype(int).tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [0, 0, 0, 0, 1]]
    assert second.reads.tolist() == [4, 5]


def test_ten_thousand_prompts_are_planned_quickly() -> None:
    rng = random.Random(0)
    group = []
    for _ in range(10_000 // 32 + 1):
        question = [rng.randrange(150_000) for _ in range(120)]
        for _ in range(32):
            tail = [rng.randrange(150_000) for _ in range(280)]
            group.append(Prompt((*question, *tail), tuple(range(150, 400, 50)), 120))
    group = group[:10_000]
    rng.shuffle(group)
    start = time.process_time()  # CPU time, so that other load on the machine does not matter
    packs = list(build_trie(group, 512).packs())
    seconds = time.process_time() - start
    assert sum(len(pack.ids) for pack in packs) == 313 * 120 + 10_000 * 280
    assert seconds < 2.0, f"{seconds:.2f} s"
    assert np.mean([len(pack.ids) for pack in packs]) > 250


def test_the_work_per_prompt_does_not_grow(scorer: surefoot.Scorer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reads of all prompts were encoded again for every prompt: 1,024 solutions took a million calls."""
    calls = 0
    encode = trie_module.encode_reads

    def counted(tokens: Indices, targets: Indices) -> Indices:
        nonlocal calls
        calls += 1
        return encode(tokens, targets)

    monkeypatch.setattr(trie_module, "encode_reads", counted)
    scorer.score_many([("What is 2 + 3?", f"It is {number}.") for number in range(40)])
    assert calls == 40
