"""Attention in training on a CPU: by segments, as in the engine.

A token of a row that merges many solutions attends to few of the others. With a dense mask, attention took almost half
of a training step on a CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from surefoot.engine.attention import attend
from surefoot.engine.segments import Segment

NAME = "surefoot_training"
UNSUPPORTED = ("attention_dropout", "attn_logit_softcapping")
"""Settings of a model that attention by segments does not implement."""


def choose_attention(config: Any, device: torch.device) -> str:
    """Return the name of the attention to train with: by segments on the CPU where it can be used, else `sdpa`."""
    from transformers import AttentionInterface

    if device.type != "cpu" or any(getattr(config, name, None) for name in UNSUPPORTED):
        return "sdpa"
    AttentionInterface.register(NAME, attention)
    return NAME


def attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    *,
    segments: Sequence[Sequence[Segment]] | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attend within the segments of each row; tokens after them are padding. Without segments, do what `sdpa` does."""
    if segments is None:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        out, _ = sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **others)
        return out, None
    rows = []
    for number, own in enumerate(segments):
        row, tokens = slice(number, number + 1), own[-1].rows.stop
        found = attend(query[row, :, :tokens], key[row, :, :tokens], value[row, :, :tokens], own, scaling)
        rows.append(functional.pad(found, (0, 0, 0, 0, 0, query.shape[2] - tokens)))
    empty = rows[0].new_zeros(len(query) - len(rows), *rows[0].shape[1:])  # rows that only fill the batch
    return torch.cat([*rows, empty]), None
