"""Scores two solutions of one question, a right and a wrong one, and shows them.

The checkpoint is made on the spot: the architecture, tensor names and vocabulary of Qwen2.5-Math-PRM, with small,
random weights. So everything is real but the judgement: these scores mean nothing yet.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import surefoot
from surefoot.terminal import show, wants_colour
from surefoot.testing import write_qwen_checkpoint

QUESTION = "A baker sells 12 rolls at $2 each and 5 loaves at $4 each. How much money does she make?"
RIGHT = "Step 1: The rolls bring 12 * 2 = 24 dollars.\nStep 2: The loaves bring 5 * 4 = 20 dollars.\nFinal Answer: 44"
WRONG = "Step 1: The rolls bring 12 * 2 = 26 dollars.\nStep 2: The loaves bring 5 * 4 = 20 dollars.\nFinal Answer: 46"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        scorer = surefoot.load(write_qwen_checkpoint(Path(folder)))
        results = scorer.score_many([(QUESTION, RIGHT), (QUESTION, WRONG)])
    for title, result in zip(("A right solution", "A wrong solution"), results, strict=True):
        print(f"\n{title}\n{show(result, colour=wants_colour())}")
    print(
        "\nThe weights of this demo are random, so its scores mean nothing. With a real model:\n"
        "  .venv/bin/surefoot score --model Qwen/Qwen2.5-Math-PRM-7B --question '...' --solution '...'"
    )


if __name__ == "__main__":
    main()
