"""Measure the memory of Qwen2.5-Math-PRM-7B in nf4 on the CPU: while loading, after loading and while scoring.

    python bench/memory.py                  # first writes a 15 GB checkpoint with random weights, which it removes

The checkpoint has the real shapes, names and dtype (bfloat16, four shards), so sizes and peaks equal those of the real
one; only its weights are random. Loading and scoring run in their own process, whose peak resident memory the kernel
reports.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SIZES_7B = {
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
}


def resident(field: str) -> float:
    """VmRSS (now) or VmHWM (peak since the last reset) of this process, in GB."""
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024 / 1e9


def reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def measure(folder: Path, *, quantize: bool) -> None:
    import surefoot
    from surefoot.families import FAMILIES, find_goldens
    from surefoot.scoring.loading import load

    figures = {"before_gb": resident("VmRSS")}
    reset_peak()
    started = time.perf_counter()
    scorer = load(folder, quantize="nf4" if quantize else None)
    figures |= {
        "loading_peak_gb": resident("VmHWM"),
        "loaded_gb": resident("VmRSS"),
        "loading_s": time.perf_counter() - started,
    }
    reset_peak()
    started = time.perf_counter()
    (card,) = find_goldens(FAMILIES["qwen"], "Qwen2.5-Math-PRM-7B")
    result = scorer.score(card.question, card.steps)
    assert isinstance(result, surefoot.SolutionScore)
    assert result.status == "scored"
    figures |= {"scoring_peak_gb": resident("VmHWM"), "scoring_s": time.perf_counter() - started}
    print(json.dumps({name: round(value, 2) for name, value in figures.items()}))
    if quantize and (figures["loading_peak_gb"] > 6.5 or figures["loaded_gb"] > 5.5):
        raise SystemExit("This exceeds the documented limits: 6.5 GB while loading, 5.5 GB after loading.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="an existing checkpoint, or where to write one")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "--no-quantize", action="store_true", help="measure the unquantized model instead (27 GB of weights)"
    )
    options = parser.parse_args()
    if options.measure:
        measure(options.folder, quantize=not options.no_quantize)
        return
    from surefoot.testing import write_qwen_checkpoint

    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        if not (folder / "config.json").is_file():
            print(f"writing a checkpoint with the shapes of the 7B model to {folder} ...", file=sys.stderr)
            write_qwen_checkpoint(folder, shards=4, dtype="bfloat16", **SIZES_7B)
        child = [sys.executable, __file__, "--measure", "--folder", str(folder)]
        subprocess.run(child + ["--no-quantize"] * options.no_quantize, check=True)


if __name__ == "__main__":
    main()
