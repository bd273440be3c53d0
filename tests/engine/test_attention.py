"""Attention over packs: with every implementation a token attends to exactly its ancestors."""

from __future__ import annotations

import sys
import types
from importlib.machinery import ModuleSpec
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.core.prompt import Prompt
from surefoot.engine import attention
from surefoot.engine.trie import build_trie
from surefoot.errors import OptionError
from surefoot.scoring.local import load_local

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
groups = st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=10), min_size=1, max_size=8)


def make_prompts(tokens: list[list[int]]) -> list[Prompt]:
    return [Prompt(tuple(ids), (len(ids) - 1,), 0) for ids in tokens]


@given(groups, st.integers(3, 20), st.integers(0, 5), st.integers(0, 5))
@settings(max_examples=150, deadline=None)
def test_masks_agree_and_padding_sees_itself(tokens: list[list[int]], budget: int, rows: int, columns: int) -> None:
    for pack in build_trie(make_prompts(tokens), budget).packs():
        height, width = len(pack.ids) + rows, pack.inherited + columns
        dense = attention.dense_mask(pack, height, width, torch.float32, CPU)[0, 0] == 0
        real = [*range(pack.inherited), *range(width, width + len(pack.ids))]
        assert np.array_equal(dense[: len(pack.ids)][:, real].numpy(), pack.mask())
        assert dense.sum() == pack.mask().sum() + rows, "padding is visible only to itself"
        block = attention.block_mask(pack, height, width, CPU)
        rebuilt = torch.stack(
            [block.mask_mod(None, None, torch.tensor(row), torch.arange(width + height)) for row in range(height)]
        )
        assert torch.equal(rebuilt, dense)


@pytest.mark.parametrize(
    ("tokens", "budget", "starts"),
    [
        ([[1, 2, 3], [4, 5], [6]], 10, [[0, 3, 5, 6]]),
        ([[1, 2, 3], [1, 5]], 10, [None]),
        ([[1, 2], [1, 2]], 10, [[0, 2]]),
        ([[1], [1, 2]], 10, [[0, 2]]),
        ([[1, 2, 3, 4]], 2, [[0, 2], None]),
    ],
)
def test_packs_without_shared_tokens_are_detected(
    tokens: list[list[int]], budget: int, starts: list[list[int] | None]
) -> None:
    packs = build_trie(make_prompts(tokens), budget).packs()
    found = [attention.sequence_starts(pack) for pack in packs]
    assert [None if one is None else one.tolist() for one in found] == starts


def test_flash_attention_is_called_as_documented(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernels need CUDA, so a function with the same signature replaces them: plain sdpa per sequence."""
    calls = []

    def flash_attn_varlen_func(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        cu_seqlens_q: torch.Tensor,
        cu_seqlens_k: torch.Tensor,
        max_seqlen_q: int,
        max_seqlen_k: int,
        softmax_scale: float | None = None,
        causal: bool = False,
    ) -> torch.Tensor:
        assert causal
        assert torch.equal(cu_seqlens_q, cu_seqlens_k)
        assert max_seqlen_q == max_seqlen_k == cu_seqlens_q.diff().max()
        calls.append(len(cu_seqlens_q) - 1)
        out = torch.empty_like(q)
        bounds = cu_seqlens_q.tolist()
        for start, stop in pairwise(bounds):
            query, key, value = (states[start:stop].transpose(0, 1)[None] for states in (q, k, v))
            seen = torch.nn.functional.scaled_dot_product_attention(
                query, key, value, is_causal=True, scale=softmax_scale, enable_gqa=True
            )
            out[start:stop] = seen[0].transpose(0, 1)
        return out

    module = types.ModuleType("flash_attn")
    module.__spec__ = ModuleSpec("flash_attn", None)  # transformers looks for the package, too
    module.flash_attn_varlen_func = flash_attn_varlen_func  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "flash_attn", module)
    monkeypatch.setattr(attention, "flash_obstacle", lambda device, dtype: None)
    flash = load_local(checkpoint, attention="flash_attention_2")
    plain = load_local(checkpoint)
    items = [("one", ["1 + 1 = 2", "so 2"]), ("two", ["2 + 2 = 4"]), ("one", ["1 + 1 = 3"])]
    for found, expected in zip(flash.score_many(items), plain.score_many(items), strict=True):
        assert found.step_scores == pytest.approx(expected.step_scores, abs=1e-5)
    assert calls == [], "these share their system message"
    alone = flash.score(*items[0])
    assert calls == [1, 1], "one sequence, two layers"
    assert alone.step_scores == pytest.approx(plain.score(*items[0]).step_scores, abs=1e-5)


@pytest.mark.parametrize(
    ("device", "dtype", "installed", "chosen"),
    [
        (CPU, torch.float32, {"triton", "flash_attn"}, "sdpa"),
        (CUDA, torch.bfloat16, {"triton", "flash_attn"}, "flash_attention_2"),
        (CUDA, torch.float32, {"triton", "flash_attn"}, "flex"),
        (CUDA, torch.bfloat16, {"triton"}, "flex"),
        (CUDA, torch.bfloat16, set(), "sdpa"),
    ],
)
def test_auto_chooses_the_fastest_that_works(
    device: torch.device,
    dtype: torch.dtype,
    installed: set[str],
    chosen: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for name, check in (("triton", "flex_obstacle"), ("flash_attn", "flash_package_obstacle")):
        monkeypatch.setattr(attention, check, lambda *_, name=name: None if name in installed else f"no {name}")
    assert attention.choose_attention("auto", device, dtype) == chosen
    assert ("dense mask, because" in caplog.text) == (device == CUDA and chosen == "sdpa")


@pytest.mark.parametrize(
    ("device", "dtype", "message"),
    [
        (CPU, torch.bfloat16, "needs a CUDA device"),
        (CUDA, torch.float32, "needs float16 or bfloat16"),
        (CUDA, torch.float16, "CUDA is not there"),
    ],
)
def test_flash_attention_reports_what_is_missing(
    device: torch.device, dtype: torch.dtype, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "flash_package_obstacle", lambda device: "CUDA is not there")
    with pytest.raises(OptionError, match=message):
        attention.choose_attention("flash_attention_2", device, dtype)
