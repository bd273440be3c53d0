"""Weights stored in 4 or 8 bits: whole numbers, and a scale for every 32 of them along a row.

The rule: the tensor `x` is stored as `x.codes` and `x.scales`, and whoever reads `x` gets it back in float32; nothing
behind the checkpoint knows of it. It makes files small, not models: for memory see `quantize`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from surefoot.errors import CheckpointError, OptionError

CODES, SCALES = ".codes", ".scales"
GROUP = 32
LARGEST = {4: 7, 8: 127}
TRIED = torch.linspace(1.0, 0.7, 13)
"""Shares of the largest weight that are tried as the end of the range: clipping one may serve the other 31."""


def pack(tensor: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Codes and scales of a matrix whose rows can be cut into groups; each scale is the one with the least error."""
    if bits not in LARGEST:
        raise OptionError(f"bits={bits} is not offered. Choose 4 or 8.")
    if not can_pack(tuple(tensor.shape)):
        raise OptionError(f"Only matrices with rows of a multiple of {GROUP} can be packed, not {tuple(tensor.shape)}.")
    largest = LARGEST[bits]
    groups = _grouped(tensor.float())
    peak = groups.abs().amax(-1, keepdim=True).clamp_min(1e-12)
    best_scales = best_error = None
    for share in TRIED if bits == 4 else TRIED[:1]:
        # The scale is rounded first, so that the codes are right for the one that is stored.
        scales = (peak * share / largest).half().clamp_min(2.0**-24).float()
        error = (_rounded(groups, scales, largest) * scales - groups).square().sum(-1, keepdim=True)
        if best_error is None or best_scales is None:
            best_scales, best_error = scales, error
        else:
            better = error < best_error
            best_scales, best_error = torch.where(better, scales, best_scales), torch.where(better, error, best_error)
    assert best_scales is not None
    codes = _rounded(groups, best_scales, largest).flatten(1).to(torch.int8)
    if bits == 4:
        shifted = (codes + 8).to(torch.uint8)
        codes = shifted[:, 0::2] | (shifted[:, 1::2] << 4)
    return codes.contiguous(), best_scales.squeeze(-1).half().contiguous()


def unpack(codes: Tensor, scales: Tensor) -> Tensor:
    """The matrix in float32."""
    if codes.dtype == torch.uint8:
        codes = torch.stack((codes & 15, codes >> 4), dim=-1).flatten(1).to(torch.int8) - 8
    if codes.dtype != torch.int8 or codes.shape != (scales.shape[0], scales.shape[1] * GROUP):
        raise CheckpointError("A packed tensor's codes and scales do not belong together.")
    return (_grouped(codes).float() * scales.float().unsqueeze(-1)).flatten(1)


def can_pack(shape: tuple[int, ...]) -> bool:
    """Whether `pack` takes a tensor of this shape."""
    return len(shape) == 2 and shape[1] % GROUP == 0


def shape_of(scales: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the tensor whose scales have this shape."""
    return (*scales[:-1], scales[-1] * GROUP)


def _grouped(matrix: Tensor) -> Tensor:
    return matrix.view(len(matrix), -1, GROUP)


def _rounded(groups: Tensor, scales: Tensor, largest: int) -> Tensor:
    # One more code on the negative side would make the range lopsided; it is left unused.
    return (groups / scales).round().clamp(-largest, largest)
