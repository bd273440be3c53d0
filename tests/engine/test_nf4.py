"""NF4 on the CPU: results are computed with the stored weights, for any shape and on any CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from helpers.reference import Reference
from surefoot.engine.hardware import DTYPES, runs_on_cpu
from surefoot.engine.nf4 import import_bitsandbytes, quantize
from surefoot.engine.quantization import NF4Linear
from surefoot.engine.thread_limit import threads_here
from surefoot.scoring.local import load_local

CPU = torch.device("cpu")
# The 16 values of NF4, from appendix E of the QLoRA paper (arXiv 2305.14314).
LEVELS = torch.tensor(
    [
        -1.0,
        -0.6961928009986877,
        -0.5250730514526367,
        -0.39491748809814453,
        -0.28444138169288635,
        -0.18477343022823334,
        -0.09105003625154495,
        0.0,
        0.07958029955625534,
        0.16093020141124725,
        0.24611230194568634,
        0.33791524171829224,
        0.44070982933044434,
        0.5626170039176941,
        0.7229568362236023,
        1.0,
    ]
)
BLOCK, SCALES = 64, 256
"""Weights with one scale, and scales with one scale of their own."""
ITEMS = [(f"What is {n % 4} + {n}?", [f"{n % 4} + {n} is {n}.", "So be it."][: n % 3]) for n in range(12)]
FORCED = Path(__file__).parents[1] / "avx512bf16"


def unpacked(layer: NF4Linear) -> Tensor:
    """The layer's weights in float32, computed from what is stored by the definition of NF4."""
    state: Any = layer.state
    levels = torch.stack([layer.weight.flatten() >> 4, layer.weight.flatten() & 15], 1).flatten().long()
    outer = state.state2.absmax.repeat_interleave(SCALES)[: len(state.absmax)]
    scales = state.state2.code[state.absmax.long()] * outer + state.offset
    values: Tensor = LEVELS[levels] * scales.repeat_interleave(BLOCK)
    return values[: layer.outputs * layer.inputs].view(layer.outputs, layer.inputs)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("inputs", [1, 2, 3, 16, 33, 48, 64, 96, 100, 128, 160, 192])
