"""Compare number formats with float32: differences of scores, quality on labelled solutions, speed, and `precision`.

    python bench/formats.py mini --data gsm8k_dev.json                    # bfloat16 and int8 against float32
    python bench/formats.py FOLDER --data gsm8k_dev.json --every 4 --load '{"family": "qwen"}'
    python bench/formats.py mini --data gsm8k_dev.json --jobs 1000 5000   # what precision chooses, by tokens of a job

The data are in ProcessBench's format. All formats run on one block of solutions before the next one, in one process, so
that other load on the machine affects them equally. The intervals of F1 show what differences the data can resolve.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import torch

import surefoot
from surefoot import evaluate
from surefoot.core.options import Precision
from surefoot.engine import int8
from surefoot.engine.hardware import runs_on_cpu
from surefoot.scoring.local import load_local

BLOCK = 10
"""Solutions per block."""
Rows = list[dict[str, Any]]


def quality(rows: Rows, scores: list[list[float | None]]) -> str:
    scored = [row | {"scores": each} for row, each in zip(rows, scores, strict=True)]
    result = evaluate.processbench(None, scored)
    (split,) = result.splits
    f1 = "not defined"
    if split.f1 is not None and split.f1_interval is not None:
        low, high = (100 * bound for bound in split.f1_interval)
        f1 = f"{100 * split.f1:.1f} [{low:.1f}-{high:.1f}]"
    return f"F1 {f1}, step AUC {result.step_auc:.3f}"


def formats(wanted: list[str]) -> dict[str, dict[str, Any]]:
    """The options of float32 and of each wanted format that this machine can compute."""
    found: dict[str, dict[str, Any]] = {"float32": {}}
    if "bfloat16" in wanted and runs_on_cpu("bfloat16"):
        found["bfloat16"] = {"dtype": "bfloat16"}
    if "int8" in wanted and int8.engine():
        found["int8"] = {"quantize": "int8"}
    return found


def compare(model: str, rows: Rows, wanted: list[str], others: dict[str, Any]) -> None:
    loading, scorers = {}, {}
    for name, given in formats(wanted).items():
        start = time.perf_counter()
        scorers[name] = load_local(model, device="cpu", **given, **others)
        loading[name] = time.perf_counter() - start
    scores: dict[str, list[list[float | None]]] = {name: [] for name in scorers}
    seconds: dict[str, list[float]] = {name: [] for name in scorers}
    for at in range(0, len(rows), BLOCK):
        items = [(row["problem"], row["steps"]) for row in rows[at : at + BLOCK]]
        for name, scorer in scorers.items():
            start = time.perf_counter()
            results = scorer.score_many(items)
            seconds[name].append(time.perf_counter() - start)
            scores[name] += [list(result.step_scores) for result in results]
    print(f"{model}, {torch.get_num_threads()} threads, {len(rows)} solutions")
    exact = np.array([x for each in scores["float32"] for x in each], float)
    for name in scorers:
        print(f"{name}: {quality(rows, scores[name])}, loaded in {loading[name]:.1f} s")
        if name == "float32":
            continue
        found = np.array([x for each in scores[name] for x in each], float)
        drift = np.abs(found - exact)
        ratios = [a / b for a, b in zip(seconds["float32"], seconds[name], strict=True)]
        print(
            f"  difference over {len(drift)} steps: mean {drift.mean():.4f}, 99 % within "
            f"{np.quantile(drift, 0.99):.4f}, at most {drift.max():.4f}; "
            f"{int(((exact > 0.5) != (found > 0.5)).sum())} steps change sides of 0.5"
        )
        print(
            f"  {statistics.median(ratios):.2f} times as fast as float32 [{min(ratios):.2f}-{max(ratios):.2f}] "
            f"over {len(ratios)} blocks"
        )


def jobs(model: str, rows: Rows, wanted: list[str], sizes: list[int], repeats: int) -> None:
    """Print what `precision` chooses, and times of each format for jobs of so many tokens, without loading."""
    scorers = {name: load_local(model, device="cpu", **given) for name, given in formats(wanted).items()}
    kinds: tuple[Precision, ...] = ("exact", "auto", "fast")
    chosen = {kind: load_local(model, device="cpu", precision=kind).info["precision"] for kind in kinds}
    print(f"{model}, {torch.get_num_threads()} threads; " + ", ".join(f"{kind}: {chosen[kind]}" for kind in kinds))
    for scorer in scorers.values():
        scorer.score(rows[0]["problem"], rows[0]["steps"])  # warm-up
    for size in sizes:
        items, tokens = [], 0
        for row in cycle(rows):
            if tokens >= size:
                break
            items.append((row["problem"], row["steps"]))
            tokens += len(_prompt(scorers["float32"], row))
        seconds: dict[str, list[float]] = {name: [] for name in scorers}
        for _ in range(repeats):
            for name, scorer in scorers.items():
                start = time.perf_counter()
                for _ in scorer.score_stream(iter(items)):
                    pass
                seconds[name].append(time.perf_counter() - start)
        line = ", ".join(
            f"{name} {statistics.median(times):.2f} s [{min(times):.2f}-{max(times):.2f}]"
            for name, times in seconds.items()
        )
        print(f"{tokens:,} tokens: {line}", flush=True)
        if len(items) > len(rows):
            times = -(-len(items) // len(rows))
            print(f"  (solutions occur up to {times} times; equal prompts of a window are computed once)")


def _prompt(scorer: surefoot.Scorer, row: dict[str, Any]) -> tuple[int, ...]:
    return scorer.family.render(scorer.tokenizer, row["problem"], row["steps"]).ids


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--every", type=int, default=1, help="take every Nth row: files are sorted by label")
    both = ["bfloat16", "int8"]
    parser.add_argument("--formats", nargs="+", choices=both, default=both, help="formats to compare with float32")
    parser.add_argument("--jobs", type=int, nargs="+", metavar="TOKENS", help="time jobs of these sizes instead")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--load", type=json.loads, default={}, metavar="JSON", help="more options of surefoot.load")
    options = parser.parse_args()
    rows = json.loads(options.data.read_text(encoding="utf-8"))[:: options.every]
    if options.jobs:
        jobs(options.model, rows, options.formats, options.jobs, options.repeats)
    else:
        compare(options.model, rows, options.formats, options.load)


if __name__ == "__main__":
    main()
