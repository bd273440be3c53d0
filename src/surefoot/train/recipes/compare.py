"""Real solutions labelled by their intermediate values: what a solution computes is looked for in the gold solution.

The rule: a false equation is wrong, for certain. A value that neither the question, nor the gold solution, nor any
other solution with the right answer knows is doubtful, and gets a soft target. A step that computes nothing says
nothing. A solution that arrives at the right answer counts as right.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from surefoot.arithmetic import check_arithmetic
from surefoot.expression import numbers_in
from surefoot.train.example import Example, strip_marks

DOUBTFUL = 0.1
"""The target of a step whose value nobody else knows, in a solution whose answer is wrong."""


def known_values(question: str, gold: str, right_solutions: Iterable[Sequence[str]] = ()) -> set[Fraction]:
    """Every value that a right solution of this question may compute."""
    known = {*numbers_in(question), *numbers_in(gold)}
    for steps in right_solutions:
        for step in steps:
            known |= {*_results(step)}
    return known


def compare_with_gold(
    question: str, steps: Sequence[str], *, right: bool, known: set[Fraction], source: str = ""
) -> Example:
    """The example of one real solution, `right` telling whether its answer is the gold one."""
    shown = tuple(strip_marks(step) for step in steps)
    if right:
        return Example(question, shown, (1.0,) * len(shown), source)
    targets: list[float | None] = []
    for step in steps:
        target = _target(step, known)
        targets.append(target)
        if target is not None and target < 1.0:
            break
    else:
        # Every value is known, and still the answer is wrong: somewhere a right number was taken for another thing.
        # The statement of the answer is wrong in any case; of the rest only what comes first is likely right.
        targets = [None] * (len(steps) - 1) + [DOUBTFUL]
    return Example(question, shown, (*targets, *[None] * (len(steps) - len(targets))), source)


def _target(step: str, known: set[Fraction]) -> float | None:
    equations = check_arithmetic(step)
    if any(equation.verdict is False for equation in equations):
        return 0.0
    results = _results(step)
    if not results:
        return None
    return 1.0 if known.issuperset(results) else DOUBTFUL


def _results(step: str) -> list[Fraction]:
    return [equation.right for equation in check_arithmetic(step) if equation.right is not None]
