"""Choose the number format in which this machine multiplies a model's matrices fastest.

`exact` needs no measurement. For the others, products with the shapes of one decoder layer are timed once per machine
and shape of the model. The times are kept in the user's cache folder, so that later processes choose alike. They are
CPU times of one thread, which other work on the machine hardly affects.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import torch
from torch import Tensor

from surefoot.core.cache_folder import cache_folder, store_entry
from surefoot.core.options import Precision, Quantization
from surefoot.engine import int8
from surefoot.engine.checkpoint import Checkpoint
from surefoot.engine.hardware import choose_dtype, runs_on_cpu
from surefoot.engine.prepacked import PrepackedLinear, can_prepack
from surefoot.engine.thread_limit import ThreadLimit

logger = logging.getLogger("surefoot")

CPU = torch.device("cpu")
ROWS = (8, 128)
"""Rows of the timed products. A format that is far behind with the first number is not timed with the second."""
REPEATS = 3
HOPELESS = 4.0
"""Times slower than float32 with few rows: the format has no kernel here."""
GAIN = 1.1
"""How many times faster than a more exact format another one has to be."""
Shape = tuple[int, int]


@dataclass(frozen=True)
class NumberFormat:
    """The format of activations, and that of linear layers if they are quantized."""

    dtype: torch.dtype
    quantize: Quantization | None = None

    @property
    def name(self) -> str:
        """Such as float32, bfloat16 or int8."""
        return self.quantize or str(self.dtype).removeprefix("torch.")


FLOAT32, BFLOAT16 = NumberFormat(torch.float32), NumberFormat(torch.bfloat16)
INT8 = NumberFormat(torch.float32, "int8")


def choose_format(precision: Precision, checkpoint: Checkpoint, device: torch.device) -> NumberFormat:
    """Resolve `precision` for a model on a device.

    `exact`: float32 on the CPU, bfloat16 elsewhere. `auto`: on a CPU, the faster one of float32 and bfloat16. `fast`:
    on a CPU, the fastest one of float32, bfloat16 and int8.
    """
    if precision == "exact" or device.type != "cpu":
        return NumberFormat(choose_dtype("auto", device))
    candidates = [FLOAT32]
    if runs_on_cpu("bfloat16"):
        candidates.append(BFLOAT16)
    if precision == "fast" and int8.engine():
        candidates.append(INT8)
    seconds = _known_or_measured(candidates, layer_matrices(checkpoint))
    best = fastest(candidates, seconds)
    logger.info(
        'precision="%s" computes in %s (seconds per product: %s).',
        precision,
        best.name,
        ", ".join(f"{name} {one:.4f}" for name, one in seconds.items()),
    )
    return best


def fastest(candidates: Sequence[NumberFormat], seconds: Mapping[str, float]) -> NumberFormat:
    """Return the fastest format, given the most exact one first. A small gain is not worth a coarser format."""
    best, *others = candidates
    for each in others:
        if seconds.get(each.name, float("inf")) * GAIN <= seconds[best.name]:
            best = each
    return best


def layer_matrices(checkpoint: Checkpoint) -> dict[str, Shape]:
    """The shapes of the matrices of one decoder layer, by the names of its linear layers, such as `q_proj`."""
    first = {name: place.shape for name, place in checkpoint.tensors.items() if "layers.0." in f".{name}"}
    return {
        name.removesuffix(".weight").rpartition(".")[2]: (int(shape[0]), int(shape[1]))
        for name, shape in sorted(first.items())
        if len(shape) == 2
    }


def measure(candidates: Sequence[NumberFormat], matrices: Mapping[str, Shape]) -> dict[str, float]:
    """Time one product per matrix in each format, by the format's name. Formats without a kernel here are left out."""
    found: dict[str, float] = {}
    limit = float("inf")
    for each in candidates:
        layers = [_product(each, name, shape) for name, shape in matrices.items()]
        inputs = [[torch.ones(rows, shape[1], dtype=each.dtype) for shape in matrices.values()] for rows in ROWS]
        few = _seconds(layers, inputs[0])
        if each == FLOAT32:
            limit = HOPELESS * few
        if few <= limit:
            found[each.name] = _seconds(layers, inputs[1])
    return found


@torch.inference_mode()
def _seconds(layers: Sequence[Callable[[Tensor], Tensor]], inputs: Sequence[Tensor]) -> float:
    """The least of a few times, after one that is not counted."""
    times = []
    with ThreadLimit(1).applied(adapt=False):
        for _ in range(REPEATS + 1):
            start = time.thread_time()
            for layer, rows in zip(layers, inputs, strict=True):
                layer(rows)
            times.append(time.thread_time() - start)
    return min(times[1:])


def _product(how: NumberFormat, name: str, shape: Shape) -> Callable[[Tensor], Tensor]:
    weight = torch.ones(shape, dtype=how.dtype)
    if how.quantize == "int8" and name not in int8.IN_FLOAT:
        return int8.Int8Linear(weight, dtype=how.dtype, device=CPU)
    if can_prepack(how.dtype, CPU):
        return PrepackedLinear(weight, None)
    return lambda rows: torch.nn.functional.linear(rows, weight)


def _known_or_measured(candidates: Sequence[NumberFormat], matrices: Mapping[str, Shape]) -> dict[str, float]:
    file = cache_folder() / "number-formats" / f"{_machine([each.name for each in candidates], matrices)}.json"
    try:
        known = {str(name): float(seconds) for name, seconds in json.loads(file.read_text()).items()}
        if known.get(FLOAT32.name, 0.0) > 0.0:
            return known
    except (OSError, ValueError, TypeError, AttributeError):
        pass  # not measured yet, or not readable
    found = measure(candidates, matrices)
    _store(file, found)
    return found


def _machine(names: Sequence[str], matrices: Mapping[str, Shape]) -> str:
    """Identify everything that the times depend on, except for other work on the machine."""
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text() if cpuinfo.is_file() else ""
    cpu = sorted({line for line in text.splitlines() if line.startswith(("model name", "flags", "Features"))})
    versions = [torch.__version__, int8.computation() if INT8.name in names else ""]
    return sha256(json.dumps([cpu, versions, names, matrices]).encode()).hexdigest()[:32]


def _store(file: Path, seconds: Mapping[str, float]) -> None:
    try:
        store_entry(file, json.dumps(dict(seconds)))
    except OSError as error:
        logger.info("The speed of number formats is measured again next time: %s", error)
