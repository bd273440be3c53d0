"""Compare the recipes on solutions that a PRM has already scored. Runs no model.

    python bench/recipes.py SCORED.jsonl[.gz] --scores qwen_prm --correct last_number_equals_gt

The file has one JSON object per line with `question`, `steps`, a list of step scores and whether the answer is correct.
For each recipe: how often a correct solution gets a higher reward than a wrong one of the same question, which is what
GRPO learns from (ties count half; ± is the standard error over questions); the correlation of rewards with the number
of steps (Pearson's r within questions); and the effect of five additional steps with the score of the solution's best
step. Then: how often these solutions have reward-hacking signals.
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
from surefoot.rewards.monitor import THRESHOLDS, hacking_signals
from surefoot.rewards.recipes import RECIPES
from surefoot.rewards.reward import Reward

PADDING = 5


def read(file: Path, scores: str, correct: str) -> list[list[tuple[SolutionScore, bool]]]:
    """Return the scored solutions of each question, and whether each is correct."""
    content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    rows = [json.loads(line) for line in content.decode().splitlines()]
    groups = groupby(sorted(rows, key=lambda row: str(row["question"])), key=lambda row: str(row["question"]))
    return [[(_score(row["steps"], row[scores]), bool(row[correct])) for row in group] for _, group in groups]


def _score(steps: Sequence[str], scores: Sequence[float]) -> SolutionScore:
    found, at = [], 0
    for index, (text, score) in enumerate(zip(steps, scores, strict=True)):
        found.append(StepScore(text, at, at + len(text), score, "scored", index))
        at += len(text) + 2
    return SolutionScore(tuple(found), "recorded")


def padded(score: SolutionScore) -> SolutionScore:
    best = max(score.steps, key=lambda step: step.score or 0.0)
    return replace(score, steps=score.steps + (best,) * PADDING)


def measure(recipe: Reward, groups: Sequence[Sequence[tuple[SolutionScore, bool]]]) -> dict[str, float]:
    """Compute the figures of one recipe."""

    def value(score: SolutionScore) -> float:
        found = recipe(score).value
        assert found is not None
        return found

    wins, gains, slopes = [], [], []
    for group in groups:
        rewards = [value(score) for score, _ in group]
        high = [reward for reward, (_, correct) in zip(rewards, group, strict=True) if correct]
        low = [reward for reward, (_, correct) in zip(rewards, group, strict=True) if not correct]
        if high and low:
            wins.append(fmean((a > b) + 0.5 * (a == b) for a in high for b in low))
        slope = _correlation(rewards, [float(len(score.steps)) for score, _ in group])
        slopes += [] if slope is None else [slope]
        gains += [value(padded(score)) - reward for reward, (score, _) in zip(rewards, group, strict=True)]
    return {
        "correct above wrong": fmean(wins),
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
    parser.add_argument("--correct", default="last_number_equals_gt", help="the field that marks correct answers")
    options = parser.parse_args()
    groups = read(options.file, options.scores, options.correct)
    mixed = sum(len({correct for _, correct in group}) == 2 for group in groups)
    print(f"{sum(map(len, groups))} solutions of {len(groups)} questions; {mixed} have both correct and wrong ones.\n")
    print("| recipe | correct above wrong | r with steps | padding raises it | mean change |\n" + "| --- " * 5 + "|")
    for name, recipe in RECIPES.items():
        if not recipe.needs_gold:
            row = measure(recipe, groups)
            print(f"| `{name}` | {row['correct above wrong']:.3f} ± {row['error']:.3f} | {row['r with steps']:+.2f} "
                  f"| {row['padding raises']:.0%} | {row['by']:+.3f} |")  # fmt: skip
    found = [hacking_signals(score) for group in groups for score, _ in group]
    print("\n| signal | mean | solutions above the threshold |\n" + "| --- " * 3 + "|")
    for signal in found[0]:
        values = [one[signal] for one in found]
        print(f"| `{signal}` | {fmean(values):.4f} | {fmean(value > THRESHOLDS[signal] for value in values):.2%} |")


if __name__ == "__main__":
    main()
