"""Linear layers whose weights are stored in oneDNN's blocked layout, so that no product has to rearrange them.

Feed-forward blocks of the usual form also apply their activation and their gate inside the products. A row's outputs
depend neither on the number of rows nor on the number of threads, except that a single row may be rounded differently.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from surefoot.engine.feed_forward import gated_blocks
from surefoot.engine.hardware import cpu_has_flag, runs_on_cpu

ROWS = 512
"""The number of rows that the layout is chosen for. Products with fewer rows use the same layout."""


class PrepackedLinear(nn.Module):
    """A linear layer without gradients, for the CPU."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        # Without the copy, a bias that needed no conversion would stay mapped to the file.
        self.bias = None if bias is None else nn.Parameter(bias.clone(), requires_grad=False)
        self.packed_bytes = weight.numel() * weight.element_size()
        self._packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, ROWS)

    def forward(self, inputs: Tensor) -> Tensor:
        """Multiply with the weights."""
        outputs: Tensor = torch.ops.mkldnn._linear_pointwise(inputs, self._packed, self.bias, "none", [], "")
        return outputs


class PrepackedFeedForward(nn.Module):
    """`down(silu(gate(x)) * up(x))`, where activation and product are computed before the results leave the cache."""

    def __init__(self, gate: PrepackedLinear, up: PrepackedLinear, down: PrepackedLinear) -> None:
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = gate, up, down

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute the block."""
        gate, up = self.gate_proj, self.up_proj
        gated = torch.ops.mkldnn._linear_pointwise(inputs, gate._packed, gate.bias, "swish", [], "")
        inner = torch.ops.mkldnn._linear_pointwise.binary(inputs, gated, up._packed, up.bias, "mul")
        outputs: Tensor = self.down_proj(inner)
        return outputs


def fuse_feed_forward(backbone: nn.Module) -> None:
    """Replace the feed-forward blocks that compute what `PrepackedFeedForward` does."""
    for path, gate, up, down in gated_blocks(backbone, PrepackedLinear):
        backbone.set_submodule(path, PrepackedFeedForward(gate, up, down))


def has_onednn() -> bool:
    """Whether torch was built with oneDNN and has the layout as an operator, and nobody has turned it off."""
    if not (torch._C._has_mkldnn and torch.backends.mkldnn.enabled):
        return False
    return hasattr(torch.ops.mkldnn, "_reorder_linear_weight")


def can_prepack(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether these layers work in this dtype, on this device and machine.

    CPUs that report AMX may crash in oneDNN. In half precision that has been tried by then; float32 gains too little
    there to start a process that tries it.
    """
    if device.type != "cpu" or not has_onednn():
        return False
    if dtype == torch.float32:
        return not cpu_has_flag("amx_tile")
    return dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported() and runs_on_cpu("bfloat16")
