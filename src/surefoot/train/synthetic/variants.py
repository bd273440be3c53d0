"""Several examples from one worked solution: right ones and spoiled ones, in different styles.

The rule: the seed and the question alone decide what comes out, so a row gives the same examples wherever it stands.
GSM8K: MIT licence.
"""

from __future__ import annotations

import random

from surefoot.train.example import Example, from_label
from surefoot.train.synthetic.corrupt import KINDS, corrupt
from surefoot.train.synthetic.style import pick_style, write
from surefoot.train.synthetic.worked import parse_worked

SPOILED = 3
"""Wrong ones to a right one that is written in the same words up to the error."""


def make_variants(question: str, answer: str, *, count: int = 4, seed: int = 0, source: str = "gsm8k") -> list[Example]:
    """`count` examples of a GSM8K row: a right one, then wrong ones that differ from it only from their error on, then
    the same in another style. Rows in which something does not hold give none."""
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
