"""Make several examples from one worked solution: correct and corrupted ones, in different styles.

Invariant: the examples depend only on the seed and the question, not on the position of the row. GSM8K: MIT licence.
"""

from __future__ import annotations

import random

from surefoot.train.example import Example, from_label
from surefoot.train.synthetic.corrupt import KINDS, corrupt
from surefoot.train.synthetic.style import pick_style, write
from surefoot.train.synthetic.worked import parse_worked

SPOILED = 3
"""Number of corrupted examples per correct one; they are identical up to the error."""


def make_variants(question: str, answer: str, *, count: int = 4, seed: int = 0, source: str = "gsm8k") -> list[Example]:
    """Make up to `count` examples from a GSM8K row.

    A correct example is followed by incorrect ones that are identical to it up to their error, then the same again in
    another style. Rows that are not fully consistent give no examples.
    """
    worked = parse_worked(question, answer)
    if worked is None:
        return []
    rng = random.Random(f"{seed}/{question}")
    kinds: list[str] = []
    examples = []
    for number in range(count):
        if number % (SPOILED + 1) == 0:
            style, words = pick_style(rng), rng.random()
            steps, label = write(worked.lines, worked.answer, style, random.Random(words))
        else:
            kinds, spoiled = kinds or rng.sample(KINDS, len(KINDS)), None
            while spoiled is None and kinds:
                spoiled = corrupt(worked, kinds.pop(), rng)
            if spoiled is None:
                continue
            steps, label = write(spoiled.lines, spoiled.answer, style, random.Random(words), spoiled.label)
        examples.append(from_label(worked.question, steps, label, source))
    return examples
