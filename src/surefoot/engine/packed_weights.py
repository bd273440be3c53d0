"""Weights stored in 4 or 8 bits: integer codes, and one scale per group of 32 along a row.

The tensor `x` is stored as `x.codes` and `x.scales`; reading `x` gives it back in float32, and no code outside the
checkpoint reader sees the difference. Packing makes files smaller, not models in memory: for that see `quantization`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from surefoot.errors import CheckpointError, OptionError

CODES, SCALES = ".codes", ".scales"
GROUP = 32
LARGEST = {4: 7, 8: 127}
TRIED = torch.linspace(1.0, 0.7, 13)
"""Fractions of the largest weight to try as the end of the range: clipping one weight may help the other 31."""


def pack(tensor: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Pack a matrix into codes and scales, choosing for each group the scale with the smallest error."""
    if bits not in LARGEST:
        raise OptionError(f"bits={bits} is not supported. Choose 4 or 8.")
    if not can_pack(tuple(tensor.shape)):
        raise OptionError(
            f"Only matrices whose row length is a multiple of {GROUP} can be packed, not {tuple(tensor.shape)}."
        )
    largest = LARGEST[bits]
    groups = _grouped(tensor.float())
    peak = groups.abs().amax(-1, keepdim=True).clamp_min(1e-12)
    best_scales = best_error = None
    for share in TRIED if bits == 4 else TRIED[:1]:
        # Round the scale first, so that the codes match the stored scale.
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
    """Restore the matrix in float32."""
    if codes.dtype == torch.uint8 and codes.dim() == 2:
        codes = torch.stack((codes & 15, codes >> 4), dim=-1).flatten(1).to(torch.int8) - 8
    if codes.dtype != torch.int8 or codes.shape != (scales.shape[0], scales.shape[1] * GROUP):
        raise CheckpointError("The codes and scales of a packed tensor do not belong together.")
    return (_grouped(codes).float() * scales.float().unsqueeze(-1)).flatten(1)


def can_pack(shape: tuple[int, ...]) -> bool:
    """Whether a tensor of this shape can be packed."""
    return len(shape) == 2 and shape[1] % GROUP == 0


def shape_of(scales: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the tensor whose scales have shape `scales`."""
    return (*scales[:-1], scales[-1] * GROUP)


def _grouped(matrix: Tensor) -> Tensor:
    return matrix.view(len(matrix), -1, GROUP)


def _rounded(groups: Tensor, scales: Tensor, largest: int) -> Tensor:
    # The extra negative code would make the range asymmetric; it is left unused.
    return (groups / scales).round().clamp(-largest, largest)
