"""Label real solutions by comparing the values they compute with those of the gold solution.

This evidence is weak, so the targets are soft. Measured on the incorrect solutions of MR-GSM8K, whose first errors were
annotated by people: a false equation was the first error in 103 of 114 cases; a value that is not in the gold solution,
in 144 of 310 (in 80 the error came later, in 86 earlier). Of the steps with known values before such a value, 4 in 5
were correct; before a false equation, 19 in 20. If every value is known but the answer is wrong, the example has no
targets: the last step was never the first error. A solution with the right answer counts as correct, up to its first
false equation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from surefoot.text.arithmetic.equations import check_arithmetic
from surefoot.text.arithmetic.expression import numbers_in
from surefoot.train.example import Example, strip_marks

FALSE = 0.0
"""Target of a step with a false equation."""
UNKNOWN = 0.3
"""Target of a step that computes an unknown value."""
KNOWN = {FALSE: 0.95, UNKNOWN: 0.8}
"""Target of a step with known values, by the kind of error that follows."""


def known_values(question: str, gold: str, right_solutions: Iterable[Sequence[str]] = ()) -> set[Fraction]:
    """Return every value that correct solutions compute, ignoring solutions with a false equation."""
    known = {*numbers_in(question), *numbers_in(gold)}
    for steps in right_solutions:
        if not any(map(_fails, steps)):
            known.update(result for step in steps for result in _results(step))
    return known


def compare_with_gold(
    question: str, steps: Sequence[str], *, right: bool, known: set[Fraction], source: str = ""
) -> Example:
    """Make an example from one real solution. `right` says whether its answer is the gold answer."""
    shown = tuple(strip_marks(step) for step in steps)
    if right:
        good = next((at for at, step in enumerate(steps) if _fails(step)), len(steps))
        return Example(question, shown, (1.0,) * good + (None,) * (len(steps) - good), source)
    targets: list[float | None] = [None] * len(steps)
    verdicts = [_verdict(step, known) for step in steps]
    error = next((at for at, verdict in enumerate(verdicts) if verdict in KNOWN), None)
    if error is not None:
        wrong = verdicts[error] or FALSE
        targets[: error + 1] = [None if verdict is None else KNOWN[wrong] for verdict in verdicts[:error]] + [wrong]
    return Example(question, shown, tuple(targets), source)


def _verdict(step: str, known: set[Fraction]) -> float | None:
    """Return FALSE, UNKNOWN, 1.0 if every computed value is known, or None if nothing is computed."""
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
