"""What this machine can run: which device, and which number format on it.

The rule: a request that would kill the process is found out beforehand and answered with float32 and a warning. Some
virtual machines announce AMX and hide the CPUID leaf that describes it; oneDNN then dies of an illegal instruction in
the first bfloat16 or int8 product. Only running one tells, so a child process does.
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
if sys.argv[1] == "int8":
    weight = torch.quantize_per_tensor(torch.ones(64, 64), 1.0, 0, torch.qint8)
    torch.ops.quantized.linear_dynamic(torch.ones(64, 64), torch.ops.quantized.linear_prepack(weight, None), True)
else:
    ones = torch.ones(64, 64, dtype=getattr(torch, sys.argv[1]))
    torch.nn.functional.linear(ones, ones)
"""
PROBE_SECONDS = 120


def choose_device(device: str | torch.device) -> torch.device:
    """`auto` is CUDA where there is one, else the CPU. A GPU without a number is that of this process."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        chosen = torch.device(device)
        if chosen.type == "cuda" and chosen.index is None:
            chosen = torch.device("cuda", gpu_of_this_process())
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError) as error:
        raise OptionError(f"device={device!r} cannot be used here: {error}") from error
    return chosen


def gpu_of_this_process() -> int:
    """What LOCAL_RANK says, which launchers set, else the current device.

    Every thread has a current device of its own, the first one unless told otherwise. So the number is settled once,
    when a model is loaded.
    """
    rank = int(os.environ.get("LOCAL_RANK") or 0)
    return rank if 0 < rank < torch.cuda.device_count() else torch.cuda.current_device()


def choose_dtype(dtype: str | torch.dtype, device: torch.device) -> torch.dtype:
    """`auto` is bfloat16 on CUDA and float32 on the CPU. A half precision that kills this CPU becomes float32."""
    name = str(dtype).removeprefix("torch.")
    if name == "auto":
        name = "bfloat16" if device.type == "cuda" else "float32"
    if name not in DTYPES:
        raise OptionError(f"dtype={name!r} is not offered. Choose one of: auto, {', '.join(DTYPES)}.")
    if device.type == "cpu" and not runs_on_cpu(name):
        logger.warning(
            "A product in %s kills the process on this CPU (AMX is announced but broken); using float32.", name
        )
        name = "float32"
    return DTYPES[name]


@cache
def runs_on_cpu(dtype: str) -> bool:
    """Whether a matrix product in this format survives here. Asked of a child process, where AMX makes it doubtful."""
    if dtype == "float32" or not _announces_amx():
        return True
    child = [sys.executable, "-c", PROBE, dtype]
    try:
        return subprocess.run(child, capture_output=True, timeout=PROBE_SECONDS, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def _announces_amx() -> bool:
    return cpu_announces("amx_tile")


def cpu_announces(flag: str) -> bool:
    """Whether the kernel lists this ability of the CPU. Where it lists none, the answer is no."""
    cpuinfo = Path("/proc/cpuinfo")
    return cpuinfo.is_file() and f" {flag}" in cpuinfo.read_text()
