"""Check the equations in a text exactly: each is true, false or undecided.

Invariant: an equation is called false only if it was understood completely. A variable, a word that changes a value
(half, dozen), a unit conversion or an unknown operation makes it undecided. Numbers are fractions, nothing is passed to
`eval`, and the time is linear in the length of any text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from surefoot.text.arithmetic.expression import LONGEST_RUN, CannotTell, Parser, Token, joins, number_value, tokens_of
from surefoot.text.arithmetic.operands import Side, closing_side, is_bare, opening_side
from surefoot.text.arithmetic.words import CHANGING, MEASURES, MONEY, ROUNDING

PRINTED_DECIMALS = 10
"""A number with this many decimals was printed by a program, which computes with about sixteen digits."""
FLOAT_NOISE = Fraction(1, 10**9)
LOOKS_ROUNDED = re.compile(r"\.\d*(?:33|66|67|17|83|43|57|29|71|14|86|11|22|44|56|78|89)\d?$")


@dataclass(frozen=True)
class Equation:
    """An equation in the text, at `text[start:end]`, with the values of its two sides."""

    start: int
    end: int
    left: Fraction | None
    right: Fraction | None
    verdict: bool | None
    """True, False, or None if undecided."""


def check_arithmetic(text: str, tokens: Sequence[Token] | None = None) -> tuple[Equation, ...]:
    """Return every equation with a number on both sides, in order. Pass `tokens` if the text is already tokenized."""
    found: list[Equation] = []
    segment: list[Token] = []
    segments: list[list[Token]] = []
    signs: list[Token] = []
    for token in tokens_of(text) if tokens is None else tokens:
        if token.kind == "mark":
            inner = check_arithmetic(token.text[2:-2])
            shift = token.start + 2
            found += [Equation(e.start + shift, e.end + shift, e.left, e.right, e.verdict) for e in inner]
        elif token.kind in ("equals", "approx"):
            segments.append(segment)
            signs.append(token)
            segment = []
        else:
            segment.append(token)
    segments.append(segment)
    for sign, (before, after) in zip(signs, pairwise(segments), strict=True):
        left = closing_side(before)
        right = opening_side(after) if left is not None else None
        if left is not None and right is not None:
            found.append(_judge(text, left, right, approximate=sign.kind == "approx"))
    return tuple(sorted(found, key=lambda equation: (equation.start, equation.end)))


def _judge(text: str, left: Side, right: Side, *, approximate: bool) -> Equation:
    start, end = left.tokens[0].start, right.tokens[-1].end
    a, b = _value(left), _value(right)
    unsure = Equation(start, end, a, b, None)
    if a is None or b is None or left.doubtful or right.doubtful:
        return unsure
    words = {*left.words, *right.words}
    if not CHANGING.isdisjoint(words):
        return unsure
    if any(_agree(x, y, right) for x, y in _readings(left, right)):
        return Equation(start, end, a, b, True)
    words |= {*right.trailing}
    if left.hazy or right.hazy or "of" in words or not CHANGING.isdisjoint(words):
        return unsure
    if any(_is_code(token) for side in (left, right) for token in side.tokens) or _is_ambiguous(left.tokens):
        return unsure
    rounds = approximate or not ROUNDING.isdisjoint(words)
    if rounds:
        near = a != 0 and abs(a - b) <= abs(a) / 20 + 1
        return Equation(start, end, a, b, True if _rounded(a, right) else None if near else False)
    bare = is_bare(left.tokens) and is_bare(right.tokens)
    money = "$" in text[max(0, start - 2) : end]
    measures = {MEASURES[word] for word in words if word in MEASURES} | ({"dollar"} if money else set())
    # "3 weeks = 21 days", "2 dollars - 50 cents" and "3 pens + 1 ruler = $4" take more than arithmetic.
    if len(measures) > 1 or (bare and (words or money)) or (left.words and _is_single(left.tokens)):
        return unsure
    if left.words and measures <= MONEY and _is_priced(text, left, right):
        return unsure
    close = abs(a - b) <= max(abs(a), abs(b)) / 50
    if close and any(token.kind == "number" and LOOKS_ROUNDED.search(token.text) for token in left.tokens):
        return unsure
    # "1/3 = 33%", "1/3 * 100 = 33%"
    if right.tokens[-1].kind == "percent" and (abs(a - b) <= Fraction(1, 200) or abs(a - 100 * b) <= Fraction(1, 2)):
        return unsure
    return Equation(start, end, a, b, False)


def _readings(left: Side, right: Side) -> list[tuple[Fraction, Fraction]]:
    """Return the values of both sides, reading 20% as 0.2 and as 20: people write both."""
    hundredth, one = Fraction(1, 100), Fraction(1)
    pairs = [(hundredth, hundredth)]
    if any(token.kind == "percent" for token in (*left.tokens, *right.tokens)):
        pairs += [(one, one), (hundredth, one)]
    values = [(_value(left, p), _value(right, q)) for p, q in pairs]
    return [(a, b) for a, b in values if a is not None and b is not None]


def _value(side: Side, percent: Fraction = Fraction(1, 100)) -> Fraction | None:
    if len(side.tokens) > LONGEST_RUN:
        return None
    try:
        return Parser(side.tokens, percent).whole()
    except CannotTell:
        return None


def _agree(a: Fraction, b: Fraction, right: Side) -> bool:
    """Whether the values are equal, or equal to the precision of the right side's decimals."""
    if a == b:
        return True
    numbers = [token.text for token in right.tokens if token.kind == "number"]
    if len(numbers) != 1 or "." not in numbers[0]:
        return False
    decimals = len(numbers[0].split(".")[1])
    if decimals >= PRINTED_DECIMALS and abs(a - b) <= abs(a) * FLOAT_NOISE:
        return True
    step = Fraction(1, 10**decimals)
    if any(token.kind == "percent" for token in right.tokens) and abs(b) < abs(number_value(numbers[0])):
        step /= 100
    # Truncation instead of rounding is tolerated too, but only if digits are missing.
    return (a / step).denominator != 1 and (abs(a - b) <= step / 2 or (0 < abs(a) - abs(b) < step and a * b >= 0))


