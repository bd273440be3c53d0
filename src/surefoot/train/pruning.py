"""Make feed-forward blocks narrower: keep the units that matter most for some texts.

A unit's importance is the size of its activation times the size of what it adds to the output. The output weights of
the units that stay are then solved for by least squares, so that the block's outputs on the texts change as little as
possible. Blocks are pruned in their order, each on the outputs of the narrower ones before it. Narrower blocks in all
layers harm a language model much less than fewer layers of full width (see docs/training.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from surefoot.errors import OptionError

TOKENS = 256
"""Longer texts are cut to this length."""
OUTPUT_WEIGHT = "down_proj.weight"
"""How the names of the weights end that are solved for."""
RIDGE = 0.1
"""How strongly the output weights are kept, relative to the mean square of the activations."""


@torch.no_grad()
def prune_feed_forward(backbone: nn.Module, units: int, texts: Sequence[Sequence[int]]) -> None:
    """Keep the `units` most important units of every feed-forward block, measured on encoded texts.

    All texts are computed in one batch.
    """
    blocks = _blocks(backbone)
    width = blocks[0].down_proj.in_features
    if not 1 <= units <= width:
        raise OptionError(
            f"units={units}, but the feed-forward blocks have {width}. Choose a number from 1 to {width}."
        )
    if units == width:
        return
    cut = [torch.tensor(ids[:TOKENS]) for ids in texts if ids]
    if not cut:
        raise OptionError("Pruning needs texts to measure the units on, such as correct solutions. There are none.")
    ids = nn.utils.rnn.pad_sequence(cut, batch_first=True)
    # Padding comes last, where causal attention does not see it.
    is_token = torch.arange(ids.shape[1]) < torch.tensor([len(one) for one in cut])[:, None]
    hooks = [
        block.down_proj.register_forward_hook(
            lambda _, inputs, output, block=block: _prune(block, units, inputs[0], output, is_token)
        )
        for block in blocks
    ]
    backbone(input_ids=ids, use_cache=False)
    for hook in hooks:
        hook.remove()
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


def _prune(block: Any, units: int, activations: Tensor, outputs: Tensor, is_token: Tensor) -> Tensor:
    """Prune a block, given the activations of all its units and its outputs; return its new outputs."""
    layer = block.down_proj
    expected = outputs[is_token] if layer.bias is None else outputs[is_token] - layer.bias
    # Every token counts equally: the first one of a text has outputs that are hundreds of times as large.
    scale = 1 / expected.norm(dim=1, keepdim=True).clamp_min(1e-6)
    rows = activations[is_token] * scale
    importance = rows.square().sum(0).sqrt() * layer.weight.norm(dim=0)
    kept = importance.topk(units).indices.sort().values
    _keep(block, kept)
    rows = rows[:, kept]
    missing = expected * scale - rows @ layer.weight.T
    products = rows.T @ rows
    products.diagonal().add_(RIDGE * products.diagonal().mean().clamp_min(1e-12))
    layer.weight += torch.linalg.solve(products, rows.T @ missing).T
    return linear(activations[..., kept], layer.weight, layer.bias)


def _keep(block: Any, kept: Tensor) -> None:
    for layer in (block.gate_proj, block.up_proj):
        layer.weight = nn.Parameter(layer.weight[kept].clone())
        layer.out_features = len(kept)
        if layer.bias is not None:
            layer.bias = nn.Parameter(layer.bias[kept].clone())
    block.down_proj.weight = nn.Parameter(block.down_proj.weight[:, kept].clone())
    block.down_proj.in_features = len(kept)
