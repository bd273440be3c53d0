"""Leave out the feed-forward block of the last layer where nobody reads its outputs.

That block changes only the outputs of the token it computes, and the head reads few tokens: one per step in most
families. Attention of the last layer is computed for all tokens, as later packs may need their keys and values.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

PROJECTIONS = ("gate_proj", "up_proj", "down_proj")
_pass = threading.local()


class LastFeedForward(nn.Module):
    """The feed-forward block of a model's last layer."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute the block for the tokens that are read; the outputs of the others are 0."""
        rows: Tensor | None = getattr(_pass, "rows", None)
        if rows is None or 2 * len(rows) > inputs.shape[1]:
            computed: Tensor = self.block(inputs)
            return computed
        outputs = torch.zeros_like(inputs)
        if len(rows):
            outputs[:, rows] = self.block(inputs[:, rows])
        return outputs


def leave_out_unread_rows(backbone: nn.Module) -> None:
    """Let `reading_only` apply to a backbone whose last layer has a feed-forward block called `mlp`."""
    layers: Any = backbone.get_submodule("layers")
    block = getattr(layers[-1], "mlp", None)
    if block is not None and all(hasattr(block, name) for name in PROJECTIONS):
        layers[-1].mlp = LastFeedForward(block)


@contextmanager
def reading_only(rows: Tensor) -> Iterator[None]:
    """Only these tokens of the forward passes in this block are read. Other threads are not affected."""
    _pass.rows = rows
    try:
        yield
    finally:
        del _pass.rows
