"""Linear layers with 8-bit weights and 8-bit inputs, close to float.

Weights have a scale per output, inputs a scale per token, so a token's outputs never depend on the other tokens of its
pack. Some inputs of a token are much larger than the others and would make these coarse. Therefore inputs and weights
are rotated first: a Hadamard matrix mixes groups of 64 columns, which spreads large values over 64 columns and leaves
the product as it is. Feed-forward blocks rotate and round the inputs of their gate and up projections once. Queries,
keys and values stay in float: scores are most sensitive to them, and they are a small part of the work.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, silu

from surefoot.engine.feed_forward import gated_blocks
from surefoot.engine.hardware import runs_on_cpu
from surefoot.engine.prepacked import PrepackedLinear, can_prepack

ROTATED = 64
"""At most so many columns are mixed with each other."""
GROUP = 1280
"""At most so many columns share a scale in layers with more inputs than outputs. These read the product of two
activations, which has the largest values."""
IN_FLOAT = ("q_proj", "k_proj", "v_proj")
"""Layers that are not quantized."""
BLOCK_ROWS = 256
"""Rows that a feed-forward block computes at a time. More make its intermediate results so large that the C library
returns their memory to the operating system after each use, and getting it again took a third of the time."""
VERSION = 6
"""The version of the arithmetic: a part of the fingerprint."""
TINY = torch.finfo(torch.float32).tiny

ReadTensors = Callable[[str], Mapping[str, Tensor]]
"""Maps the path of a layer to its weight and bias as stored."""


def quantize_layers(backbone: nn.Module, read: ReadTensors, *, dtype: torch.dtype, device: torch.device) -> None:
    """Replace the linear layers that `is_quantized` names. They may still be empty: `read` returns their tensors."""
    for path in [path for path, module in backbone.named_modules() if is_quantized(path, module)]:
        backbone.set_submodule(path, Int8Linear(**read(path), dtype=dtype, device=device))
    for path, gate, up, down in gated_blocks(backbone, Int8Linear):
        if can_fuse(gate, up, down):
            backbone.set_submodule(path, Int8FeedForward(gate, up, down))


def is_quantized(path: str, module: nn.Module) -> bool:
    """Whether a module is a linear layer that does not stay in float."""
    return isinstance(module, nn.Linear) and path.rpartition(".")[2] not in IN_FLOAT


class Int8Linear(nn.Module):
    """A layer that multiplies in 8 bits."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None, *, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.bias = None if bias is None else nn.Parameter(bias.to(device, dtype, copy=True), requires_grad=False)
        rows = rotate(weight.float())
        groups = -(-rows.shape[1] // GROUP) if rows.shape[1] > rows.shape[0] else 1
        parts = rows.chunk(groups, 1)
        self._widths = [part.shape[1] for part in parts]
        self.products = [product_of(part.contiguous()) for part in parts]
        self.packed_bytes = weight.numel()

    def forward(self, inputs: Tensor) -> Tensor:
        """Multiply with the quantized weights."""
        outputs = self.multiply(rotate(inputs.flatten(0, -2).float()))
        return outputs.view(*inputs.shape[:-1], -1).to(inputs.dtype)

    def multiply(self, rotated: Tensor) -> Tensor:
        """Multiply with rotated rows, which are overwritten."""
        outputs, *others = map(self._multiply_part, self.products, torch.split(rotated, self._widths, 1))
        for other in others:
            outputs += other
        if self.bias is not None:
            outputs += self.bias
        return outputs

    @staticmethod
    def _multiply_part(product: Product, rows: Tensor) -> Tensor:
        largest = _largest(rows)
        return product.multiply(product.prepare(rows, largest)).mul_(largest)


class Int8FeedForward(nn.Module):
    """`down(silu(gate(x)) * up(x))` in 8 bits, for layers that `can_fuse` accepts."""

    def __init__(self, gate: Int8Linear, up: Int8Linear, down: Int8Linear) -> None:
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = gate, up, down
        (self._gate,), (self._up,) = gate.products, up.products

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute the block."""
        outputs = torch.cat([self._rows(rows.float()) for rows in torch.split(inputs.flatten(0, -2), BLOCK_ROWS)])
        return outputs.view(*inputs.shape[:-1], -1).to(inputs.dtype)

    def _rows(self, rows: Tensor) -> Tensor:
        rotated = rotate(rows)
        largest = _largest(rotated)
        prepared = self._gate.prepare(rotated, largest)
        inner = silu(self._gate.multiply(prepared).mul_(largest), inplace=True).mul_(self._up.multiply(prepared))
        # The outputs of `up` are not multiplied by `largest` yet: that would be one more pass over many columns.
        return self.down_proj.multiply(rotate(inner)).mul_(largest)


def can_fuse(gate: Int8Linear, up: Int8Linear, down: Int8Linear) -> bool:
    """Whether the layers of a feed-forward block have the usual form: no biases, and one scale per token."""
    return gate.bias is up.bias is down.bias is None and len(gate.products) == len(up.products) == 1


def _largest(rows: Tensor) -> Tensor:
    """The largest absolute value of each row. Two passes are faster than one over a copy of absolute values."""
    return torch.maximum(rows.amax(1, keepdim=True), rows.amin(1, keepdim=True).neg_()).clamp_min_(TINY)


def rotate(rows: Tensor) -> Tensor:
    """Return a copy of the rows in which a Hadamard matrix mixes columns that are evenly spaced.

    The product of two rotated rows is that of the rows. Neighbours are not mixed with each other: those of an attention
    head are alike, so a large head would stay large. Columns that were mixed are neighbours in the result.
    """
    size = min(ROTATED, rows.shape[1] & -rows.shape[1])  # the largest power of 2 that divides the number of columns
    if size == 1:
        return rows.clone()
    mixed = rows.view(len(rows), size, -1).transpose(1, 2).reshape(-1, size)
    return _rotation(size)(mixed).view(rows.shape)


@cache
def _rotation(size: int) -> Callable[[Tensor], Tensor]:
    """Multiply rows with the Hadamard matrix, in oneDNN's layout where that works: it takes half the time."""
    matrix = _hadamard(size)
    if can_prepack(torch.float32, matrix.device):
        return PrepackedLinear(matrix, None)
    return partial(linear, weight=matrix)


@cache
def _hadamard(size: int) -> Tensor:
    """Sylvester's symmetric matrix, scaled to be orthogonal. Defaults of the process do not change it."""
    if size == 1:
        return torch.ones(1, 1, dtype=torch.float32, device="cpu")
    half = _hadamard(size // 2)
    return torch.cat([torch.cat([half, half], 1), torch.cat([half, -half], 1)]) / 2**0.5


class Product(Protocol):
    """A product with quantized weights."""

    def prepare(self, rows: Tensor, largest: Tensor, /) -> Tensor:
        """Divide rows by their largest absolute values, and quantize them. They may be overwritten."""
        ...

    def multiply(self, prepared: Tensor, /) -> Tensor:
        """Multiply with prepared rows. Layers that read the same rows can prepare them once."""
        ...


def product_of(weight: Tensor) -> Product:
    """Quantize a weight for the kernel of this machine."""
    return OneDnnProduct(weight) if engine() == "onednn" else DynamicProduct(weight)


class OneDnnProduct:
    """oneDNN's kernel, which sums exactly, so a row does not depend on the others."""

    def __init__(self, weight: Tensor) -> None:
        self._largest = self.largest()
        scales = (weight.abs().amax(1) / 127).clamp_min(TINY)
        codes = (weight / scales[:, None]).round_().to(torch.int8)
        self._scales = scales / self._largest  # an input of 1 has the code `_largest`
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

    def prepare(self, rows: Tensor, largest: Tensor) -> Tensor:
        codes = rows.mul_(self._largest / largest).round_().to(torch.int8)
        # The kernel takes unsigned inputs. Converting to these directly takes four times as long.
        return codes.view(torch.uint8).add_(self._largest + 1)

    def multiply(self, prepared: Tensor) -> Tensor:
        return _onednn(prepared, self._largest + 1, self._packed, self._scales)


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

    def prepare(self, rows: Tensor, largest: Tensor) -> Tensor:
        # Both ends of the range always occur, so the kernel computes the same scale for every pack.
        ends = rows.new_tensor([[1.0], [-1.0]]).expand(2, rows.shape[1])
        return torch.cat([rows / largest, ends])

    def multiply(self, prepared: Tensor) -> Tensor:
        outputs: Tensor = torch.ops.quantized.linear_dynamic(prepared, self._packed, reduce_range=True)
        return outputs[:-2]


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
    return f"int8 {VERSION} {engine()}{bits}"
