"""Measure time and memory of Qwen2.5-Math-PRM-7B in nf4 on the CPU: while loading, after loading and while scoring.

    python bench/memory.py                  # first writes a 15 GB checkpoint with random weights, which it removes
    python bench/memory.py --layers 2 4     # smaller ones, and what follows from them for 28 layers

The checkpoint has the real shapes, names and dtype (bfloat16, four shards), so sizes and peaks equal those of the real
one; only its weights are random. Loading and scoring run in their own process, whose peak resident memory the kernel
reports. The model is loaded without a cache of quantized weights, then with one that has to be written, then from it.
The CPU time matters on a busy machine, where the elapsed time says little.
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


def measure(folder: Path, *, quantize: bool, cache: Path | None = None) -> dict[str, float]:
    import surefoot
    from surefoot.families import FAMILIES, find_goldens
    from surefoot.scoring.loading import load

    figures = {"before_gb": resident("VmRSS")}
    reset_peak()
    started, cpu = time.perf_counter(), time.process_time()
    scorer = load(folder, device="cpu", quantize="nf4" if quantize else None, quantize_cache=cache or False)
    figures |= {
        "loading_peak_gb": resident("VmHWM"),
        "loaded_gb": resident("VmRSS"),
        "loading_s": time.perf_counter() - started,
        "loading_cpu_s": time.process_time() - cpu,
    }
    reset_peak()
    started = time.perf_counter()
    (card,) = find_goldens(FAMILIES["qwen"], "Qwen2.5-Math-PRM-7B")
    result = scorer.score(card.question, card.steps)
    assert isinstance(result, surefoot.SolutionScore)
    assert result.status == "scored"
    figures |= {"scoring_peak_gb": resident("VmHWM"), "scoring_s": time.perf_counter() - started}
    return {name: round(value, 2) for name, value in figures.items()}


def measure_in_child(folder: Path, *more: str) -> dict[str, float]:
    child = [sys.executable, __file__, "--measure", "--folder", str(folder), *more]
    found: dict[str, float] = json.loads(subprocess.run(child, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return found


def extrapolated(few: dict[str, float], many: dict[str, float], layers: tuple[int, int]) -> dict[str, float]:
    """What 28 layers would take if every layer took the same."""
    per_layer = {name: (many[name] - few[name]) / (layers[1] - layers[0]) for name in few}
    return {name: round(few[name] + per_layer[name] * (28 - layers[0]), 2) for name in few}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="an existing checkpoint, or where to write one")
    parser.add_argument(
        "--layers", type=int, nargs="+", default=[28], help="one number of layers, or two to extrapolate"
    )
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--cache", type=Path, help=argparse.SUPPRESS)
    parser.add_argument(
        "--no-quantize", action="store_true", help="measure the unquantized model instead (27 GB of weights)"
    )
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.folder, quantize=not options.no_quantize, cache=options.cache)))
        return
    from surefoot.testing import write_qwen_checkpoint

    rows: dict[str, list[dict[str, float]]] = {}
    for layers in options.layers:
        with tempfile.TemporaryDirectory() as scratch:
            folder = options.folder or Path(scratch) / "model"
            if not (folder / "config.json").is_file():
                print(f"writing a checkpoint with {layers} layers of the 7B model to {folder} ...", file=sys.stderr)
                write_qwen_checkpoint(folder, shards=4, dtype="bfloat16", **SIZES_7B | {"num_hidden_layers": layers})
            cache = ["--cache", str(Path(scratch) / "cache")]
            runs = {"nf4": [], "writing the cache": cache, "from the cache": cache}
            for name, more in ({"unquantized": ["--no-quantize"]} if options.no_quantize else runs).items():
                rows.setdefault(name, []).append(measure_in_child(folder, *more))
                print(f"{layers} layers, {name}: {json.dumps(rows[name][-1])}", flush=True)
    if len(options.layers) == 2:
        rows = {
            name: [extrapolated(found[0], found[1], (options.layers[0], options.layers[1]))]
            for name, found in rows.items()
        }
        for name, found in rows.items():
            print(f"extrapolated to 28 layers, {name}: {json.dumps(found[0])}")
    if options.layers == [28] or len(options.layers) == 2:
        last = [found[-1] for name, found in rows.items() if name != "unquantized"]
        if any(one["loading_peak_gb"] > 6.5 or one["loaded_gb"] > 5.5 for one in last):
            raise SystemExit("This exceeds the documented limits: 6.5 GB while loading, 5.5 GB after loading.")


if __name__ == "__main__":
    main()
