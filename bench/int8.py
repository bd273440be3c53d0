"""Compare a PRM in int8 with the same in float32: differences of scores, quality on labelled solutions, and speed.

    python bench/int8.py mini --data gsm8k_dev.json
    python bench/int8.py FOLDER --data gsm8k_dev.json --limit 50

The data are in ProcessBench's format. Both run on one block of solutions before the next one, in one process, so that
other load on the machine affects them equally. The intervals of F1 show what differences the data can resolve.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from surefoot import evaluate
from surefoot.engine.int8 import computation
from surefoot.scoring.local import load_local

BLOCK = 10
"""Solutions per block."""


def quality(rows: list[dict[str, Any]], scores: list[list[float | None]]) -> str:
    scored = [row | {"scores": each} for row, each in zip(rows, scores, strict=True)]
    result = evaluate.processbench(None, scored)
    (split,) = result.splits
    assert split.f1 is not None
    assert split.f1_interval is not None
    low, high = (100 * bound for bound in split.f1_interval)
    return f"F1 {100 * split.f1:.1f} [{low:.1f}-{high:.1f}], step AUC {result.step_auc:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--every", type=int, default=1, help="take every Nth row: files are sorted by label")
    options = parser.parse_args()
    rows = json.loads(options.data.read_text(encoding="utf-8"))[:: options.every]
    loading, scorers = {}, {}
    for name, quantize in (("float32", None), ("int8", "int8")):
        start = time.perf_counter()
        scorers[name] = load_local(options.model, quantize=quantize, device="cpu", dtype="float32")
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
    exact, found = (np.array([x for each in scores[name] for x in each], float) for name in scorers)
    drift = np.abs(found - exact)
    ratios = [a / b for a, b in zip(seconds["float32"], seconds["int8"], strict=True)]
    print(f"{options.model}, {computation()}, {torch.get_num_threads()} threads, {len(rows)} solutions")
    print(
        f"difference over {len(drift)} steps: mean {drift.mean():.4f}, 99 % within {np.quantile(drift, 0.99):.4f}, "
        f"at most {drift.max():.4f}; {int(((exact > 0.5) != (found > 0.5)).sum())} steps change sides of 0.5"
    )
    for name in scorers:
        print(f"{name}: {quality(rows, scores[name])}, loaded in {loading[name]:.1f} s")
    print(
        f"int8 is {statistics.median(ratios):.2f} times as fast as float32 [{min(ratios):.2f}-{max(ratios):.2f}] "
        f"over {len(ratios)} blocks"
    )


if __name__ == "__main__":
    main()
