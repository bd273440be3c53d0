"""Linear layers with 8-bit weights and 8-bit inputs, close to float.

Weights have a scale per output, inputs a scale per token, so a token's outputs never depend on the other tokens of its
pack. Some inputs of a token are much larger than the others and would make these coarse. Therefore inputs and weights
are rotated first: a Hadamard matrix mixes groups of 64 columns, which spreads large values over 64 columns and leaves
the product as it is. Gate and up projections read the same inputs and are one layer, so that these are quantized once.
Queries, keys and values stay in float: scores are most sensitive to them, and they are a small part of the work.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Protocol

import torch
from torch import Tensor, nn

from surefoot.engine.hardware import runs_on_cpu

ROTATED = 64
"""At most so many columns are mixed with each other."""
GROUP = 1280
"""At most so many columns share a scale in layers with more inputs than outputs. These read the product of two
activations, which has the largest values."""
IN_FLOAT = ("q_proj", "k_proj", "v_proj")
"""Layers that are not quantized."""
SAME_INPUTS = ("gate_proj", "up_proj")
"""Layers of a block that read the same tensor. If they do not, results are the same, but both are computed twice."""
VERSION = 4
"""The version of the arithmetic: a part of the fingerprint."""
TINY = torch.finfo(torch.float32).tiny

ReadTensors = Callable[[str], Mapping[str, Tensor]]
"""Maps the path of a layer to its weight and bias as stored."""


def quantize_layers(backbone: nn.Module, read: ReadTensors, *, dtype: torch.dtype, device: torch.device) -> None:
    """Replace the linear layers that `is_quantized` names. They may still be empty: `read` returns their tensors."""
    for paths in list(_groups(backbone)):
        for path, part in zip(paths, _quantized([read(path) for path in paths], dtype, device), strict=True):
            backbone.set_submodule(path, part)


def _quantized(
    tensors: Sequence[Mapping[str, Tensor]], dtype: torch.dtype, device: torch.device
) -> Sequence[nn.Module]:
    """Return layers with these tensors, which nothing refers to afterwards."""
    weights, biases = [each["weight"] for each in tensors], [each.get("bias") for each in tensors]
    if len(tensors) == 1:
        return [Int8Linear(weights[0], biases[0], dtype, device)]
    return JointInt8Linear(weights, biases, dtype, device).parts()


def is_quantized(path: str, module: nn.Module) -> bool:
    """Whether a module is a linear layer that does not stay in float."""
    return isinstance(module, nn.Linear) and path.rpartition(".")[2] not in IN_FLOAT


def _groups(backbone: nn.Module) -> Iterator[list[str]]:
    """The paths of the layers, those that read the same inputs together."""
    for path, module in backbone.named_modules():
        own = [name for name, child in module.named_children() if is_quantized(name, child)]
        together = [name for name in own if name in SAME_INPUTS]
        for names in (together, *([name] for name in own if name not in SAME_INPUTS)):
            if names:
                yield [f"{path}.{name}".removeprefix(".") for name in names]


class Int8Linear(nn.Module):
    """A layer that multiplies in 8 bits."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.bias = None if bias is None else nn.Parameter(bias.to(device, dtype, copy=True), requires_grad=False)
        rows = rotate(weight.float())
        groups = -(-rows.shape[1] // GROUP) if rows.shape[1] > rows.shape[0] else 1
        parts = rows.chunk(groups, 1)
        self._widths = [part.shape[1] for part in parts]
        self._products = [product_of(part.contiguous()) for part in parts]
        self.packed_bytes = weight.numel()

    def forward(self, inputs: Tensor) -> Tensor:
        """Multiply with the quantized weights."""
        rows = rotate(inputs.flatten(0, -2).float())
        parts = zip(self._products, torch.split(rows, self._widths, 1), strict=True)
        outputs, *others = (product(part, _largest(part)) for product, part in parts)
        for other in others:
            outputs += other
        if self.bias is not None:
            outputs += self.bias
        return outputs.view(*inputs.shape[:-1], -1).to(inputs.dtype)


class JointInt8Linear(nn.Module):
    """Several layers that read the same inputs, as one."""

    def __init__(
        self, weights: Sequence[Tensor], biases: Sequence[Tensor | None], dtype: torch.dtype, device: torch.device
    ) -> None:
        super().__init__()
        self._outputs = [len(weight) for weight in weights]
        bias = None
        if any(each is not None for each in biases):
            known = zip(biases, weights, strict=True)
            bias = torch.cat([weight.new_zeros(len(weight)) if each is None else each for each, weight in known])
        self.layer = Int8Linear(torch.cat(list(weights)), bias, dtype, device)
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
    """The largest absolute value of each row. Two passes are faster than one over a copy of absolute values."""
    return torch.maximum(rows.amax(1, keepdim=True), rows.amin(1, keepdim=True).neg_()).clamp_min_(TINY)


def rotate(rows: Tensor) -> Tensor:
    """Return a copy of the rows in which a Hadamard matrix mixes columns that are evenly spaced.

    The product of two rotated rows is that of the rows. Neighbours are not mixed with each other: those of an attention
    head are alike, so a large head would stay large.
    """
    size = min(ROTATED, rows.shape[1] & -rows.shape[1])  # the largest power of 2 that divides the number of columns
    return torch.matmul(_hadamard(size), rows.view(len(rows), size, -1)).view(rows.shape)


@cache
def _hadamard(size: int) -> Tensor:
    """Sylvester's symmetric matrix, scaled to be orthogonal. Defaults of the process do not change it."""
    if size == 1:
        return torch.ones(1, 1, dtype=torch.float32, device="cpu")
    half = _hadamard(size // 2)
    return torch.cat([torch.cat([half, half], 1), torch.cat([half, -half], 1)]) / 2**0.5


class Product(Protocol):
    """A product with quantized weights. It may overwrite the rows, whose largest absolute values are `largest`."""

    def __call__(self, rows: Tensor, largest: Tensor, /) -> Tensor: ...


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

    def __call__(self, rows: Tensor, largest: Tensor) -> Tensor:
        zero = self._largest + 1
        codes = rows.mul_(self._largest / largest).round_().to(torch.int8)
        # The kernel takes unsigned inputs. Converting to these directly takes four times as long.
        return _onednn(codes.view(torch.uint8).add_(zero), zero, self._packed, self._scales).mul_(
            largest / self._largest
        )


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

    def __call__(self, rows: Tensor, largest: Tensor) -> Tensor:
        # Both ends of the range always occur, so the kernel computes the same scale for every pack.
        ends = rows.new_tensor([[1.0], [-1.0]]).expand(2, rows.shape[1])
        outputs: Tensor = torch.ops.quantized.linear_dynamic(
            torch.cat([rows / largest, ends]), self._packed, reduce_range=True
        )
        return outputs[:-2].mul_(largest)


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
