"""What a calculator can say of a step, so that a small model need not do sums in its head.

The rule: a note on a step depends on the question and on the steps up to it, never on what follows, so that scores of
a prefix stay what they are. The notes are opinions for the model to weigh, not scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from surefoot.arithmetic import check_arithmetic
from surefoot.expression import numbers_in, numbers_of, tokens_of

HOLDS = "<|sums-hold|>"
"""The step has equations that come out, and none that does not."""
FAILS = "<|sum-fails|>"
"""An equation of the step is false."""
NEW = "<|new-number|>"
"""The step takes a number from nowhere: not from the question, not from an earlier step, not from an equation."""
NOTES = (HOLDS, FAILS, NEW)
COMMON = frozenset(map(Fraction, (*range(11), 12, 24, 30, 52, 60, 100, 365, 1000)))
"""Numbers that anybody may bring along: counts, calendar, clock, percent."""


def notes_on(question: str, steps: Sequence[str]) -> list[list[str]]:
    """For each step its notes, none to two."""
    known = {*COMMON, *numbers_in(question)}
    notes = []
    for step in steps:
        tokens = tokens_of(step)
        equations = check_arithmetic(step, tokens)
        verdicts = {equation.verdict for equation in equations}
        note = [FAILS] if False in verdicts else [HOLDS] if True in verdicts else []
        results = {equation.right for equation in equations if equation.right is not None}
        named = {*numbers_of(tokens)}
        if not all(number in known or number in results for number in named):
            note.append(NEW)
        known |= named
        known |= results
        notes.append(note)
    return notes
