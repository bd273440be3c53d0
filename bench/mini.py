"""Measure the embedded model: size, loading and scoring time, and the effect of storing it in few bits.

    python bench/mini.py                                  # size, loading, one solution
    python bench/mini.py --whole FOLDER --data FILE.json  # and its distance from the float32 weights

`--whole` is the folder that training exported in float32, `--data` a file in ProcessBench's format. Its quality is
measured by `surefoot eval processbench --model mini --data FILE.json`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
import transformers

import surefoot
from surefoot.families.mini import FOLDER
from surefoot.scoring.local import load_local

QUESTION = "A baker sells 12 rolls at $2 each and 5 loaves at $4 each. She spends $9 on flour. What is left?"
STEPS = [
    "The rolls bring 12 * 2 = 24 dollars.",
    "The loaves bring 5 * 4 = 20 dollars.",
    "Together that is 24 + 20 = 44 dollars.",
    "After paying for the flour she has 44 - 9 = 35 dollars left. The answer is 35.",
]


def timed(count: int, work: object) -> str:
    assert callable(work)
    seconds = []
    for _ in range(count):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return f"{statistics.median(seconds):.2f} s [{min(seconds):.2f}-{max(seconds):.2f}]"


def drift(whole: Path, rows: list[dict[str, object]]) -> None:
    items = [(str(row["problem"]), [str(step) for step in row["steps"]]) for row in rows]  # type: ignore[attr-defined]
    stored, full = (load_local(model).score_many(items) for model in ("mini", whole))
    pairs = [
        (a, b)
        for one, other in zip(stored, full, strict=True)
        for a, b in zip(one.step_scores, other.step_scores, strict=True)
        if a is not None and b is not None
    ]
    off = sorted(abs(a - b) for a, b in pairs)
    flipped = sum((a > 0.5) != (b > 0.5) for a, b in pairs)
    decided = sum(one.first_error() != other.first_error() for one, other in zip(stored, full, strict=True))
    far = off[len(off) * 99 // 100]
    print(f"drift over {len(pairs)} steps: median {statistics.median(off):.4f}, 99 % within {far:.3f}")
    print(f"changed side of 0.5: {flipped} steps; changed first error: {decided} of {len(rows)} solutions")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--whole", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    folder = FOLDER
    size = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
    print(f"on disk: {size / 1e6:.1f} MB; torch {torch.__version__}, transformers {transformers.__version__}")
    print(f"first load (including lazy imports of torch and transformers): {timed(1, surefoot.load)}")
    print(f"load: {timed(options.repeats, surefoot.load)}")
    scorer = load_local()
    print(f"a four-step solution: {timed(options.repeats, lambda: scorer.score(QUESTION, STEPS))}")
    if options.whole and options.data:
        drift(options.whole, json.loads(options.data.read_text()))


if __name__ == "__main__":
    main()
