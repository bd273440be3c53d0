"""Attention and KV cache for decoding, against transformers' own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache, DynamicLayer
from transformers.models.qwen2.modeling_qwen2 import eager_attention_forward

from surefoot.generate.local_attention import (
    ROOM,
    GrowingLayer,
    can_join,
    decoding_attention,
    joined,
    joined_masks,
    without_copies,
)


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


class Module(nn.Module):
    is_causal = True

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.num_key_value_groups = groups


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("heads", "shared"), [(8, 2), (6, 1), (4, 4)])
@pytest.mark.parametrize("length", [1, 5])
def test_the_output_is_that_of_eager_attention(heads: int, shared: int, length: int, masked: bool) -> None:
    rows, past, width = 3, 11, 16
    query = random(rows, heads, length, width)
    key, value = random(rows, shared, past, width), random(rows, shared, past, width + 4)
    allowed = torch.ones(rows, 1, length, past, dtype=torch.bool).tril(past - length)
    if masked:
        allowed[1, ..., :4] = False
    module = Module(heads // shared).eval()
    # One token sees everything, so it needs no mask.
    given = None if length == 1 and not masked else allowed
    found, _ = decoding_attention(module, query, key, value, given, scaling=0.3)
    additive = torch.zeros(allowed.shape).masked_fill(~allowed, torch.finfo(torch.float32).min)
    expected, _ = eager_attention_forward(module, query, key, value, additive, scaling=0.3)
    assert found.shape == expected.shape
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_the_cache_holds_what_transformers_cache_holds() -> None:
    """Also after its rows were selected, and after its room was used up several times."""
    plain, growing = DynamicCache(), DynamicCache()
    for cache in (plain, growing):
        cache.update(random(4, 2, 7, 8), random(4, 2, 7, 8) + 1, 0)
    growing = without_copies(growing)
    assert type(growing.layers[0]) is GrowingLayer
    steps: list[Any] = [*range(ROOM + 3), [3, 1, 1], *range(5), [0], *range(ROOM + 3)]
    rows = 4
    for at, step in enumerate(steps):
        if isinstance(step, list):
            rows = len(step)
            for cache in (plain, growing):
                cache.reorder_cache(torch.tensor(step))
            continue
        new = random(rows, 2, 1, 8) + at
        expected, found = plain.update(new, new * 2, 0), growing.update(new, new * 2, 0)
        assert all(map(torch.equal, expected, found))
    assert growing.get_seq_length() == plain.get_seq_length() == 7 + 2 * (ROOM + 3) + 5


@pytest.mark.parametrize(("long", "short"), [(9, 4), (4, 9), (5, 5)])
def test_joined_rows_are_padded_on_the_left(long: int, short: int) -> None:
    first, second = DynamicCache(), DynamicCache()
    first.update(random(2, 1, long, 4), random(2, 1, long, 4) + 1, 0)
    second.update(random(3, 1, short, 4), random(3, 1, short, 4) + 1, 0)
    first, second = without_copies(first), without_copies(second)
    assert can_join(first)
    assert can_join(second)
    cache = joined(first, second)
    mask = joined_masks(torch.ones(2, long, dtype=torch.long), torch.ones(3, short, dtype=torch.long))
    new = random(5, 1, 1, 4)
    keys, _ = cache.update(new, new, 0)
    length = max(long, short)
    assert keys.shape == (5, 1, length + 1, 4)
    assert torch.equal(keys[:2, :, length - long : length], random(2, 1, long, 4))
    assert torch.equal(keys[2:, :, length - short : length], random(3, 1, short, 4))
    assert torch.equal(keys[:, :, length:], new)
    assert mask.tolist() == [[0] * (length - size) + [1] * size for size in (long, long, short, short, short)]


def test_tokens_are_added_in_place() -> None:
    cache = DynamicCache()
    cache.update(random(1, 1, 4, 8), random(1, 1, 4, 8), 0)
    cache = without_copies(cache)
    addresses = {cache.update(random(1, 1, 1, 8), random(1, 1, 1, 8), 0)[0].data_ptr() for _ in range(ROOM)}
    assert len(addresses) == 1


def test_layers_of_other_kinds_stay() -> None:
    class Sliding(DynamicLayer):  # type: ignore[misc]
        pass

    cache = DynamicCache()
    cache.update(random(1, 1, 4, 8), random(1, 1, 4, 8), 0)
    layer = Sliding()
    cache.layers.append(layer)
    assert without_copies(cache).layers[1] is layer
    assert not can_join(cache)
