"""Segments of a pack: together they are its attention mask, and they leave out most of what it masks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from surefoot.core.prompt import Prompt
from surefoot.engine import segments
from surefoot.engine.segments import Segment, divide
from surefoot.engine.trie import Pack, build_trie

groups = st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=10), min_size=1, max_size=8)


def packs(tokens: list[list[int]], budget: int) -> list[Pack]:
    return list(build_trie([Prompt(tuple(ids), (len(ids) - 1,), 0) for ids in tokens], budget).packs())


def rebuilt(pack: Pack, parts: list[Segment]) -> NDArray[np.bool_]:
    """The mask that the segments describe."""
    seen = torch.zeros(len(pack.ids), len(pack.keys), dtype=torch.bool)
    for part in parts:
        keys = torch.arange(len(pack.keys)) if part.keys is None else part.keys
        block = torch.ones(part.rows.stop - part.rows.start, len(keys)) if part.mask is None else part.mask == 0
        seen[part.rows.start : part.rows.stop, keys] = block.bool()
    return seen.numpy()


@given(groups, st.integers(1, 20), st.sampled_from([0, 5, 4096]), st.sampled_from([2, 128]))
@settings(max_examples=200, deadline=None)
def test_segments_are_the_mask(tokens: list[list[int]], budget: int, overhead: int, longest: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "OVERHEAD", overhead)
        patch.setattr(segments, "LONGEST", longest)
        for pack in packs(tokens, budget):
            parts = divide(pack, torch.float32)
            assert [part.rows.start for part in parts] == [0, *(part.rows.stop for part in parts[:-1])]
            assert parts[-1].rows.stop == len(pack.ids)
            assert np.array_equal(rebuilt(pack, parts), pack.mask())


def test_branches_do_not_compute_each_other() -> None:
    """Four branches of 100 tokens after 100 shared ones: each needs 200 keys at most, not 500."""
    tokens = [[*range(1, 101), *range(1000 * branch, 1000 * branch + 100)] for branch in range(1, 5)]
    (pack,) = packs(tokens, 512)
    parts = divide(pack, torch.float32)
    sizes = [(part.rows.stop - part.rows.start, 500 if part.keys is None else len(part.keys)) for part in parts]
    assert sizes == [(128, 128), (72, 200), (100, 200), (100, 200), (100, 200)], "the first path is 200 tokens long"


def test_short_branches_share_a_call() -> None:
    """A hundred branches of one token: one call for all costs less than a hundred calls."""
    (pack,) = packs([[1, 2, 3, token] for token in range(10, 110)], 512)
    assert len(divide(pack, torch.float32)) < 5
