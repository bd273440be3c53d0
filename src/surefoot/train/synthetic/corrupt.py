"""Corrupt worked solutions, so that the first incorrect step is known exactly.

Invariant: every line before the error is identical to the gold line; the line with the error states a different number
for the same quantity; later lines propagate the error, as a person or a model would.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from surefoot.text.arithmetic.equations import check_arithmetic
from surefoot.text.arithmetic.expression import evaluate, number_value, numbers_in
from surefoot.train.synthetic.worked import (
    NUMBERS,
    Calculation,
    Line,
    Worked,
    carry,
    format_like,
    format_number,
    is_plain,
    mention,
    signs_at,
)

TRIES = 8
OTHER_SIGNS = {"+": "-*", "-": "+*", "*": "+/-", "x": "+/-", "×": "+/-", "/": "*-"}


@dataclass(frozen=True)
class Corrupted:
    """Lines with one error and its consequences."""

    lines: tuple[Line, ...]
    answer: str
    label: int
    """The line of the first error; the number of lines if only the stated answer is wrong."""
    kind: str


def corrupt(worked: Worked, kind: str, rng: random.Random) -> Corrupted | None:
    """Introduce one error of the given kind, or return None if the solution offers no place for it."""
    for _ in range(TRIES):
        found = RECIPES[kind](worked, rng)
        if found is not None:
            return found
    return None


def _operand(worked: Worked, rng: random.Random) -> Corrupted | None:
    """Use a wrong quantity in a calculation that is otherwise carried out correctly."""
    at, place, calculation = rng.choice(worked.calculations)
    if not calculation.visible:
        return None
    numbers = list(NUMBERS.finditer(calculation.expression))
    which = rng.randrange(len(numbers))
    old = number_value(numbers[which].group())
    choices = sorted({value for value in _known(worked, at) if value not in (old, 0, calculation.result)})
    if not choices:
        return None
    new = rng.choice(choices)
    expression = _replace_number(calculation.expression, which, new)
    visible = _replace_number(calculation.visible, which, new)
    return _recalculated(worked, at, place, calculation, expression, visible, "operand")


def _operation(worked: Worked, rng: random.Random) -> Corrupted | None:
    """Apply the wrong operation to the right quantities."""
    at, place, calculation = rng.choice(worked.calculations)
    if not calculation.visible:
        return None
    signs = signs_at(calculation.expression)
    if not signs:
        return None
    which = rng.randrange(len(signs))
    sign = rng.choice(OTHER_SIGNS[calculation.expression[signs[which]]])
    expression = _replace_at(calculation.expression, signs[which], sign)
    visible = _replace_at(calculation.visible, signs_at(calculation.visible)[which], sign)
    return _recalculated(worked, at, place, calculation, expression, visible, "operation")


def _slip(worked: Worked, rng: random.Random) -> Corrupted | None:
    """State a wrong result for the right calculation."""
    at, place, calculation = rng.choice(worked.calculations)
    new = _slipped(calculation.result, rng)
    shown = format_like(new, calculation.shown, money="$" in calculation.lead)
    judged = check_arithmetic(f"{calculation.expression} = {shown}")
    if not is_plain(new) or len(judged) != 1 or judged[0].verdict is not False:
        return None
    return _carried(worked, at, place, calculation, replace(calculation, shown=shown), "slip")


def _dropped(worked: Worked, rng: random.Random) -> Corrupted | None:
    """Skip a step: its result is replaced by one of its operands."""
    lines = worked.lines
    inner = [at for at, line in enumerate(lines[:-1]) if len(line.calculations) == 1]
    if not inner:
        return None
    gone = rng.choice(inner)
    calculation = lines[gone].calculations[0][1]
    result = calculation.result
    others = [part.result for at, _, part in worked.calculations if at != gone]
    operands = [value for value in numbers_in(calculation.expression) if value not in (result, 0, 1)]
    if result in numbers_in(worked.question) or result in others or not operands:
        return None
    changed = {result: rng.choice(operands)}
    return _rewritten(worked, lines[:gone], lines[gone + 1 :], changed, "dropped")


def _swapped(worked: Worked, rng: random.Random) -> Corrupted | None:
    """Swap two quantities of the question."""
    results = {part.result for *_, part in worked.calculations}
    used = {value for *_, part in worked.calculations for value in numbers_in(part.expression)}
    choices = sorted((used & set(numbers_in(worked.question))) - results - {Fraction(0)})
    if len(choices) < 2:
        return None
    a, b = rng.sample(choices, 2)
    return _rewritten(worked, (), worked.lines, {a: b, b: a}, "swapped")


def _answer(worked: Worked, rng: random.Random) -> Corrupted | None:
    """State a wrong answer after correct steps."""
    right = number_value(worked.answer)
    results = {part.result for *_, part in worked.calculations} - {right, Fraction(0)}
    new = rng.choice(sorted(results)) if results and rng.random() < 0.7 else _slipped(right, rng)
    if new == right or not is_plain(new):
        return None
    return Corrupted(worked.lines, format_like(new, worked.answer, money=False), len(worked.lines), "answer")


RECIPES: dict[str, Callable[[Worked, random.Random], Corrupted | None]] = {
    "operand": _operand,
    "operation": _operation,
    "slip": _slip,
    "dropped": _dropped,
    "swapped": _swapped,
    "answer": _answer,
}
KINDS = tuple(RECIPES)


def _known(worked: Worked, at: int) -> list[Fraction]:
    """Return the numbers that are available to a solver on this line."""
    earlier = [part.result for line, _, part in worked.calculations if line < at]
    return [value for value in numbers_in(worked.question) + earlier if is_plain(value)]


def _replace_number(expression: str, which: int, new: Fraction) -> str:
    match = list(NUMBERS.finditer(expression))[which]
    before = expression[: match.start()]
    return before + format_like(new, match.group(), money=before.endswith("$")) + expression[match.end() :]


def _replace_at(text: str, at: int, new: str) -> str:
    return text[:at] + new + text[at + 1 :]


def _recalculated(
    worked: Worked, at: int, place: int, old: Calculation, expression: str, visible: str, kind: str
) -> Corrupted | None:
    value = evaluate(expression)
    if value is None or not is_plain(value) or value == old.result or evaluate(old.expression) == value:
        return None
    shown = format_like(value, old.shown, money="$" in old.lead)
    return _carried(worked, at, place, old, Calculation(visible, old.lead, expression, shown), kind)


def _carried(worked: Worked, at: int, place: int, old: Calculation, new: Calculation, kind: str) -> Corrupted | None:
    """Replace the calculation, and propagate the change to everything after it."""
    line = worked.lines[at]
    changed = {old.result: new.result}
    before = mention(line.parts[:place], old, new)
    first = carry(Line((*before, new, *line.parts[place + 1 :])), changed, place + 1)
    rest = _carry_all(worked.lines[at + 1 :], changed)
    if first is None or rest is None:
        return None
    return Corrupted((*worked.lines[:at], first, *rest), _answer_after(worked, changed), at, kind)


def _rewritten(
    worked: Worked, kept: Sequence[Line], lines: Sequence[Line], changed: dict[Fraction, Fraction], kind: str
) -> Corrupted | None:
    """Rewrite the lines with the changed numbers; the first affected line must get a different result.

    The words of that line are kept: "5 days" next to a calculation with 3 is wrong, but "3 days" might be true.
    """
    new = _carry_all(lines, changed, spoiled=False)
    if new is None:
        return None
    first = next((at for at, (a, b) in enumerate(zip(lines, new, strict=True)) if a.text != b.text), None)
    if first is None:
        return None
    before, after = lines[first].calculations, new[first].calculations
    if not after or after[-1][1].result == before[-1][1].result or not is_plain(after[-1][1].result):
        return None
    return Corrupted((*kept, *new), _answer_after(worked, changed), len(kept) + first, kind)


def _answer_after(worked: Worked, changed: dict[Fraction, Fraction]) -> str:
    answer = changed.get(number_value(worked.answer))
    return worked.answer if answer is None else format_like(answer, worked.answer, money=False)


def _carry_all(lines: Sequence[Line], changed: dict[Fraction, Fraction], *, spoiled: bool = True) -> list[Line] | None:
    new = []
    for line in lines:
        carried = carry(line, changed, words=spoiled)
        if carried is None:
            return None
        spoiled = spoiled or carried.text != line.text
        new.append(carried)
    return new


def _slipped(value: Fraction, rng: random.Random) -> Fraction:
    """Return a number that results from a careless mistake."""
    ways = [value + 1, value - 1, value * 10, value / 10]
    if value >= 20:
        ways += [value + 10, value - 10]
    digits = format_number(value)
    if digits.isdigit() and len(digits) > 1:
        at = rng.randrange(len(digits) - 1)
        ways.append(Fraction(digits[:at] + digits[at + 1] + digits[at] + digits[at + 2 :]))
        at = rng.randrange(len(digits))
        ways.append(Fraction(digits[:at] + rng.choice("123456789") + digits[at + 1 :]))
    return rng.choice(ways)
