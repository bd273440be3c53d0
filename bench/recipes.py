"""What each recipe rewards, on solutions that a PRM has scored already.

    python bench/recipes.py SCORED.jsonl[.gz] --scores qwen_prm --right last_number_equals_gt

A file has one JSON object a line with `question`, `steps`, a list of step scores and whether the answer is right. Told
for each recipe: how often a right solution gets more than a wrong one of the same question, which is what GRPO learns
from (a tie counts half; ± is the standard error over questions); how rewards go with the number of steps (Pearson's r
within questions); and what five further steps would do to it if each were scored like the solution's best one. No model
runs here. Then: how often these solutions show signs of hacking.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from statistics import fmean, stdev

from surefoot.core.result import SolutionScore, StepScore
from surefoot.rewards.monitor import THRESHOLDS, signs
from surefoot.rewards.reward import RECIPES, Reward

PADDING = 5


def read(file: Path, scores: str, right: str) -> list[list[tuple[SolutionScore, bool]]]:
    """The solutions of each question, scored, and whether each is right."""
    content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    rows = [json.loads(line) for line in content.decode().splitlines()]
    groups = groupby(sorted(rows, key=lambda row: str(row["question"])), key=lambda row: str(row["question"]))
    return [[(_score(row["steps"], row[scores]), bool(row[right])) for row in group] for _, group in groups]


def _score(steps: Sequence[str], scores: Sequence[float]) -> SolutionScore:
    found, at = [], 0
    for index, (text, score) in enumerate(zip(steps, scores, strict=True)):
        found.append(StepScore(text, at, at + len(text), score, "scored", index))
        at += len(text) + 2
    return SolutionScore(tuple(found), "from the file")


def padded(score: SolutionScore) -> SolutionScore:
    best = max(score.steps, key=lambda step: step.score or 0.0)
    return replace(score, steps=score.steps + (best,) * PADDING)


def told(recipe: Reward, groups: Sequence[Sequence[tuple[SolutionScore, bool]]]) -> dict[str, float]:
    """The figures of one recipe."""

    def value(score: SolutionScore) -> float:
        found = recipe(score).value
        assert found is not None
        return found

    wins, gains, slopes = [], [], []
    for group in groups:
        rewards = [value(score) for score, _ in group]
        high = [reward for reward, (_, right) in zip(rewards, group, strict=True) if right]
        low = [reward for reward, (_, right) in zip(rewards, group, strict=True) if not right]
        if high and low:
            wins.append(fmean((a > b) + 0.5 * (a == b) for a in high for b in low))
        slope = _correlation(rewards, [float(len(score.steps)) for score, _ in group])
        slopes += [] if slope is None else [slope]
        gains += [value(padded(score)) - reward for reward, (score, _) in zip(rewards, group, strict=True)]
    return {
        "right over wrong": fmean(wins),
        "error": stdev(wins) / len(wins) ** 0.5,
        "r with steps": fmean(slopes),
        "padding raises": fmean(gain > 1e-9 for gain in gains),
        "by": fmean(gains),
    }


def _correlation(a: Sequence[float], b: Sequence[float]) -> float | None:
    mean_a, mean_b = fmean(a), fmean(b)
    spread = (sum((x - mean_a) ** 2 for x in a) * sum((y - mean_b) ** 2 for y in b)) ** 0.5
    return sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True)) / spread if spread > 1e-12 else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--scores", default="qwen_prm", help="the field with the step scores")
    parser.add_argument("--right", default="last_number_equals_gt", help="the field that tells a right answer")
    options = parser.parse_args()
    groups = read(options.file, options.scores, options.right)
    mixed = sum(len({right for _, right in group}) == 2 for group in groups)
    print(f"{sum(map(len, groups))} solutions of {len(groups)} questions; {mixed} have right and wrong ones.\n")
    print("| recipe | right over wrong | r with steps | padding raises it | by, on average |\n" + "| --- " * 5 + "|")
    for name, recipe in RECIPES.items():
        if not recipe.needs_gold:
            row = told(recipe, groups)
            print(f"| `{name}` | {row['right over wrong']:.3f} ± {row['error']:.3f} | {row['r with steps']:+.2f} "
                  f"| {row['padding raises']:.0%} | {row['by']:+.3f} |")  # fmt: skip
    found = [signs(score) for group in groups for score, _ in group]
    print("\n| sign | mean | solutions above the threshold |\n" + "| --- " * 3 + "|")
    for sign in found[0]:
        values = [one[sign] for one in found]
        print(f"| `{sign}` | {fmean(values):.4f} | {fmean(value > THRESHOLDS[sign] for value in values):.2%} |")


if __name__ == "__main__":
    main()
