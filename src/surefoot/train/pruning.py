"""Make feed-forward blocks narrower: keep the units that matter most for some texts.

A unit's importance is the size of its activation times the size of what it adds to the output. Narrower blocks in all
layers harm a language model much less than fewer layers of full width (see docs/training.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from surefoot.errors import OptionError

TOKENS = 256
"""Longer texts are cut to this length."""


@torch.no_grad()
def prune_feed_forward(backbone: nn.Module, units: int, texts: Sequence[Sequence[int]]) -> None:
    """Keep the `units` most important units of every feed-forward block, measured on encoded texts."""
    blocks = _blocks(backbone)
    width = blocks[0].down_proj.in_features
    if not 1 <= units <= width:
        raise OptionError(
            f"units={units}, but the feed-forward blocks have {width}. Choose a number from 1 to {width}."
        )
    squares = [torch.zeros(width) for _ in blocks]
    hooks = [
        block.down_proj.register_forward_pre_hook(lambda _, inputs, total=total: _add_squares(total, inputs[0]))
        for block, total in zip(blocks, squares, strict=True)
    ]
    for ids in texts:
        backbone(input_ids=torch.tensor([ids[:TOKENS]]), use_cache=False)
    for hook in hooks:
        hook.remove()
    for block, total in zip(blocks, squares, strict=True):
        importance = total.sqrt() * block.down_proj.weight.norm(dim=0)
        _keep(block, importance.topk(units).indices.sort().values)
    config: Any = backbone.config
    config.intermediate_size = units


def _blocks(backbone: nn.Module) -> list[Any]:
    """The gated feed-forward blocks, one per layer."""
    names = ("gate_proj", "up_proj", "down_proj")
    found = [
        module for module in backbone.modules() if all(isinstance(getattr(module, n, None), nn.Linear) for n in names)
    ]
    if not found:
        raise OptionError("The feed-forward blocks of this base cannot be pruned. Omit `units`.")
    return found


def _add_squares(total: Tensor, inputs: Tensor) -> None:
    total += inputs.flatten(0, -2).square().sum(0)


def _keep(block: Any, kept: Tensor) -> None:
    for layer in (block.gate_proj, block.up_proj):
        layer.weight = nn.Parameter(layer.weight[kept].clone())
        layer.out_features = len(kept)
        if layer.bias is not None:
            layer.bias = nn.Parameter(layer.bias[kept].clone())
    block.down_proj.weight = nn.Parameter(block.down_proj.weight[:, kept].clone())
    block.down_proj.in_features = len(kept)
