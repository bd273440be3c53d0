"""Check scores and measure speed on a GPU, and write a report to send back. Nobody has run this on a GPU yet.

    pip install ".[testing,nf4]"                 # in an environment with a CUDA build of torch; flash-attn is optional
    python bench/gpu.py                          # writes gpu-report/report.json and gpu-report/report.md
    python bench/gpu.py --size 7b                # the shapes of the 7B model: 15 GB of disk, 16 GB of GPU memory
    python bench/gpu.py --model FOLDER           # a real checkpoint of a Qwen PRM
    python bench/gpu.py --device cpu --quick     # the same on a CPU, in a minute

It checks guarantee 3 for every attention kernel in every format: a solution has the same scores alone, with others, in
packs of any size and through a session. Then it measures throughput against one forward pass per solution, the cold
start, memory, and how time grows with the number of solutions. What cannot run here is listed with the reason. Methods
take turns, and a ratio is reported with its range. The exit status is 1 if a check fails. Without --model, checkpoints
with random weights and real shapes are written and removed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpu_checks import FORMATS, check_formats
from gpu_measure import cold_starts, measure_child, scaling, throughput
from gpu_report import environment, markdown

SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2},
    "0.5b": {
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
    },
    "1.5b": {
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
    },
    "7b": {
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
    },
}


def device_problem(device: str) -> str | None:
    """Why this device cannot be used, and what to do."""
    import torch

    if not device.startswith("cuda"):
        return None
    if torch.version.cuda is None:
        return (
            f"torch {torch.__version__} was built without CUDA. Install a CUDA build (https://pytorch.org), or try the "
            "benchmark on this CPU: python bench/gpu.py --device cpu --quick"
        )
    if not torch.cuda.is_available():
        return (
            "torch finds no CUDA device. Check nvidia-smi and CUDA_VISIBLE_DEVICES, or try the benchmark on this CPU: "
            "python bench/gpu.py --device cpu --quick"
        )
    return None


def run(options: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    from surefoot.testing import write_qwen_checkpoint

    report: dict[str, Any] = {"environment": environment(options.device), "arguments": sys.argv[1:]}
    small = write_qwen_checkpoint(scratch / "small", **SIZES["tiny"])
    if options.model is None:
        folder = write_qwen_checkpoint(scratch / "large", dtype="bfloat16", shards=4, **SIZES[options.size])
    else:
        folder = options.model
    report["model"] = str(options.model or f"random weights with the shapes of {options.size}")
    questions, samples, repeats = (2, 4, 1) if options.quick else (options.questions, options.samples, options.repeats)
    counts = [8, 16] if options.quick else options.counts
    formats = ["float32", "nf4, float32"] if options.quick else list(FORMATS)
    sections: dict[str, Callable[[], Any]] = {
        "checks": lambda: check_formats(small, options.device, compiled=not options.quick),
        "throughput": lambda: throughput(folder, options.device, questions, samples, repeats, options.rollouts),
        "cold_start": lambda: cold_starts(folder, options.device, 1 if options.quick else 3, formats),
        "scaling": lambda: scaling(folder, options.device, counts, samples),
    }
    for name, section in sections.items():
        print(f"{name} ...", file=sys.stderr, flush=True)
        started = time.perf_counter()
        try:
            report[name] = section()
        except Exception as error:  # the other sections are worth having
            report[name] = {"error": f"{type(error).__name__}: {error}"}
        report.setdefault("seconds", {})[name] = round(time.perf_counter() - started, 1)
    return report


def failures(report: dict[str, Any]) -> list[str]:
    """Checks that failed and sections that ended with an error."""
    found = [f"{name}: {part['error']}" for name, part in report.items() if isinstance(part, dict) and "error" in part]
    checks = report.get("checks")
    rows = checks if isinstance(checks, list) else []
    return found + [
        f"{row['format']}, {row['attention']}: {row['detail']}" for row in rows if row["result"] == "failed"
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, ... or cpu")
    parser.add_argument("--size", choices=SIZES, help="shapes to measure (default: 0.5b; tiny with --quick)")
    parser.add_argument("--model", type=Path, help="a folder with a Qwen PRM to measure instead of random weights")
    parser.add_argument("--rollouts", type=Path, help="JSONL file of real solutions (default: generated ones)")
    parser.add_argument("--questions", type=int, default=8)
    parser.add_argument("--samples", type=int, default=32, help="solutions per question")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--counts", type=int, nargs="+", default=[512, 1024, 2048, 4096, 8192, 16384], help="for scaling"
    )
    parser.add_argument("--out", type=Path, default=Path("gpu-report"), help="folder of the report")
    parser.add_argument("--quick", action="store_true", help="few solutions, to see whether everything runs")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure_child(json.loads(options.child))))
        return
    options.size = options.size or ("tiny" if options.quick else "0.5b")
    if problem := device_problem(options.device):
        raise SystemExit(f"device {options.device} cannot be used: {problem}")
    with tempfile.TemporaryDirectory() as scratch:
        report = run(options, Path(scratch))
    failed = report["failures"] = failures(report)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    (options.out / "report.md").write_text(markdown(report))
    print(markdown(report))
    print(f"The report is in {options.out}. Please send both files: open an issue with them.")
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
