"""Choose the device and the dtype that work on this machine.

A dtype that would kill the process is detected beforehand and replaced by float32 with a warning. Some virtual machines
report AMX but hide the CPUID leaf that describes it; oneDNN then crashes with an illegal instruction in the first
bfloat16 or int8 matrix product. Only trying one can tell, so a child process does.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import torch

from surefoot.errors import OptionError

logger = logging.getLogger("surefoot")

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
PROBE = """
import sys, torch
if hasattr(torch, sys.argv[1]):
    ones = torch.ones(64, 64, dtype=getattr(torch, sys.argv[1]))
    torch.nn.functional.linear(ones, ones)
else:
    torch.backends.quantized.engine = sys.argv[1]
    zeros = torch.zeros(64, dtype=torch.long)
    weight = torch.quantize_per_channel(torch.ones(64, 64), torch.ones(64), zeros, 0, torch.qint8)
    torch.ops.quantized.linear_dynamic(torch.ones(64, 64), torch.ops.quantized.linear_prepack(weight, None), True)
"""
PROBE_SECONDS = 120


def choose_device(device: str | torch.device) -> torch.device:
    """Resolve `auto`: CUDA if available, else the CPU. `cuda` without an index means the GPU of this process."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        chosen = torch.device(device)
        if chosen.type == "cuda" and chosen.index is None:
            chosen = torch.device("cuda", gpu_of_this_process())
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError) as error:
        raise OptionError(f"device={device!r} cannot be used: {error}") from error
    return chosen


def gpu_of_this_process() -> int:
    """The GPU given by LOCAL_RANK, which launchers set, else the current device.

    Every thread has its own current device, initially the first one. The index is therefore resolved once, when a model
    is loaded.
    """
    rank = int(os.environ.get("LOCAL_RANK") or 0)
    return rank if 0 < rank < torch.cuda.device_count() else torch.cuda.current_device()


def choose_dtype(dtype: str | torch.dtype, device: torch.device) -> torch.dtype:
    """Resolve `auto`: bfloat16 on CUDA, float32 on the CPU. Half precision that crashes on this CPU becomes float32."""
    name = str(dtype).removeprefix("torch.")
    if name == "auto":
        name = "bfloat16" if device.type == "cuda" else "float32"
    if name not in DTYPES:
        raise OptionError(f"dtype={name!r} is not supported. Choose one of: auto, {', '.join(DTYPES)}.")
    if device.type == "cpu" and not runs_on_cpu(name):
        logger.warning(
            "A matrix product in %s crashes on this CPU (it reports AMX, but AMX does not work); using float32.", name
        )
        name = "float32"
    return DTYPES[name]


@cache
def runs_on_cpu(how: str) -> bool:
    """Whether a matrix product works here, in a dtype or with an engine of torch for 8-bit products.

    If the CPU reports AMX, a child process tries one.
    """
    if how == "float32" or not cpu_has_flag("amx_tile"):
        return True
    child = [sys.executable, "-c", PROBE, how]
    try:
        return subprocess.run(child, capture_output=True, timeout=PROBE_SECONDS, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def cpu_has_flag(flag: str) -> bool:
    """Whether /proc/cpuinfo lists this CPU feature; False where that file does not exist."""
    cpuinfo = Path("/proc/cpuinfo")
    return cpuinfo.is_file() and f" {flag}" in cpuinfo.read_text()