def test_a_layer_of_any_shape_computes_with_its_stored_weights(inputs: int, dtype: str) -> None:
    """Among the lengths of rows are some for which the AVX512 kernel of bitsandbytes mixes up scales: 16, 96, 160."""
    if not runs_on_cpu(dtype):
        pytest.skip(f"{dtype} kills the process on this CPU")
    kind = DTYPES[dtype]
    generator = torch.Generator().manual_seed(inputs)
    for outputs in (1, 2, 7, 33, 64):
        # Scales differ strongly between blocks, so that a wrong one is noticed.
        weight = torch.randn(outputs * inputs, generator=generator)
        weight *= 2.0 ** (torch.arange(len(weight)) // BLOCK % 5)
        layer = NF4Linear(weight.view(outputs, inputs), None, kind, CPU)
        expected = unpacked(layer)
        assert torch.equal(layer(torch.eye(inputs, dtype=kind)).T, expected.to(kind))
        # The stored weights are close to the given ones: half the widest gap of NF4, plus the rounding of the scale.
        largest = torch.nn.functional.pad(weight, (0, -len(weight) % BLOCK)).view(-1, BLOCK).abs().amax(1)
        allowed = (0.16 * largest + 0.03 * largest.max()).repeat_interleave(BLOCK)[: len(weight)]
        assert ((expected.flatten() - weight).abs() <= allowed).all()
        if dtype == "float32":
            bias = torch.randn(outputs, generator=generator)
            several = torch.randn(2, 5, inputs, generator=generator)
            found = NF4Linear(weight.view(outputs, inputs), bias, kind, CPU)(several)
            assert torch.allclose(found, several @ expected.T + bias, rtol=1e-5, atol=1e-4)


SCRIPT = """
import json, sys
import surefoot
from torch.utils._python_dispatch import TorchDispatchMode

class Calls(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        names.add(str(function))
        return function(*args, **(kwargs or {}))

names = set()
scorer = surefoot.load(sys.argv[1], quantize="nf4")
with Calls():
    together = scorer.score_many([tuple(item) for item in json.loads(sys.argv[2])])

import bitsandbytes
print(json.dumps({
    "fingerprint": scorer.fingerprint,
    "repacks": bool(bitsandbytes.nn.Linear4bit(64, 64).support_avx512bf16_for_cpu),
    "calls": sorted(name for name in names if name.startswith("bitsandbytes")),
    "together": [result.step_scores for result in together],
    "alone": [scorer.score(*item).step_scores for item in json.loads(sys.argv[2])],
}))
"""


@pytest.mark.parametrize("forced", [False, True], ids=["this CPU", "AVX512-BF16"])
def test_scores_are_exact_on_any_cpu(checkpoint: Path, forced: bool) -> None:
    """On a CPU with AVX512-BF16 bitsandbytes' own layers would repack their weights and compute in bfloat16."""
    path = [*([str(FORCED)] if forced else []), *filter(None, [os.environ.get("PYTHONPATH")])]
    child = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(checkpoint), json.dumps(ITEMS)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    found = json.loads(child.stdout)
    assert found["repacks"] or not forced, "bitsandbytes detects the CPU differently now: find another way to force it"
    assert found["calls"] == ["bitsandbytes.dequantize_4bit.default", "bitsandbytes.dequantize_blockwise.default"]
    rounded = Reference(checkpoint)
    for module in rounded.backbone.modules():
        if isinstance(module, torch.nn.Linear):
            module.weight.data = unpacked(NF4Linear(module.weight.data, None, torch.float32, CPU))
    small = load_local(checkpoint)
    expected = [rounded.scores(small.family.render(small.tokenizer, *item)) if item[1] else [] for item in ITEMS]
    # All CPUs compute the same numbers, so they may share caches and calibrations.
    assert found["fingerprint"] == load_local(checkpoint, quantize="nf4").fingerprint
    assert found["fingerprint"] != small.fingerprint
    for kind in ("together", "alone"):
        assert found[kind] == [pytest.approx(scores, abs=1e-5) for scores in expected]


@pytest.mark.parametrize(
    ("shape", "kind"),
    [((640, 448), "normal"), ((3, 5), "normal"), ((1024, 320), "levels"), ((512, 512), "zeros"), ((300, 1024), "wide")],
)
@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("threads", [1, 2])
def test_weights_are_those_of_bitsandbytes(
    shape: tuple[int, int], kind: str, stored: torch.dtype, threads: int
) -> None:
    """Many weights lie exactly on a boundary between two levels, or one float32 number above or below it."""
    generator = torch.Generator().manual_seed(3)
    weight = torch.randn(shape, generator=generator)
    if kind == "levels":
        boundaries = (LEVELS[:-1] + LEVELS[1:]) / 2
        weight = boundaries[torch.randint(15, shape, generator=generator)]
        weight = torch.nextafter(weight, weight + torch.randint(-1, 2, shape, generator=generator))
        weight[:, 0] = 1.0
    elif kind == "zeros":
        weight *= torch.arange(shape[0]).unsqueeze(1) % 2
    elif kind == "wide":
        weight *= 10.0 ** torch.randint(-30, 4, shape, generator=generator)
    weight = weight.to(stored)
    values = torch.nn.functional.pad(weight.float().flatten(), (0, -weight.numel() % BLOCK))
    functional = import_bitsandbytes().functional
    codes, state = functional.quantize_4bit(values, blocksize=BLOCK, compress_statistics=True, quant_type="nf4")
    with threads_here(threads):
        found = quantize(weight)
    assert torch.equal(found.codes, codes)
    # The offset is a mean, which bitsandbytes sums in another order.
    assert found.offset == pytest.approx(state.offset.item(), rel=1e-6)
    scales = functional.dequantize_blockwise(found.scales, found.state(torch.float32).state2) + found.offset
    wanted = functional.dequantize_blockwise(state.absmax, state.state2) + state.offset
    assert torch.allclose(scales, wanted, rtol=1e-3, atol=1e-5 * float(wanted.abs().max()))


def test_weights_do_not_depend_on_the_number_of_threads() -> None:
    weight = torch.randn(1024, 2048, generator=torch.Generator().manual_seed(1)).bfloat16()
    found = []
    for threads in (1, 2, 3):
        with threads_here(threads):
            found.append(quantize(weight))
    for other in found[1:]:
        for name in ("codes", "scales", "outer", "offset"):
            assert torch.equal(getattr(found[0], name), getattr(other, name))
