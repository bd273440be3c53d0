"""A calculator's notes on each step, so that a small model does not have to do arithmetic.

The notes on a step depend on the question and the steps up to it, never on what follows, so the scores of a prefix do
not change when it grows. The notes are input for the model, not scores.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction

from surefoot.text.arithmetic.equations import Equation, check_arithmetic
from surefoot.text.arithmetic.expression import Token, numbers_of, tokens_of

HOLDS = "<|sums-hold|>"
"""The step has correct equations and no false one."""
FAILS = "<|sum-fails|>"
"""An equation of the step is false."""
NEW = "<|new-number|>"
"""The step uses a number that comes from neither the question, nor an earlier step, nor an equation."""
NEW_SMALL = "<|new-small-number|>"
"""An equation of the step uses a number from 2 to 10 that comes from nowhere."""
NOTES = (HOLDS, FAILS, NEW, NEW_SMALL)
COMMON = frozenset(map(Fraction, (*range(11), 12, 24, 30, 52, 60, 100, 365, 1000)))
"""Numbers that need no source outside equations: counts, calendar, clock, percent."""
SMALL = ["eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
WORDS = {
    **{word: Fraction(number) for number, word in enumerate(SMALL, start=11)},
    **{word: Fraction(10 * number) for number, word in enumerate(TENS, start=2)},
    "half": Fraction(1, 2),
    "third": Fraction(1, 3),
    "quarter": Fraction(1, 4),
}
SMALL_WORDS = {
    **dict.fromkeys(
        ("two", "twice", "doubl", "both", "pair", "couple", "twin", "half", "halv", "second", "average"), 2
    ),
    **dict.fromkeys(("other", "alternat", "weekend", "rectang", "back", "round trip", "semester", "even"), 2),
    **dict.fromkeys(("three", "thrice", "tripl", "trio", "third", "triang", "feet", "yard"), 3),
    **dict.fromkeys(("four", "quadrupl", "quart", "leg", "square", "month", "season", "gallon"), 4),
    **dict.fromkeys(("five", "fifth", "nickel", "weekday", "workday", "school", "pentagon", "friday"), 5),
    **dict.fromkeys(("six", "hexagon", "dozen"), 6),
    **dict.fromkeys(("seven", "week", "daily", "every day", "each day"), 7),
    **dict.fromkeys(("eight", "octagon", "spider"), 8),
    "nine": 9,
    **dict.fromkeys(("ten", "dime", "decade"), 10),
}
"""Words, or their beginnings, that can be the source of a small number."""
WORD = re.compile(rf"\b(?:{'|'.join(WORDS)})", re.IGNORECASE)
LABEL = re.compile(r"[\s#>*_-]*(?:step\s*)?\d+\s*[:.)](?=\s|\*|\Z)", re.IGNORECASE)
"""The number of a step, which is not a number of the problem."""


def notes_on(question: str, steps: Sequence[str]) -> list[list[str]]:
    """Return the notes on each step, at most three per step."""
    given = {*_given(question)}
    known, sourced = COMMON | given, given | _small_words(question)
    notes = []
    for step in steps:
        tokens = tokens_of(step)
        equations = check_arithmetic(step, tokens)
        verdicts = {equation.verdict for equation in equations}
        note = [FAILS] if False in verdicts else [HOLDS] if True in verdicts else []
        results = {equation.right for equation in equations if equation.right is not None}
        label = LABEL.match(step)
        named = {*numbers_of(token for token in tokens if label is None or token.start >= label.end())}
        if not all(number in known or number in results for number in named):
            note.append(NEW)
        operands = {*numbers_of(_tokens_in(equations, tokens))}
        if any(2 <= number <= 10 and number in COMMON for number in operands - sourced - results):
            note.append(NEW_SMALL)
        known |= named | results
        sourced |= named | results | _small_words(step)
        notes.append(note)
    return notes


def _tokens_in(equations: Sequence[Equation], tokens: Sequence[Token]) -> Iterator[Token]:
    """The tokens that are part of an equation. Both are in the order of the text."""
    at = 0
    for token in tokens:
        while at < len(equations) and equations[at].end <= token.start:
            at += 1
        if at < len(equations) and equations[at].start <= token.start:
            yield token


def _small_words(text: str) -> set[Fraction]:
    lower = text.lower()
    return {Fraction(number) for word, number in SMALL_WORDS.items() if word in lower}


def _given(question: str) -> Iterator[Fraction]:
    """The numbers in a question, including number words and the decimal values of percentages and fractions."""
    tokens = tokens_of(question)
    yield from numbers_of(tokens)
    yield from (WORDS[match.group().lower()] for match in WORD.finditer(question))
    for share in _shares(tokens):
        yield from (share, 1 - share, 1 + share, 100 * share, 100 - 100 * share, 100 + 100 * share)


def _shares(tokens: Sequence[Token]) -> Iterator[Fraction]:
    for at, token in enumerate(tokens):
        following = tokens[at + 1 : at + 3]
        if token.kind != "number" or not following:
            continue
        numbers = numbers_of([token, *following])
        if following[0].kind == "percent" or following[0].text.lower().startswith("percent"):
            yield from (number / 100 for number in numbers[:1])
        elif following[0].text == "/" and len(numbers) == 2 and numbers[1]:
            yield numbers[0] / numbers[1]
