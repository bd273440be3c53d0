r"""Read numbers exactly: digits with separators, fractions, mixed numbers, powers of ten, bases and number words.

Invariant: a value is a `Fraction`, never rounded. A text with two readings, such as `1,5`, is not a number. The text
has to be normalized by `text.latex` first: no `\dfrac`, no Unicode minus sign, no `\,`.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

from surefoot.text.answers import NUMBER

MAX_CHARS = 300  # keeps hostile digits cheap, and is below any limit that can be set for int()

_GROUPED = re.compile(
    r"\d{1,3}(?:[ '\u2019\u202f\u00a0]\d{3})+(?:\.\d+)?"  # 1 234.5
    r"|\d{1,2}(?:,\d{2})+,\d{3}(?:\.\d+)?"  # 12,34,567
)
_CONTINENTAL = re.compile(
    r"\d{1,3}(?:\.\d{3})+,\d+|\d{1,3}(?:\.\d{3}){2,}"
)  # 1.234,5: its points are no decimal points
_QUOTIENT = re.compile(rf"(?:(?P<whole>\d+)\s+)?(?P<top>{NUMBER})\s?/\s?(?P<bottom>{NUMBER})|(?P<only>{NUMBER})")
_FRAC = re.compile(
    rf"(?P<whole>\d+)?\s?\\frac\s?(?:\{{\s?(?P<top>[+-]?{NUMBER})\s?\}}\s?\{{\s?(?P<bottom>[+-]?{NUMBER})\s?\}}"
    r"|(?P<digits>\d\s?\d))"
)
_POWER_OF_TEN = re.compile(
    rf"(?:(?P<factor>{NUMBER})\s?(?:\\times|\\cdot|[x*])\s?)?10\s?\^\s?(?:\{{\s?(?P<braced>[+-]?\d{{1,3}})\s?\}}|(?P<bare>[+-]?\d{{1,3}}))"
)
_REPEATING = re.compile(
    r"(?P<whole>\d*)\.(?P<fixed>\d*)(?:\\overline\s?\{\s?(?P<line>\d+)\s?\}|\((?P<round>\d+)\))"
    r"|(?P<before>\d*)\.(?P<start>\d*?)(?P<digit>\d)(?P=digit)+\.\.\."
)
_BASED = re.compile(
    r"(?P<digits>[0-9A-Za-z]{1,64})\s?_\s?(?:\{\s?(?P<braced>[0-9a-z]+)\s?\}|(?P<bare>\d{1,2}))|0x(?P<hex>[0-9A-Fa-f]{1,64})"
)

SCALES = {
    "dozen": 12, "hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12,
}  # fmt: skip
_ONES: dict[str, int] = dict(zip(
    ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
     "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"), range(20), strict=True
))  # fmt: skip
_TENS = {
    "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90,
}  # fmt: skip
_PARTS = {"half": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "eighth": 8, "tenth": 10}
_PARTS |= {"halves": 2} | {name + "s": value for name, value in _PARTS.items() if name != "half"}
_ORDINAL = re.compile(r"(\d+)(?:st|nd|rd|th)")
_NEGATIVE = frozenset(("negative", "minus"))


class Based(NamedTuple):
    """A numeral with its base."""

    digits: str
    base: int
    value: Fraction


def read_number(text: str) -> Fraction | None:
    """Return the value of a plain number, or None if this is not one.

    >>> read_number("1 1/2")
    Fraction(3, 2)
    """
    text = text.strip()
    if not text or len(text) > MAX_CHARS:
        return None
    sign = 1
    if text[0] in "+-":
        sign, text = (-1 if text[0] == "-" else 1), text[1:].lstrip()
    value = _unsigned(text)
    return None if value is None else sign * value


def read_based(text: str) -> Based | None:
    """Return a numeral that states its base (`101_2`, `FF_{16}`, `0xFF`), or None. Invalid digits are not a number."""
    match = _BASED.fullmatch(text)
    if match is None:
        return None
    if match["hex"]:
        return Based(match["hex"].upper(), 16, Fraction(int(match["hex"], 16)))
    named = match["braced"] or match["bare"]
    base = int(named) if named.isdecimal() and len(named) < 3 else _ONES.get(named, 0)
    try:
        return Based(match["digits"].upper(), base, Fraction(int(match["digits"], base))) if base > 1 else None
    except ValueError:
        return None


def _unsigned(text: str) -> Fraction | None:
    if text[:1].isalpha():
        return _words(text)
    if _GROUPED.fullmatch(text):
        return Fraction(re.sub(r"[^\d.]", "", text))
    if _CONTINENTAL.fullmatch(text):
        return Fraction(text.replace(".", "").replace(",", "."))
    if repeating := _REPEATING.fullmatch(text):
        return _repeating(repeating)
    if power := _POWER_OF_TEN.fullmatch(text):
        factor = _decimal(power["factor"]) if power["factor"] else Fraction(1)
        return factor * Fraction(10) ** int(power["braced"] or power["bare"])
    if quotient := _FRAC.fullmatch(text) or _QUOTIENT.fullmatch(text):
        return _quotient(quotient.groupdict())
    if ordinal := _ORDINAL.fullmatch(text):
        return Fraction(ordinal[1])
    number, _, rest = text.partition(" ")
    words = rest.lower().split()
    if words and all(word.removesuffix("s") in SCALES for word in words):
        return _times(_unsigned(number), words)
    if words[:1] == ["and"] and number.isdecimal():
        part = _words(" ".join(words[1:]))
        return Fraction(number) + part if part is not None and part < 1 else None
    return None


def _times(number: Fraction | None, scales: list[str]) -> Fraction | None:
    for scale in scales:
        number = None if number is None else number * SCALES[scale.removesuffix("s")]
    return number


def _quotient(parts: dict[str, str | None]) -> Fraction | None:
    if only := parts.get("only"):
        return None if only.startswith("0,") else _decimal(only)  # `0,111` has a decimal comma
    digits = (parts.get("digits") or "").replace(" ", "")
    top, bottom = (digits[0], digits[1]) if digits else (parts["top"] or "", parts["bottom"] or "")
    # A sign inside a mixed number is ambiguous, and a zero denominator has no value.
    if not _decimal(bottom) or (parts["whole"] and not (top + bottom).isalnum()):
        return None
    return int(parts["whole"] or 0) + _decimal(top) / _decimal(bottom)


def _repeating(match: re.Match[str]) -> Fraction:
    whole, fixed = match["whole"] or match["before"] or "0", match["fixed"] or match["start"] or ""
    period = match["line"] or match["round"] or match["digit"]
    scale = Fraction(1, 10 ** len(fixed))
    return int(whole) + int(fixed or 0) * scale + Fraction(int(period), 10 ** len(period) - 1) * scale


def _words(text: str) -> Fraction | None:
    """Return the value of number words: `twenty-five`, `one hundred and twenty`, `three quarters`, `2 and a half`."""
    words = re.sub(r"[-,]", " ", text.lower()).split()
    if len(words) > 1 and words[0] in _NEGATIVE:
        value = read_number(" ".join(words[1:]))
        return None if value is None else -value
    if not words or len(words) > 20:
        return None
    if words[-1] in _PARTS and len(words) > 1:
        return _fraction_words(words)
    return _whole_words(words)


def _fraction_words(words: list[str]) -> Fraction | None:
    before, bottom = words[:-1], _PARTS[words[-1]]
    whole: Fraction | None = Fraction(0)
    if "and" in before:
        at = len(before) - 1 - before[::-1].index("and")
        whole, before = _whole_words(before[:at]), before[at + 1 :]
    top = Fraction(1) if before in (["a"], ["an"], ["one"]) else _whole_words(before)
    return None if whole is None or top is None else whole + top / bottom


def _whole_words(words: list[str]) -> Fraction | None:
    if words[:1] in (["a"], ["an"]) and len(words) > 1 and words[1] in SCALES:
        words = ["one", *words[1:]]
    total = group = 0
    last = 10**15  # within a group, each word has to be smaller than the one before
    for at, word in enumerate(words):
        if word in _TENS and last > 90:
            group, last = group + _TENS[word], 10
        elif word in _ONES and (last > _ONES[word] if last <= 10 else True) and last > 1:
            group, last = group + _ONES[word], 1
        elif word == "hundred" and 0 < group < 100:
            group, last = group * 100, 100
        elif word in SCALES and group:
            total, group, last = total + group * SCALES[word], 0, 10**15
        elif word != "and" or not 0 < at < len(words) - 1:
            return None
    return Fraction(total + group) if words else None


def _decimal(number: str) -> Fraction:
    return Fraction(number.replace(",", ""))
