"""Linear layers with 8-bit weights and 8-bit inputs, close to float.

Weights have a scale per output, inputs a scale per token. Three things keep the few large inputs of a token from making
all others coarse: columns whose inputs were large in a sample are computed in float, the others are multiplied by
factors that move their range into the weights, and wide layers have one scale per group of columns. Layers that read
the same inputs are one layer, so that the inputs are quantized once. A token's outputs never depend on the other
tokens of its pack.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from functools import cache
from typing import Protocol

import torch
from torch import Tensor, nn

from surefoot.engine.hardware import runs_on_cpu

FLOAT_SHARE = 1 / 12
"""Fraction of the input columns that stay in float: those with the largest inputs in the sample, after balancing."""
GROUP = 256
"""At most so many columns share a scale in layers with more inputs than outputs. These read the product of two
activations, whose large values are in other columns for every token."""
LARGEST_FACTOR = 4.0
"""How much more than the median column a column may be magnified."""
SAMPLE = 3
"""The version of the sample and of what is done with it."""
TINY = torch.finfo(torch.float32).tiny


class Int8Linear(nn.Module):
    """A layer that multiplies in 8 bits.

    `peaks` is the largest absolute input per column in a sample of prompts. Without it, all columns are quantized as
    they are.
    """

    _factors: Tensor | None
    _columns: Tensor
    _rest: Tensor

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None,
        dtype: torch.dtype,
        device: torch.device,
        peaks: Tensor | None = None,
    ) -> None:
        super().__init__()
        rows = weight.float()
        self.bias = None if bias is None else nn.Parameter(bias.to(device, dtype, copy=True), requires_grad=False)
        factors, columns = (None, None) if peaks is None else balance(rows, peaks)
        self.register_buffer("_factors", factors, persistent=False)
        self.register_buffer("_columns", columns, persistent=False)
        if factors is not None:
            self.register_buffer("_rest", rows[:, self._columns].T.contiguous(), persistent=False)
            rows = torch.where(factors > 0, rows / factors, 0.0)
        groups = -(-rows.shape[1] // GROUP) if rows.shape[1] > rows.shape[0] else 1
        parts = rows.chunk(groups, 1)
        self._widths = [part.shape[1] for part in parts]
        self._products = [product_of(part.contiguous()) for part in parts]
        self.packed_bytes = weight.numel()

    def forward(self, inputs: Tensor) -> Tensor:
        """Multiply with the quantized weights."""
        rows = inputs.flatten(0, -2).float()
        balanced = rows if self._factors is None else rows * self._factors
        parts = zip(self._products, torch.split(balanced, self._widths, 1), strict=True)
        outputs, *others = (product(part, _largest(part)) for product, part in parts)
        for other in others:
            outputs += other
        if self._factors is not None and len(self._columns):
            outputs.addmm_(rows.index_select(1, self._columns), self._rest)
        if self.bias is not None:
            outputs += self.bias
        return outputs.view(*inputs.shape[:-1], -1).to(inputs.dtype)


class JointInt8Linear(nn.Module):
    """Several layers that read the same inputs, such as those of queries, keys and values, as one."""

    def __init__(
        self,
        weights: Sequence[Tensor],
        biases: Sequence[Tensor | None],
        dtype: torch.dtype,
        device: torch.device,
        peaks: Tensor,
    ) -> None:
        super().__init__()
        self._outputs = [len(weight) for weight in weights]
        bias = None
        if any(each is not None for each in biases):
            known = zip(biases, weights, strict=True)
            bias = torch.cat([weight.new_zeros(len(weight)) if each is None else each for each, weight in known])
        self.layer = Int8Linear(torch.cat(list(weights)), bias, dtype, device, peaks)
        self._pass = _Pass()

    def take(self, number: int, inputs: Tensor) -> Tensor:
        """Return the outputs of one of the layers. The first one that asks computes those of all."""
        now = self._pass
        if inputs is not now.inputs or number not in now.waiting:
            now.inputs = inputs
            now.waiting = dict(enumerate(self.layer(inputs).split(self._outputs, -1)))
        outputs = now.waiting.pop(number)
        if not now.waiting:
            now.inputs = None  # keep nothing until the next pass
        return outputs

    def parts(self) -> list[nn.Module]:
        """The layers, each of which can take the place of the original one."""
        return [_Part(self, number) for number in range(len(self._outputs))]


class _Pass(threading.local):
    """What was computed in the current forward pass. Each thread has its own."""

    def __init__(self) -> None:
        self.inputs: Tensor | None = None
        self.waiting: dict[int, Tensor] = {}


class _Part(nn.Module):
    def __init__(self, joint: JointInt8Linear, number: int) -> None:
        super().__init__()
        self.joint, self._number = joint, number

    def forward(self, inputs: Tensor) -> Tensor:
        return self.joint.take(self._number, inputs)


def _largest(rows: Tensor) -> Tensor:
    return rows.abs().amax(1, keepdim=True).clamp_min_(TINY)


def balance(weight: Tensor, peaks: Tensor) -> tuple[Tensor, Tensor]:
    """Return a factor for each input column, 0 for those that stay in float, and the indices of these.

    The factors are those of SmoothQuant with its migration strength of 0.5: after multiplication, inputs and weights
    of a column have the same largest value, up to a common factor.
    """
    peaks = peaks.float().clamp_min(TINY)
    factors = (weight.abs().amax(0).clamp_min(TINY) / peaks).sqrt()
    # A column that happens to be small in the sample is not magnified much: in other text it may be larger.
    factors = (factors / factors.median().clamp_min(TINY)).clamp(1e-4, LARGEST_FACTOR)
    columns = (peaks * factors).topk(int(FLOAT_SHARE * len(peaks))).indices.sort().values
    factors[columns] = 0.0
    return factors, columns


class Product(Protocol):
    """A product with quantized weights. The second argument is the largest absolute value of each row."""

    def __call__(self, rows: Tensor, scales: Tensor, /) -> Tensor: ...


def product_of(weight: Tensor) -> Product:
    """Quantize a weight for the kernel of this machine."""
    return OneDnnProduct(weight) if engine() == "onednn" else DynamicProduct(weight)


class OneDnnProduct:
    """oneDNN's kernel, which sums exactly, so a row does not depend on the others."""

    def __init__(self, weight: Tensor) -> None:
        self._largest = self.largest()
        self._scales = (weight.abs().amax(1) / 127).clamp_min(TINY)
        codes = (weight / self._scales[:, None]).round_().to(torch.int8)
        self._packed = torch.ops.onednn.qlinear_prepack(codes, None)

    @staticmethod
    @cache
    def largest() -> int:
        """The largest input: 127, or 63 on CPUs without VNNI instructions.

        There the kernel adds two products in 16 bits, which large inputs overflow without an error. Trying tells,
        whatever the CPU reports and oneDNN is allowed to use.
        """
        codes = torch.full((64, 64), 127, dtype=torch.int8)
        exact = 64 * 127 * 254
        outputs = _onednn(codes.to(torch.uint8) * 2, 0, torch.ops.onednn.qlinear_prepack(codes, None), torch.ones(64))
        return 127 if bool((outputs == exact).all()) else 63

    def __call__(self, rows: Tensor, scales: Tensor) -> Tensor:
        zero = self._largest + 1
        codes = (rows * (self._largest / scales)).round_().add_(zero).to(torch.uint8)
        return _onednn(codes, zero, self._packed, self._scales).mul_(scales / self._largest)


