"""Real solutions labelled by their intermediate values: what a solution computes is looked for in the gold solution.

The rule: evidence of this kind is weak, so the targets are as soft as it is. Measured on the wrong solutions of
MR-GSM8K, whose first errors people marked: a false equation was the first error in 103 of 114 cases; a value that the
gold solution does not know, in 144 of 310 (80 times the error came later, 86 times it was already made); of known
values before it 4 in 5 stood in right steps, before a false equation 19 in 20. Where every value is known and the
answer is wrong all the same, nothing is learnt: not once was the last step the first error. A solution that arrives at
the right answer counts as right, up to a false equation if it has one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from surefoot.text.arithmetic.equations import check_arithmetic
from surefoot.text.arithmetic.expression import numbers_in
from surefoot.train.example import Example, strip_marks

FALSE = 0.0
"""The target of a step with a false equation."""
UNKNOWN = 0.3
"""Of a step whose value nobody else knows."""
CATALOG = {FALSE: 0.95, UNKNOWN: 0.8}
"""Of a step before one of these, whose values are all known."""


def known_values(question: str, gold: str, right_solutions: Iterable[Sequence[str]] = ()) -> set[Fraction]:
    """Every value that a right solution of this question may compute; solutions with a false equation do not count."""
    known = {*numbers_in(question), *numbers_in(gold)}
    for steps in right_solutions:
        if not any(map(_fails, steps)):
            known.update(result for step in steps for result in _results(step))
    return known


def compare_with_gold(
    question: str, steps: Sequence[str], *, right: bool, known: set[Fraction], source: str = ""
) -> Example:
    """The example of one real solution, `right` telling whether its answer is the gold one."""
    shown = tuple(strip_marks(step) for step in steps)
    if right:
        good = next((at for at, step in enumerate(steps) if _fails(step)), len(steps))
        return Example(question, shown, (1.0,) * good + (None,) * (len(steps) - good), source)
    targets: list[float | None] = [None] * len(steps)
    verdicts = [_verdict(step, known) for step in steps]
    error = next((at for at, verdict in enumerate(verdicts) if verdict in CATALOG), None)
    if error is not None:
        wrong = verdicts[error] or FALSE
        targets[: error + 1] = [None if verdict is None else CATALOG[wrong] for verdict in verdicts[:error]] + [wrong]
    return Example(question, shown, tuple(targets), source)


def _verdict(step: str, known: set[Fraction]) -> float | None:
    """FALSE, UNKNOWN, 1.0 if all it computes is known, or None if it computes nothing."""
    if _fails(step):
        return FALSE
    results = _results(step)
    if not results:
        return None
    return 1.0 if known.issuperset(results) else UNKNOWN


def _fails(step: str) -> bool:
    return any(equation.verdict is False for equation in check_arithmetic(step))


def _results(step: str) -> list[Fraction]:
    return [equation.right for equation in check_arithmetic(step) if equation.right is not None]
