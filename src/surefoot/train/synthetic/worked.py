"""Parse a worked solution: lines of text with annotated calculations, as in GSM8K: `48/2 = <<48/2=24>>24`.

Invariant: a solution is used only if it is fully consistent, so that labels derived from it are exact: every annotation
evaluates to its result, the text agrees with the annotation, and no equation in the text is false. GSM8K: MIT licence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from surefoot.text.arithmetic.equations import check_arithmetic
from surefoot.text.arithmetic.expression import NUMBER, evaluate, number_value, numbers_in

MARK = re.compile(rf"<<([^<>\n=]*)=([^<>\n=]*)>>({NUMBER})?")
SHOWN_BEFORE = re.compile(r"((?:\.(?=\d)|[\d($])[\d\s+\-*/x×().,$%]{0,200}?)(\s*=\s*\$?\s*)$")
NUMBERS = re.compile(NUMBER)
PLACES = 2


@dataclass(frozen=True)
class Calculation:
    """A calculation in the text (`visible` + `lead` + `shown`: `48/2`, ` = $`, `24`) and its annotated expression."""

    visible: str
    """The expression as written in the text; empty if the text does not show it."""
    lead: str
    expression: str
    shown: str

    @property
    def result(self) -> Fraction:
        """The value of the result shown."""
        return number_value(self.shown)

    @property
    def text(self) -> str:
        """The calculation as written in the line."""
        return f"{self.visible}{self.lead}{self.shown}"


@dataclass(frozen=True)
class Line:
    """A line of text and calculations."""

    parts: tuple[str | Calculation, ...]

    @property
    def text(self) -> str:
        """The line without annotations."""
        return "".join(part if isinstance(part, str) else part.text for part in self.parts)

    @property
    def calculations(self) -> list[tuple[int, Calculation]]:
        """The calculations, each with its index among the parts."""
        return [(at, part) for at, part in enumerate(self.parts) if isinstance(part, Calculation)]


@dataclass(frozen=True)
class Worked:
    """A question, the lines of its solution, and the answer."""

    question: str
    lines: tuple[Line, ...]
    answer: str

    @property
    def calculations(self) -> list[tuple[int, int, Calculation]]:
        """All calculations (at least one), each with its line number and its index among the line's parts."""
        return [(at, place, part) for at, line in enumerate(self.lines) for place, part in line.calculations]


def parse_worked(question: str, answer: str) -> Worked | None:
    """Parse a GSM8K row; None if it is not fully consistent."""
    body, mark, final = answer.rpartition("####")
    final = final.strip().lstrip("$")
    if not mark or not NUMBERS.fullmatch(final):
        return None
    lines = []
    for text in body.splitlines():
        if text.strip():
            line = _parse_line(text.strip())
            if line is None or any(equation.verdict is False for equation in check_arithmetic(line.text)):
                return None
            lines.append(line)
    calculations = [part for line in lines for _, part in line.calculations]
    if not calculations or calculations[-1].result != number_value(final):
        return None
    return Worked(question.strip(), tuple(lines), final)


def _parse_line(text: str) -> Line | None:
    parts: list[str | Calculation] = []
    at = 0
    for match in MARK.finditer(text):
        expression, result, shown = match.groups()
        value, stated = evaluate(expression), evaluate(result)
        if value is None or stated is None or not shown or number_value(shown) != stated:
            return None
        if format_number(value) != format_number(stated):
            return None
        before = text[at : match.start()]
        visible, lead = "", ""
        found = SHOWN_BEFORE.search(before)
        if found and numbers_in(found[1]) == numbers_in(expression) and _signs(found[1]) == _signs(expression):
            visible, lead = found[1], found[2]
            before = before[: found.start()]
        parts += [before, Calculation(visible, lead, expression, shown)]
        at = match.end()
    tail = text[at:]
    if "<<" in tail or ">>" in tail:
        return None
    return Line((*parts, tail))


def signs_at(expression: str) -> list[int]:
    """Return the positions of the operators in an expression."""
    return [at for at, char in enumerate(expression) if char in "+-*/x×"]


def _signs(expression: str) -> list[str]:
    return ["*" if expression[at] in "x×" else expression[at] for at in signs_at(expression)]


def format_number(value: Fraction) -> str:
    """Format a number as people write it: an integer, or up to two decimals."""
    if value.denominator == 1:
        return str(value.numerator)
    scaled = round(value * 10**PLACES)
    sign, digits = ("-" if scaled < 0 else ""), str(abs(scaled)).rjust(PLACES + 1, "0")
    return f"{sign}{digits[:-PLACES]}.{digits[-PLACES:]}".rstrip("0").rstrip(".")


def format_like(value: Fraction, old: str, *, money: bool) -> str:
    """Format a number like the one it replaces: with commas if that has them, and with two digits for cents.

    The format must not reveal which number was inserted.
    """
    whole, _, rest = format_number(value).partition(".")
    decimals = old.partition(".")[2]
    if (rest or decimals) if money else decimals.endswith("0"):
        rest = rest.ljust(PLACES, "0")
    if "," in old:
        whole = f"{int(whole):,}"
    return f"{whole}.{rest}" if rest else whole


def is_plain(value: Fraction) -> bool:
    """Whether the number is positive, plausible in size, and can be written without rounding."""
    return value > 0 and (value * 10**PLACES).denominator == 1 and value < 10**7


def swap_numbers(text: str, changed: Mapping[Fraction, Fraction]) -> str:
    """Replace every changed number in the text with its new value."""

    def new(match: re.Match[str]) -> str:
        old = match.group()
        value = _short_value(old)
        if value is None or value not in changed:
            return old
        return format_like(changed[value], old, money=text[: match.start()].endswith("$"))

    return NUMBERS.sub(new, text)


def _short_value(text: str) -> Fraction | None:
    try:
        return number_value(text)
    except ValueError:
        return None


def carry(line: Line, changed: dict[Fraction, Fraction], start: int = 0, *, words: bool = True) -> Line | None:
    """Rewrite the line for the changed numbers, and add the new results to `changed`.

    Parts before `start` are kept. Without `words`, the changed numbers are used only in calculations, and the text gets
    only the new results of this line. None if a calculation is no longer possible.
    """
    parts: list[str | Calculation] = list(line.parts[:start])
    results: dict[Fraction, Fraction] = {}
    for part in line.parts[start:]:
        if isinstance(part, str):
            parts.append(swap_numbers(part, changed if words else results))
            continue
        expression, visible = swap_numbers(part.expression, changed), swap_numbers(part.visible, changed)
        value = evaluate(expression)
        if value is None or value < 0:
            return None
        shown = part.shown if expression == part.expression else format_like(value, part.shown, money="$" in part.lead)
        for known in (changed, results):
            if number_value(shown) == part.result:
                known.pop(part.result, None)
            else:
                known[part.result] = number_value(shown)
        new = Calculation(visible, part.lead, expression, shown)
        parts = [*mention(parts, part, new), new]
    return Line(tuple(parts))


def mention(parts: Sequence[str | Calculation], old: Calculation, new: Calculation) -> list[str | Calculation]:
    """Update the text before a calculation, which may already name its result: "He has 12 eggs because 3 * 4 = 12"."""
    if old.result == new.result or old.result in numbers_in(old.expression):
        return list(parts)
    return [swap_numbers(part, {old.result: new.result}) if isinstance(part, str) else part for part in parts]
