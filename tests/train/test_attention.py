"""Attention by segments: the same outputs and gradients as torch's fused kernel with a dense mask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Gemma2Config, LlamaConfig

from surefoot.testing import write_base
from surefoot.train.attention import NAME, choose_attention
from surefoot.train.batch import Batch, Encoded, Shape, collate, merge
from surefoot.train.model import RewardModel, make_trainee

QUESTION = (5, 6, 7, 8)
SOLUTIONS = ((9, 10, 11, 12), (9, 10, 13), (14, 15, 16, 17, 18), (19,))
LONG = tuple(range(20, 180))  # more rows than a segment may have


def example(*ids: int) -> Encoded:
    return Encoded((*QUESTION, *ids), (len(QUESTION) + len(ids) - 1,), (1.0,), "file", wrong=False, prefix=4)


def outputs_and_gradients(model: RewardModel, batch: Batch, lengths: list[int]) -> list[torch.Tensor]:
    model.zero_grad()
    hidden = model.hidden(batch)
    real = torch.cat([hidden[row, :length] for row, length in enumerate(lengths)])
    weights = torch.linspace(-1, 1, real.numel()).view_as(real)
    (real * weights).sum().backward()  # type: ignore[no-untyped-call]
    return [real.detach(), *(part.grad.clone() for part in model.parameters() if part.grad is not None)]


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
@pytest.mark.parametrize("fixed_rows", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_segments_equal_a_dense_mask(kind: str, fixed_rows: bool, shared: bool, tmp_path: Path) -> None:
    """Rows of different length, so that there is padding; merged rows are tries."""
    model = make_trainee(write_base(tmp_path / "base", kind), family="mini").model
    rows = [example(*ids) for ids in (*SOLUTIONS, LONG)]
    if shared:
        rows = [*merge(rows[:4], range(4), 100, 0, 0), rows[4]]
        assert len(rows) == 2
    shape = Shape(2048, 16, fixed_rows)
    lengths = [len(row.ids) for row in rows]
    assert model.attends_by_segments
    divided = outputs_and_gradients(model, collate(rows, shape, segments=True), lengths)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = outputs_and_gradients(model, collate(rows, shape, segments=True), lengths)
    config: Any = model.model.config
    config._attn_implementation = "sdpa"
    masked = outputs_and_gradients(model, collate(rows, shape), lengths)
    assert len(masked) == len(divided) == len(rounded) > 10
    for expected, found, coarse in zip(masked, divided, rounded, strict=True):
        assert torch.allclose(expected, found, atol=1e-4 * float(expected.abs().max()))
        assert (expected - coarse).norm() < 0.1 * expected.norm()  # bfloat16 has eight bits


def test_where_it_is_used(tmp_path: Path) -> None:
    """Not on GPUs, and not for models whose attention it does not implement."""
    cpu = torch.device("cpu")
    assert choose_attention(LlamaConfig(), cpu) == NAME
    assert choose_attention(LlamaConfig(), torch.device("cuda")) == "sdpa"
    assert choose_attention(LlamaConfig(attention_dropout=0.1), cpu) == "sdpa"
    assert choose_attention(Gemma2Config(), cpu) == "sdpa"
    folder = write_base(tmp_path / "base", attention_dropout=0.5)
    model = make_trainee(folder).model
    assert not model.attends_by_segments
    batch = collate([example(*SOLUTIONS[0])], Shape(64, 8))
    model.train()
    assert not torch.equal(model.hidden(batch), model.hidden(batch)), "dropout is applied"
