from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.data.batching import bounded_batches


@pytest.mark.parametrize(
    ("sizes", "max_weight", "max_items", "expected"),
    [
        ([], 10, None, []),
        ([4, 4, 4], 8, None, [[4, 4], [4]]),
        ([4, 4, 4], 100, 2, [[4, 4], [4]]),
        ([20, 1, 1], 10, None, [[20], [1, 1]]),
        ([1, 20, 1], 10, None, [[1], [20], [1]]),
        ([5, 5], 10, 1, [[5], [5]]),
    ],
)
def test_batches(sizes: list[int], max_weight: int, max_items: int | None, expected: list[list[int]]) -> None:
    assert list(bounded_batches(sizes, int, max_weight=max_weight, max_items=max_items)) == expected


@given(st.lists(st.integers(0, 30)), st.integers(1, 40), st.integers(1, 5))
def test_nothing_is_lost_and_limits_hold(sizes: list[int], max_weight: int, max_items: int) -> None:
    batches = list(bounded_batches(sizes, int, max_weight=max_weight, max_items=max_items))
    assert [size for batch in batches for size in batch] == sizes
    assert all(len(batch) <= max_items for batch in batches)
    assert all(len(batch) == 1 or sum(batch) <= max_weight for batch in batches)