def _onednn(codes: Tensor, zero: int, packed: Tensor, scales: Tensor) -> Tensor:
    zeros = torch.zeros(len(scales), dtype=torch.long)
    outputs: Tensor = torch.ops.onednn.qlinear_pointwise(
        codes, 1.0, zero, packed, scales, zeros, None, 1.0, 0, torch.float32, "none", [], ""
    )
    return outputs


class DynamicProduct:
    """torch's dynamic kernels (fbgemm, qnnpack), which quantize their input with one scale for the whole tensor.

    Dividing each token by its largest absolute value first makes the one scale fit every token.
    """

    def __init__(self, weight: Tensor) -> None:
        scales = (weight.abs().amax(1) / 127).clamp_min(TINY)
        zeros = torch.zeros(len(weight), dtype=torch.long)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns that its quantized tensors will move to another package
            packed = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
        previous, torch.backends.quantized.engine = torch.backends.quantized.engine, engine()
        try:
            self._packed = torch.ops.quantized.linear_prepack(packed, None)
        finally:
            torch.backends.quantized.engine = previous

    def __call__(self, rows: Tensor, scales: Tensor) -> Tensor:
        # Both ends of the range always occur, so the kernel computes the same scale for every pack.
        ends = rows.new_tensor([[1.0], [-1.0]]).expand(2, rows.shape[1])
        outputs: Tensor = torch.ops.quantized.linear_dynamic(
            torch.cat([rows / scales, ends]), self._packed, reduce_range=True
        )
        return outputs[:-2].mul_(scales)


ENGINES = ("onednn", "fbgemm", "qnnpack")
"""torch's engines for 8-bit products, the fastest first."""


@cache
def engine() -> str:
    """The engine for 8-bit products on this machine, or an empty string."""
    names = torch.backends.quantized.supported_engines
    return next((name for name in ENGINES if name in names and runs_on_cpu(name)), "")


def computation() -> str:
    """What decides the rounding of 8-bit layers: a part of the fingerprint."""
    bits = f" {OneDnnProduct.largest()}" if engine() == "onednn" else ""
    return f"int8 {SAMPLE} {engine()}{bits}"
