"""NF4 on the CPU: the numbers of bitsandbytes, several times faster and without large temporary copies.

bitsandbytes finds the level of each weight by a binary search, 27 ns per weight. Here a table with one entry per
float16 number gives the level, and only the weights next to a boundary between two levels are searched. Weights are
processed in chunks that fit into the CPU's cache, in parallel threads. The result does not depend on the number of
threads.
"""

from __future__ import annotations

import logging
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from surefoot.engine.thread_limit import threads_here

BLOCK = 64
"""Weights per scale."""
SCALES = 256
"""Scales per scale of their own."""
CHUNK = 1 << 17
"""Weights that one thread quantizes at a time."""
UNKNOWN = 255
"""In the table: the level depends on bits that float16 does not have."""


@dataclass(frozen=True)
class NF4Weight:
    """A quantized matrix: two weights per byte, and doubly quantized scales."""

    shape: tuple[int, int]
    codes: Tensor
    """uint8, the first of two weights in the high bits."""
    scales: Tensor
    """uint8, one per block: an index into the levels for scales."""
    outer: Tensor
    """float32, one scale per 256 scales."""
    offset: Tensor
    """float32: the mean of the scales, which was subtracted."""

    @property
    def row(self) -> int:
        """The length of the rows in which bitsandbytes sees the weights: whole blocks."""
        return BLOCK if self.shape[1] % BLOCK else self.shape[1]

    def state(self, dtype: torch.dtype) -> Any:
        """The state with which bitsandbytes dequantizes to `dtype`."""
        functional = import_bitsandbytes().functional
        levels, scale_levels = _levels()
        inner = functional.QuantState(absmax=self.outer, code=scale_levels, blocksize=SCALES, dtype=torch.float32)
        return functional.QuantState(
            absmax=self.scales,
            shape=torch.Size((len(self.codes) * 2 // self.row, self.row)),
            dtype=dtype,
            blocksize=BLOCK,
            code=levels,
            quant_type="nf4",
            offset=self.offset,
            state2=inner,
        )


def quantize(weight: Tensor) -> NF4Weight:
    """Quantize a matrix on the CPU.

    >>> quantize(torch.randn(128, 256)).codes.shape
    torch.Size([16384, 1])
    """
    outputs, inputs = weight.shape
    values = weight.flatten()
    if missing := -len(values) % BLOCK:
        values = nn.functional.pad(values, (0, missing))
    codes = torch.empty(len(values) // 2, dtype=torch.uint8)
    largest = torch.empty(len(values) // BLOCK, dtype=torch.float32)
    _table()  # computed once, not in each thread

    def work(starts: range) -> None:
        with torch.inference_mode(), threads_here(1):
            for start in starts:
                end = min(start + CHUNK, len(values))
                _quantize_chunk(values[start:end], codes[start // 2 : end // 2], largest[start // BLOCK : end // BLOCK])

    chunks = range(0, len(values), CHUNK)
    threads = min(torch.get_num_threads(), len(chunks))
    if threads > 1:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, (chunks[number::threads] for number in range(threads))))
    else:
        work(chunks)
    # In float64: a sum in float32 would depend on the number of threads.
    offset = largest.double().mean().float()
    functional = import_bitsandbytes().functional
    scales, inner = functional.quantize_blockwise(largest - offset, code=_levels()[1], blocksize=SCALES)
    return NF4Weight((outputs, inputs), codes.unsqueeze(1), scales, inner.absmax, offset)


def _quantize_chunk(values: Tensor, codes: Tensor, largest: Tensor) -> None:
    """Write the codes and the scales of whole blocks."""
    table, boundaries = _table()
    blocks = values.float().view(-1, BLOCK)
    torch.amax(blocks.abs(), dim=-1, out=largest)
    scaled = (blocks * (1.0 / largest.clamp(min=1e-38)).unsqueeze(1)).flatten()
    levels = table.index_select(0, scaled.half().view(torch.int16).int().add_(32768))
    unknown = (levels == UNKNOWN).nonzero().flatten()
    levels[unknown] = torch.bucketize(scaled[unknown], boundaries, out_int32=True).to(torch.uint8)
    torch.bitwise_or(levels[::2] << 4, levels[1::2], out=codes)


@cache
def _table() -> tuple[Tensor, Tensor]:
    """The level of every float16 number, if all numbers that are rounded to it have the same, and the boundaries."""
    with torch.inference_mode(False):
        levels, _ = _levels()
        boundaries = (levels[:-1] + levels[1:]) / 2
        half = torch.arange(-32768, 32768).to(torch.int16).view(torch.float16)
        ends = []
        for direction in (float("-inf"), float("inf")):
            neighbour = torch.nextafter(half, torch.tensor(direction, dtype=torch.float16))
            # The sum is exact in float64, and its half in float32.
            ends.append(torch.bucketize(((half.double() + neighbour.double()) / 2).float(), boundaries))
        certain = half.isfinite() & (ends[0] == ends[1])
        return torch.where(certain, ends[0], UNKNOWN).to(torch.uint8), boundaries


@cache
def _levels() -> tuple[Tensor, Tensor]:
    """The 16 levels of NF4, and the 256 levels of scales."""
    functional = import_bitsandbytes().functional
    with torch.inference_mode(False):
        return functional.get_4bit_type("nf4", device="cpu"), functional.create_dynamic_map().float()


def import_bitsandbytes() -> Any:
    """Import bitsandbytes without letting it download a kernel.

    On CPUs with AVX512-BF16 the import fetches native code from the Hugging Face hub if the package `kernels` is
    installed, and warns if it is not. We do not use that kernel and run no remote code, so `kernels` cannot be imported
    meanwhile.
    """
    if "bitsandbytes" not in sys.modules:
        log = logging.getLogger("bitsandbytes.backends.cpu.ops")
        disabled, log.disabled = log.disabled, True
        kernels = sys.modules.get("kernels")
        sys.modules["kernels"] = None  # type: ignore[assignment]
        try:
            import bitsandbytes  # noqa: F401
        finally:
            log.disabled = disabled
            del sys.modules["kernels"]
            if kernels is not None:
                sys.modules["kernels"] = kernels
    return sys.modules["bitsandbytes"]
