"""What `gpu.py` knows about the machine, and its report as Markdown."""

from __future__ import annotations

import platform
import re
import subprocess
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import surefoot

PACKAGES = ("surefoot", "torch", "transformers", "bitsandbytes", "flash-attn", "triton", "safetensors", "numpy")


def environment(device: str) -> dict[str, Any]:
    """The machine and the versions of everything that computes."""
    cpuinfo = Path("/proc/cpuinfo")
    name = re.search(r"^model name\s+: (.*)", cpuinfo.read_text(), re.MULTILINE) if cpuinfo.is_file() else None
    found: dict[str, Any] = {
        "time": time.strftime("%Y-%m-%d %H:%M:%S %Z"),
        "surefoot": surefoot.__version__,
        "commit": _output(["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]),
        "system": platform.platform(),
        "python": platform.python_version(),
        "cpu": name[1] if name else platform.processor(),
        "threads": torch.get_num_threads(),
        "device": device,
        "packages": {package: _version(package) for package in PACKAGES},
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
    }
    if device.startswith("cuda"):
        properties = torch.cuda.get_device_properties(device)
        found |= {
            "gpu": properties.name,
            "gpu_memory_gb": properties.total_memory / 1e9,
            "capability": f"{properties.major}.{properties.minor}",
            "cuda": torch.version.cuda,
            "driver": _output(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]),
        }
    return found


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _output(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def markdown(report: dict[str, Any]) -> str:
    """The report for people."""
    where = report["environment"]
    lines = ["# Surefoot on " + where.get("gpu", where["cpu"]), ""]
    if report["failures"]:
        lines += ["**Failed:**", "", *(f"- {each}" for each in report["failures"]), ""]
    else:
        lines += ["All checks that can run here passed.", ""]
    lines += [f"Model: {report['model']}. Arguments: `{' '.join(report['arguments']) or 'none'}`.", ""]
    lines += [f"- {name}: {value}" for name, value in where.items() if name != "packages"]
    lines += ["- " + ", ".join(f"{name} {value}" for name, value in where["packages"].items()), ""]
    lines += ["## Guarantee 3: the same scores alone and with others", ""]
    lines += _table(
        report["checks"],
        ["format", "attention", "result", "largest difference", "allowed", "detail"],
        lambda row: [
            row["format"],
            row["attention"],
            row["result"],
            "" if row["difference"] is None else f"{row['difference']:.1e}",
            f"{row['tolerance']:g}",
            row["detail"],
        ],
    )
    lines += ["## Throughput", "", "Tokens per second count shared tokens once per prompt. Ratios: median [range].", ""]
    lines += _table(
        report["throughput"],
        [
            "format",
            "attention",
            "tokens/s",
            "against one solution at a time",
            "against transformers, one at a time",
            "peak GB",
            "difference from transformers",
        ],
        lambda row: [
            row["format"],
            row.get("attention", ""),
            f"{row['tokens_per_second']['surefoot']:,.0f}" if "tokens_per_second" in row else row["problem"],
            _spread(row.get("ratios", {}).get("surefoot, one at a time")),
            _spread(row.get("ratios", {}).get("transformers, one at a time")),
            f"{row['peak_gb']:.2f}" if "peak_gb" in row else "",
            f"{row['from_transformers']:.1e}" if "from_transformers" in row else "",
        ],
    )
    lines += ["## Cold start", "", "Seconds, median [range]: a new process, loading in it, its first two scores.", ""]
    lines += _table(
        report["cold_start"],
        ["format", "process", "loading", "first score", "second score", "peak GB while loading"],
        lambda row: (
            [row["format"], row["problem"], "", "", "", ""]
            if "problem" in row
            else [row["format"]]
            + [_spread(row[key]) for key in ("process_s", "load_s", "first_score_s", "second_score_s", "load_peak_gb")]
        ),
    )
    lines += ["## Scaling", ""]
    lines += _table(
        report["scaling"],
        ["solutions", "tokens", "seconds", "against the previous row", "peak GB"],
        lambda row: (
            [str(row["solutions"]), row["problem"], "", "", ""]
            if "problem" in row
            else [
                f"{row['solutions']:,}",
                f"{row['tokens']:,}",
                f"{row['seconds']:.2f}",
                f"{row['against_previous']:.2f}" if "against_previous" in row else "",
                f"{row['peak_gb']:.2f}",
            ]
        ),
    )
    return "\n".join(lines) + "\n"


def _spread(value: dict[str, float] | None) -> str:
    return "" if value is None else f"{value['median']:.2f} [{value['smallest']:.2f}-{value['largest']:.2f}]"


def _table(rows: Any, titles: list[str], cells: Any) -> list[str]:
    if isinstance(rows, dict):
        return [f"Error: {rows['error']}", ""]
    lines = ["| " + " | ".join(titles) + " |", "|" + " --- |" * len(titles)]
    for row in rows:
        lines.append("| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells(row)) + " |")
    return [*lines, ""]
