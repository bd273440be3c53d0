"""Find the feed-forward blocks that compute `down(silu(gate(x)) * up(x))`, so that one module can replace each."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

Layer = TypeVar("Layer", bound=nn.Module)


def gated_blocks(backbone: nn.Module, kind: type[Layer]) -> Iterator[tuple[str, Layer, Layer, Layer]]:
    """Yield the path and the gate, up and down projections of each such block with projections of type `kind`."""
    for path, block in list(backbone.named_modules()):
        gate, up, down = (getattr(block, name, None) for name in ("gate_proj", "up_proj", "down_proj"))
        if isinstance(gate, kind) and isinstance(up, kind) and isinstance(down, kind) and is_gated_by_silu(block):
            yield path, gate, up, down


class _Affine(nn.Module):
    """Stands for a projection, to tell which one a block applies where."""

    def __init__(self, factor: float, constant: float) -> None:
        super().__init__()
        self.factor, self.constant = factor, constant

    def forward(self, inputs: Tensor) -> Tensor:
        return self.factor * inputs + self.constant


@torch.inference_mode()
def is_gated_by_silu(block: nn.Module) -> bool:
    """Whether a block computes this formula. Tried on a copy with known functions as projections."""
    gate, up, down = _Affine(2.0, 0.5), _Affine(3.0, -1.0), _Affine(-1.0, 0.25)
    trial = copy.copy(block)
    trial._modules = block._modules | {"gate_proj": gate, "up_proj": up, "down_proj": down}
    example = torch.linspace(-4.0, 4.0, 64, device="cpu", dtype=torch.float32)[None]
    try:
        found = trial(example)
    except Exception:  # it takes other arguments or uses more than the outputs of its projections
        return False
    return isinstance(found, Tensor) and torch.allclose(found, down(silu(gate(example)) * up(example)), atol=1e-5)
