"""Score a few correct and wrong solutions with the model that is included in Surefoot."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import surefoot
from surefoot.display.terminal import BOLD, GREY, paint, show, wants_colour

BAKERY = (
    "A bakery sells rolls for $2 each and loaves of bread for $4 each. On Monday it sold 12 rolls and 5 loaves, and it "
    "paid $9 for flour. How much money did the bakery have left?"
)
TRAIN = (
    "A train travels at 60 miles per hour for 3 hours and then at 40 miles per hour for 2 hours. How many miles does "
    "the train travel in total?"
)
EXAMPLES = (
    (
        "Correct",
        BAKERY,
        "Step 1: The bakery earned 12 * $2 = $24 from the rolls.\n"
        "Step 2: It earned 5 * $4 = $20 from the loaves.\n"
        "Step 3: In total it earned $24 + $20 = $44.\n"
        "Step 4: After paying for the flour, the bakery had $44 - $9 = $35 left.\n"
        "Final Answer: 35",
    ),
    (
        "Wrong: an arithmetic error",
        BAKERY,
        "Step 1: The bakery earned 12 * $2 = $26 from the rolls.\n"
        "Step 2: It earned 5 * $4 = $20 from the loaves.\n"
        "Step 3: In total it earned $26 + $20 = $46.\n"
        "Step 4: After paying for the flour, the bakery had $46 - $9 = $37 left.\n"
        "Final Answer: 37",
    ),
    (
        "Wrong, and mini misses it: the arithmetic is correct, but a loaf costs $4",
        BAKERY,
        "Step 1: The bakery earned 12 * $2 = $24 from the rolls.\n"
        "Step 2: It earned 5 * $7 = $35 from the loaves.\n"
        "Step 3: In total it earned $24 + $35 = $59.\n"
        "Step 4: After paying for the flour, the bakery had $59 - $9 = $50 left.\n"
        "Final Answer: 50",
    ),
    (
        "Correct, in another format",
        TRAIN,
        "In the first 3 hours the train travels 60 * 3 = 180 miles.\n\n"
        "In the next 2 hours it travels 40 * 2 = 80 miles.\n\n"
        "In total, the train travels 180 + 80 = 260 miles.",
    ),
    (
        "Wrong: it adds instead of multiplying",
        TRAIN,
        "In the first 3 hours the train travels 60 + 3 = 63 miles.\n\n"
        "In the next 2 hours it travels 40 + 2 = 42 miles.\n\n"
        "In total, the train travels 63 + 42 = 105 miles.",
    ),
)
NEXT = """\
mini catches arithmetic errors; it often misses a correct calculation that answers the wrong question (see its card).
What to try next:
  {bin}/surefoot score --question "Tom has 3 bags of 4 apples. How many?" --solution "Tom has 3 * 4 = 12 apples."
  {bin}/pip install ".[nf4]"       # for the next command, which downloads 15 GB
  {bin}/surefoot score --model Qwen/Qwen2.5-Math-PRM-7B --quantize nf4 --question "..." --solution "..."
  {bin}/surefoot models          # the PRMs that load by name
  {bin}/pip install ".[serve]" && {bin}/surefoot serve          # a page at http://127.0.0.1:8000\
"""


def main() -> None:
    colour = wants_colour()
    results = surefoot.load().score_many([(question, solution) for _, question, solution in EXAMPLES])
    asked = None
    for (title, question, _), result in zip(EXAMPLES, results, strict=True):
        if question != asked:
            print(f"\n{paint(question, BOLD, colour)}")
            asked = question
        print(f"\n{title}\n{show(result, colour=colour)}")
    commands = NEXT.format(bin=os.path.relpath(Path(sys.executable).parent))
    print(f"\n{paint(commands, GREY, colour)}")


if __name__ == "__main__":
    main()
