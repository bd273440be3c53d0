r"""Compare amounts: numbers with or without a unit.

A number without a unit equals the same number with any: GSM8K and MATH state `18` where a solution says `$18`,
`18 eggs` or `18 km`. Two amounts that both have a unit are converted: `5 km` equals `5000 m`, not `5 m`.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

from surefoot.text.answers import NUMBER, TEXT_COMMAND
from surefoot.text.numerals import MAX_CHARS, SCALES, read_based, read_number
from surefoot.text.unit_table import READINGS, Unit
from surefoot.text.units import Measure, alternatives, measured, nested, rate_of, read_measure
from surefoot.text.verdict import Verdict

_TEXT = re.compile(TEXT_COMMAND + r"\{([^{}\\]*)\}")
_SYMBOL = re.compile(r"(?P<sign>[+-]?)\s?(?:US|CA|AU)?(?P<symbol>[$€£¥₹])\s?(?P<rest>[+-]?.*)", re.DOTALL)
_DEGREES = re.compile(r"\s?\^\s?\{?\s?\\circ\s?\}?|\s?\\degree(?![A-Za-z])")
_EXPONENT = r"10\s?\^\s?(?:\{[^{}]*\}|[+-]?\d+)"
_BODY = re.compile(
    rf"[+-]?\s?(?:(?:\d+\s?)?\\frac\s?(?:\{{[^{{}}]*\}}\s?\{{[^{{}}]*\}}|\d\s?\d)|(?:\d+\s+)?{NUMBER}\s?/\s?{NUMBER}"
    rf"|\d[\d.,' \u202f]*?(?:\\times|\\cdot|[x*])\s?{_EXPONENT}|{_EXPONENT}"
    rf"|\d{{1,3}}(?:[ '\u202f]\d{{3}})+(?:\.\d+)?(?!\d)|\d{{1,3}}(?:\.\d{{3}})+,\d+"
    r"|\d*\.\d*(?:\\overline\s?\{\d+\}|\(\d+\)|\d\.\.\.)"
    rf"|\d{{1,2}}(?:,\d{{2}})+,\d{{3}}(?!\d)|{NUMBER})"
)
_AND = re.compile(r"\s?,?\s?(?:and\s)?")


_TRAILING = re.compile(
    rf"(?P<value>.*[^\s\\])\s?(?P<unit>{TEXT_COMMAND}\{{[^{{}}\\]*\}}(?:\s?\^\s?\{{?[23]\}}?)?|\s[A-Za-z]{{2,}}(?:/[A-Za-z]+)?(?:\^\{{?[23]\}}?)?)",
    re.DOTALL,
)


class Quantity(NamedTuple):
    """A number and what it measures."""

    number: Fraction
    measure: Measure


def read_quantity(text: str) -> Quantity | None:
    """Return the amount that a normalized answer states, or None if it is not one.

    >>> read_quantity("5 km").number
    Fraction(5, 1)
    """
    if len(text) > MAX_CHARS:
        return None
    marked = _TEXT.search(text) is not None
    text = " ".join(_DEGREES.sub("°", _TEXT.sub(r" \1 ", text)).replace("\\%", "%").split())
    symbol = ""
    if amount := _SYMBOL.fullmatch(text):
        if amount["sign"] and amount["rest"][:1] in ("+", "-"):
            return None
        symbol, text = amount["symbol"], amount["sign"] + amount["rest"]
    number = read_number(text)
    if number is not None:
        return _measured(number, "", marked, symbol)
    body = _BODY.match(text)
    if body is None:
        return None if symbol else _in_words(text)
    number = read_number(body.group())
    rest = text[body.end() :]
    if number is None:
        return None
    # Without a space, only a unit: `5km`, not `5x` or `5kids`.
    if attached := re.match(r"[^\W\d_]+", rest):
        word = attached.group()
        if word in ("k", "K"):
            return _measured(number * 1000, rest[1:], marked, symbol)
        if word not in READINGS or (len(word) < 2 and word != rest):
            return None
    return _measured(number, rest, marked, symbol)


def _in_words(text: str) -> Quantity | None:
    """Read number words before a unit: `five eggs`, `two and a half hours`."""
    words = text.split()
    for end in range(min(len(words) - 1, 6), 0, -1):
        number = read_number(" ".join(words[:end]))
        if number is not None and words[0].lower() not in ("a", "an"):
            return _measured(number, " ".join(words[end:]), False, "")
    return None


def _measured(number: Fraction, rest: str, marked: bool, symbol: str) -> Quantity | None:
    """Read what follows the number. `symbol` is the currency symbol before it."""
    rest = rest.strip()
    word, _, after = rest.partition(" ")
    while word.lower().removesuffix("s") in SCALES:
        number *= SCALES[word.lower().removesuffix("s")]
        word, _, after = (rest := after.strip()).partition(" ")
    if symbol:
        again = word in READINGS and READINGS[word][0].powers == READINGS[symbol][0].powers  # `$5 USD`
        rest = f"{symbol} {after if again else rest}"
    rest = re.sub(r"(?i)\bper\s?cent\b", "percent", rest)
    measure = read_measure(rest, marked=marked)
    if measure is not None:
        return Quantity(number, measure)
    return _compound(number, rest, marked)


def _compound(number: Fraction, rest: str, marked: bool) -> Quantity | None:
    """Read `2 h 30 min` and `5 ft 6 in`: each part is in a smaller unit of the same kind."""
    first = re.match(r"([A-Za-z]+)" + _AND.pattern + r"(?=\d)", rest)
    if first is None or first[1] not in READINGS:
        return None
    more = read_quantity(rest[first.end() :])
    (big, *_) = READINGS[first[1]]
    if more is None:
        return None
    for small in more.measure.units:
        if small.powers == big.powers and 0 < more.number * small.factor < big.factor and number >= 0:
            return Quantity(number + more.number * small.factor / big.factor, Measure((big,)))
    return None


def same_quantity(first: Quantity, second: Quantity) -> bool | None:
    """Return whether two amounts are equal, or None if that depends on the question.

    >>> same_quantity(read_quantity("5 km"), read_quantity("5000 m"))
    True
    """
    if first.measure.plain and second.measure.plain:
        return first.number == second.number
    if first.measure.plain or second.measure.plain:
        bare, other = (first, second) if first.measure.plain else (second, first)
        return _against_bare(bare.number, other)
    verdicts = {_same_in(first, one, second, other) for one in first.measure.units for other in second.measure.units}
    if True in verdicts:
        described = first.measure.words, second.measure.words
        return None if all(described) and described[0].isdisjoint(described[1]) else True
    return None if None in verdicts else False


def _against_bare(bare: Fraction, other: Quantity) -> bool | None:
    if bare == other.number:
        return None if other.measure.ambiguous else True
    if other.measure.percent:
        return bare == other.number / 100
    # The question may have asked for another unit: `120` for `2 hours`.
    for unit in other.measure.units:
        if unit.offset:
            kelvin = (other.number + unit.offset) * unit.factor
            if any(bare == kelvin / each.factor - each.offset for each in (READINGS["°C"][0], READINGS["°F"][0])):
                return None
    if bare and any(
        bare * factor == other.number * unit.factor
        for unit in other.measure.units
        for factor in alternatives(other.measure)
    ):
        return None
    return False


def _same_in(first: Quantity, one: Unit, second: Quantity, other: Unit) -> bool | None:
    if one.powers == other.powers:
        return (first.number + one.offset) * one.factor == (second.number + other.offset) * other.factor
    if first.number != second.number:
        return False
    if rate_of(one, other) or rate_of(other, one):
        return None
    return nested(one.powers, other.powers)


def split_unit(text: str) -> tuple[str, Measure | None]:
    r"""Split an expression from the unit after it: `2\sqrt{3}` and the measure of `cm`. Only known units are split."""
    match = _TRAILING.fullmatch(text)
    if match is None:
        return text, None
    inner = _TEXT.sub(r"\1", match["unit"]).strip()
    measure = read_measure(inner, marked=True)
    if measure is None or not all(measured(unit) for unit in measure.units):
        return text, None
    return match["value"], measure


def conversion(first: Measure, second: Measure) -> Fraction | None:
    """Return the factor from the unit of `second` to that of `first`, or None if they measure different things."""
    for one in first.units:
        for other in second.units:
            if one.powers == other.powers and one.offset == other.offset:
                return other.factor / one.factor
    return None


def same_based(first: str, second: str) -> Verdict | None:
    """Compare two answers if one of them states its base. Without it, `101` may have been meant as `101_2`."""
    one, other = read_based(first), read_based(second)
    if one is None and other is None:
        return None
    if one is not None and other is not None:
        return Verdict(one.value == other.value)
    based, text = (one, second) if one is not None else (other, first)
    assert based is not None
    number = read_number(text)
    if number is not None and number == based.value:
        return Verdict(True)
    return Verdict(None if text.upper() == based.digits else False)
