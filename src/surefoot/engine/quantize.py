"""Linear layers in 4 bits.

The rule: a layer is quantised from the tensor just read, before the next one is read, so that a model and its 4-bit
copy never lie in memory together. Norms, embeddings and the head stay as they are.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from surefoot.errors import MissingDependencyError

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

Quantization = Literal["nf4"]
QUANTIZATIONS: tuple[Quantization, ...] = ("nf4",)


def require_bitsandbytes() -> None:
    """Fails where 4-bit layers cannot be made."""
    if find_spec("bitsandbytes") is None:
        raise MissingDependencyError(
            'quantize="nf4" needs bitsandbytes. Install it with: pip install "surefoot[nf4]". To load the model '
            "without quantisation where it is missing, say so: quantize_fallback=True."
        )


def nf4_linear(weight: Tensor, bias: Tensor | None, dtype: torch.dtype, device: torch.device) -> nn.Module:
    """A linear layer with NF4 weights and doubly quantised scales that computes in `dtype`."""
    import bitsandbytes as bnb
    import torch
    from torch import nn

    outputs, inputs = weight.shape
    with torch.device("meta"):
        layer = bnb.nn.Linear4bit(
            inputs, outputs, bias=False, compute_dtype=dtype, compress_statistics=True, quant_type="nf4"
        )
    layer.weight = bnb.nn.Params4bit(
        weight.contiguous(), requires_grad=False, compress_statistics=True, quant_type="nf4", module=layer
    ).to(device)
    if bias is not None:
        layer.bias = nn.Parameter(bias.to(device, dtype), requires_grad=False)
    module: nn.Module = layer
    return module
