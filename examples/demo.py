"""Scores a handful of solutions, right and wrong, with the model that comes with Surefoot."""

from __future__ import annotations

import surefoot
from surefoot.terminal import BOLD, GREY, paint, show, wants_colour

BAKER = "A baker sells 12 rolls at $2 each and 5 loaves at $4 each. She spends $9 on flour. How much money is left?"
TRAIN = "A train travels at 60 miles per hour for 3 hours, then at 40 miles per hour for 2 hours. How far does it go?"
EXAMPLES = (
    (
        "Right",
        BAKER,
        "Step 1: The rolls bring 12 * 2 = 24 dollars.\n"
        "Step 2: The loaves bring 5 * 4 = 20 dollars.\n"
        "Step 3: She has 24 + 20 - 9 = 35 dollars left.\n"
        "Final Answer: 35",
    ),
    (
        "Wrong: a sum that does not hold",
        BAKER,
        "Step 1: The rolls bring 12 * 2 = 26 dollars.\n"
        "Step 2: The loaves bring 5 * 4 = 20 dollars.\n"
        "Step 3: She has 26 + 20 - 9 = 37 dollars left.\n"
        "Final Answer: 37",
    ),
    (
        "Wrong: every sum holds, but one of them takes a number from nowhere",
        BAKER,
        "Step 1: The rolls bring 12 * 2 = 24 dollars.\n"
        "Step 2: The loaves bring 5 * 7 = 35 dollars.\n"
        "Step 3: She has 24 + 35 - 9 = 50 dollars left.\n"
        "Final Answer: 50",
    ),
    (
        "Right, written in another way",
        TRAIN,
        "First it goes 60 x 3 = 180 miles.\n\nThen it goes 40 x 2 = 80 miles.\n\nThat makes 180 + 80 = 260 miles.",
    ),
    (
        "Wrong: it adds what should be multiplied",
        TRAIN,
        "First it goes 60 + 3 = 63 miles.\n\nThen it goes 40 + 2 = 42 miles.\n\nThat makes 63 + 42 = 105 miles.",
    ),
)
NEXT = """\
mini is small and often mistaken: its card says how often. What to type next:
  .venv/bin/surefoot score --question "What is 2 + 3 * 4?" --solution "3 * 4 = 12, so it is 2 + 12 = 14."
  .venv/bin/surefoot score --model Qwen/Qwen2.5-Math-PRM-7B --quantize nf4 --question "..." --solution "..."
  .venv/bin/surefoot models          the PRMs that load by name
  .venv/bin/pip install ".[serve]" && .venv/bin/surefoot serve          a page at http://127.0.0.1:8000\
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
    print(f"\n{paint(NEXT, GREY, colour)}")


if __name__ == "__main__":
    main()