def _rounded(a: Fraction, right: Side) -> bool:
    """Whether the right side is a rounding of `a`: within one unit of its last non-zero digit."""
    numbers = [token.text for token in right.tokens if token.kind == "number"]
    if len(numbers) != 1:
        return False
    whole, _, decimals = numbers[0].partition(".")
    value = number_value(numbers[0])
    if decimals:
        unit = Fraction(1, 10 ** len(decimals))
    else:
        digits = "".join(char for char in whole if char.isdigit())
        unit = Fraction(10 ** (len(digits) - len(digits.rstrip("0")))) if digits.strip("0") else Fraction(1)
    return any(abs(a - candidate) <= unit for candidate in (value, -value, value / 100))


def _is_single(tokens: Sequence[Token]) -> bool:
    """Whether this is one number or one fraction: "1/2 banana", but not "45 minutes / 8 students"."""
    return len(tokens) == 1 or (len(tokens) == 3 and tokens[1].text == "/" and tokens[0].end == tokens[1].start)


def _is_priced(text: str, left: Side, right: Side) -> bool:
    """Whether the left side counts things and the right side is money."""
    start, middle, end = left.tokens[0].start, left.tokens[-1].end, right.tokens[-1].end
    paid = "$" in text[middle:end] or any(MEASURES.get(word) in MONEY for word in right.trailing)
    counted = "$" not in text[max(0, start - 2) : middle] and MONEY.isdisjoint(
        MEASURES.get(word) for word in left.words
    )
    return paid and counted and all(token.text in ("+", "-", "−", "–") for token in left.tokens if joins(token))


def _is_ambiguous(tokens: Sequence[Token]) -> bool:
    """Whether the notation has a second meaning: "50 + 10%" (55), "16x2" (16x²), "2\\frac13" (2/3)."""
    for at in range(1, len(tokens)):
        before, token, after = tokens[at - 1], tokens[at], tokens[at + 1 : at + 3]
        glued = before.end == token.start
        if token.kind == "frac" and glued and before.kind == "number":
            return True
        if token.text == "x" and glued and after and token.end == after[0].start and after[0].text in ("2", "3"):
            return True
        added = token.text in ("+", "-", "−", "–") and before.kind == "number"
        if added and len(after) == 2 and after[1].kind == "percent":
            return True
    return False


def _is_code(token: Token) -> bool:
    """Whether the token is a code with a leading zero, such as the time 0730."""
    return token.kind == "number" and len(token.text) > 1 and token.text[0] == "0" and token.text[1].isdigit()
