"""Linear layers in 4 or 8 bits.

Each layer is quantized right after its tensor has been read, so the original model and its quantized copy are never in
memory together. Norms, embeddings and the head of a PRM are not quantized.
"""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import Tensor, nn

from surefoot.core.options import Quantization
from surefoot.engine import int8
from surefoot.engine.nf4 import NF4Weight, import_bitsandbytes
from surefoot.engine.nf4 import quantize as quantize_nf4
from surefoot.errors import MissingDependencyError, OptionError


def require(quantize: Quantization, device: torch.device) -> None:
    """Raise an error if layers of this kind cannot be created or run here."""
    if quantize == "nf4" and find_spec("bitsandbytes") is None:
        raise MissingDependencyError(
            'quantize="nf4" needs bitsandbytes. Install it with: pip install "surefoot[nf4]" (in Python: '
            "quantize_fallback=True loads the model unquantized instead)."
        )
    if quantize == "int8" and device.type != "cpu":
        raise OptionError(f'quantize="int8" runs on the CPU only, but the device is {device}. Use quantize="nf4".')
    if quantize == "int8" and not int8.engine():
        raise OptionError('quantize="int8" cannot run on this CPU. Use quantize="nf4", or omit it.')


def computation(quantize: Quantization | None, device: torch.device) -> str:
    """What computes the linear layers: a part of the fingerprint, because other kernels give other numbers.

    In nf4 all CPUs compute the same (see `NF4Linear`), but GPUs quantize and multiply with bitsandbytes' own layer.
    """
    if quantize == "nf4":
        return f"nf4 {'dequantized' if device.type == 'cpu' else 'bitsandbytes'}"
    return int8.computation() if quantize == "int8" else "none"


def nf4_linear(weight: Tensor | NF4Weight, bias: Tensor | None, dtype: torch.dtype, device: torch.device) -> nn.Module:
    """Create a layer with NF4 weights and doubly quantized scales that computes in `dtype`.

    The weights may be quantized already, on the CPU.
    """
    if isinstance(weight, NF4Weight) or device.type == "cpu":
        return NF4Linear(weight, bias, dtype, device)
    bnb = import_bitsandbytes()
    outputs, inputs = weight.shape
    with torch.device("meta"):
        layer = bnb.nn.Linear4bit(
            inputs, outputs, bias=False, compute_dtype=dtype, compress_statistics=True, quant_type="nf4"
        )
    layer.weight = bnb.nn.Params4bit(
        weight.contiguous(), requires_grad=False, compress_statistics=True, quant_type="nf4", module=layer
    ).to(device)
    if bias is not None:
        layer.bias = nn.Parameter(bias.to(device, dtype, copy=True), requires_grad=False)
    module: nn.Module = layer
    return module


class NF4Linear(nn.Module):
    """NF4 weights on the CPU, dequantized to `dtype` for each product: every CPU computes with the same weights.

    `bitsandbytes.nn.Linear4bit` does the same, except on CPUs with AVX512-BF16 (which include those with AMX). There
    its first forward pass repacks the weights for a fused kernel that rounds inputs, scales and outputs to bfloat16,
    whatever `compute_dtype` says. We do not offer that kernel: other CPUs can neither run nor test it.

    bitsandbytes quantizes blocks of consecutive weights, whatever the row length. If a block crosses the end of a row,
    its AVX512 dequantization may apply the wrong scale without raising an error. We therefore store rows of whole
    blocks: the rows of the weight if their length is a multiple of the block size, else one block per row. This makes
    every shape work.
    """

    def __init__(
        self, weight: Tensor | NF4Weight, bias: Tensor | None, dtype: torch.dtype, device: torch.device
    ) -> None:
        super().__init__()
        stored = weight if isinstance(weight, NF4Weight) else quantize_nf4(weight)
        self.outputs, self.inputs = stored.shape
        self.stored = stored
        self.state = stored.state(dtype)
        self._dequantize = import_bitsandbytes().functional.dequantize_4bit
        self.weight = nn.Parameter(stored.codes, requires_grad=False)
        self.bias = None if bias is None else nn.Parameter(bias.to(device, dtype, copy=True), requires_grad=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Multiply with the dequantized weights."""
        values: Tensor = self._dequantize(self.weight, self.state).flatten()
        weight = values[: self.outputs * self.inputs].view(self.outputs, self.inputs)
        return nn.functional.linear(inputs, weight, self.bias)
