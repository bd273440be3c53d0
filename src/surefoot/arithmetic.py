"""The equations in a text, worked out exactly: true, false, or not to be told.

The rule: `false` is said only of an equation that was understood whole. A variable, a word that changes a value (half,
dozen), a change of units, an operation not known here: each makes it "cannot tell". Numbers are fractions, nothing is
handed to `eval`, and the time is linear in the text, whatever the text is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from surefoot.expression import (
    CLOSING,
    LONGEST_RUN,
    OPENING,
    CannotTell,
    Parser,
    Token,
    closes,
    is_expression,
    joins,
    number_value,
    opens,
    tokens_of,
)


def _set_of(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Words that change the value of the number beside them.
CHANGING = _set_of(
    "half halves third thirds quarter quarters fourth fourths fifth fifths sixth sixths eighth eighths tenth tenths "
    "twice thrice double doubled triple tripled quadruple dozen dozens hundred hundreds thousand thousands million "
    "millions billion billions trillion percent pct squared cubed less fewer more st nd rd th am pm minus plus times "
    "divided multiplied k m"
)
# Words that measure: two different ones in an equation mean a conversion.
MEASURES = {
    name: kind
    for kind, names in {
        "cent": "cent cents penny pennies", "nickel": "nickel nickels", "dime": "dime dimes",
        "dollar": "dollar dollars buck bucks", "second": "second seconds sec secs", "minute": "minute minutes min mins",
        "hour": "hour hours hr hrs", "day": "day days", "week": "week weeks", "month": "month months",
        "year": "year years", "inch": "inch inches", "foot": "foot feet ft", "yard": "yard yards",
        "mile": "mile miles", "gram": "gram grams", "kilogram": "kilogram kilograms kg", "pound": "pound pounds lb lbs",
        "ounce": "ounce ounces oz", "meter": "meter meters metre metres", "centimeter": "centimeter centimeters cm",
        "kilometer": "kilometer kilometers km", "millimeter": "millimeter millimeters mm", "cup": "cup cups",
        "quart": "quart quarts", "pint": "pint pints", "gallon": "gallon gallons", "liter": "liter liters",
        "milliliter": "milliliter milliliters ml", "quarter": "quarter quarters", "decade": "decade decades",
    }.items()
    for name in names.split()
}  # fmt: skip
ROUNDING = _set_of("about approximately roughly around rounded rounding round nearest approx")
LOOKS_ROUNDED = re.compile(r"\.\d*(?:33|66|67|17|83|43|57|29|71|14|86|11|22|44|56|78|89)\d?$")


@dataclass(frozen=True)
class Equation:
    """Two sides with an equals sign between them: `text[start:end]`."""

    start: int
    end: int
    left: Fraction | None
    right: Fraction | None
    verdict: bool | None
    """True, False, or None: cannot tell."""


@dataclass(frozen=True)
class _Side:
    """One side of an equals sign: its tokens, and whether something beside them makes it doubtful."""

    tokens: Sequence[Token]
    words: tuple[str, ...]
    doubtful: bool
    trailing: tuple[str, ...] = ()


class _Run(NamedTuple):
    """An expression in a segment: from where to where, its tokens, and the units in it."""

    first: int
    end: int
    tokens: list[Token]
    words: list[tuple[int, str]]
    """Each word with the number of tokens before it."""
    doubtful: bool


def check_arithmetic(text: str) -> tuple[Equation, ...]:
    """Every equation of the text that has a number on both sides, in order."""
    found: list[Equation] = []
    segment: list[Token] = []
    segments: list[list[Token]] = []
    signs: list[Token] = []
    for token in tokens_of(text):
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
    sides = [(_opening_side(segment), _closing_side(segment)) for segment in segments]
    for sign, ((_, left), (right, _)) in zip(signs, pairwise(sides), strict=True):
        if left is not None and right is not None:
            found.append(_judge(text, left, right, approximate=sign.kind == "approx"))
    return tuple(sorted(found, key=lambda equation: (equation.start, equation.end)))


# --- from text to sides -------------------------------------------------------------------------------------------


def _runs(segment: list[Token]) -> list[_Run]:
    """The expressions of a segment, in order."""
    runs: list[_Run] = []
    at = 0
    while at < len(segment):
        if not is_expression(segment[at]):
            at += 1
            continue
        first, doubtful = at, False
        tokens: list[Token] = []
        words: list[tuple[int, str]] = []
        end = at
        while at < len(segment):
            token = segment[at]
            before = tokens[-1] if tokens else None
            after = segment[at + 1] if at + 1 < len(segment) else None
            if token.kind == "word":
                if _is_times(segment, at) and (closes(before) or (tokens and end == at)):
                    tokens.append(Token("times", token.text, token.start, token.end))
                    at += 1
                    continue
                if _words(token.text) == ["of"] and closes(before) and _is_share(tokens) and opens(after):
                    tokens.append(Token("times", token.text, token.start, token.end))
                    at += 1
                    continue
                stop = _end_of_unit(segment, at)
                follower = segment[stop] if stop < len(segment) else None
                goes_on = follower is None or joins(follower) or follower.text in CLOSING or _is_times(segment, stop)
                if not closes(before) or not goes_on:
                    break
                unit = segment[at:stop]
                doubtful = doubtful or (unit[0].start == (before.end if before else -1) and len(unit[0].text) == 1)
                words += [(len(tokens), word) for token in unit for word in _words(token.text)]
                at = end = stop
                continue
            if not is_expression(token):
                break
            per_unit = token.text == "/" and after is not None and after.kind == "word" and after.start == token.end
            if per_unit and after is not None and len(after.text) > 1 and tokens:
                words += [(len(tokens), word) for word in _words(after.text)]
                at = end = at + 2
                continue
            tokens.append(token)
            at = end = at + 1
        runs.append(_Run(first, end, tokens, words, doubtful))
        at = max(at, end, first + 1)
    return runs


def _is_times(segment: list[Token], at: int) -> bool:
    """Whether the letter x stands where a sign should."""
    return segment[at].text in ("x", "X") and at + 1 < len(segment) and opens(segment[at + 1])


def _is_share(tokens: list[Token]) -> bool:
    """Whether the last operand is a percentage or a fraction, of which something can be taken."""
    if tokens[-1].kind == "percent" or tokens[-1].text == "}":
        return True
    return len(tokens) > 2 and tokens[-1].kind == tokens[-3].kind == "number" and tokens[-2].text == "/"


def _end_of_unit(segment: list[Token], at: int) -> int:
    """Past up to five words in a row."""
    stop = at
    while stop < len(segment) and stop < at + 5 and segment[stop].kind == "word" and segment[stop].text not in "xX":
        stop += 1
    return max(stop, at + 1)


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W\d_]+", re.sub(r"^\\[a-z]+", "", text.lower()))


def _closing_side(segment: list[Token]) -> _Side | None:
    """The expression that stands at the end of a segment, before an equals sign."""
    segment = segment[-2 * LONGEST_RUN :]
    runs = _runs(segment)
    if not runs or runs[-1].end != len(segment) or not _has_number(runs[-1].tokens):
        return None
    first, _, tokens, placed, doubtful = runs[-1]
    words = [word for _, word in placed]
    start = max(_unmatched(tokens), default=-1) + 1
    if start == 0 and first > 0:
        before = segment[first - 1]
        # "a third of the 18", but not "the third butcher delivered 18"
        reach = 3 if before.text in ("the", "of") else 2
        nearby = [word for token in segment[max(0, first - reach) : first] for word in _words(token.text)]
        glued = before.kind == "word" and before.end == tokens[0].start
        doubtful = doubtful or glued or before.kind in ("bad", "number") or _is_colon(before, tokens[0])
        doubtful = doubtful or not CHANGING.isdisjoint(nearby) or _continues(segment, first)
    inner = tokens[start:]
    if start and inner:
        # "100 + (20 * 3 = 60" and "(some words) + 1 = 4" go on before what is seen of them.
        cut = tokens[start - 1].text in OPENING and start > 1 and joins(tokens[start - 2])
        doubtful = doubtful or cut or joins(inner[0])
    return _Side(inner, tuple(words), doubtful or len(inner) > LONGEST_RUN) if _has_number(inner) else None


def _continues(segment: list[Token], first: int) -> bool:
    """Whether the expression goes on before its first token, in a way that is not understood."""
    before, start = segment[first - 1], segment[first]
    earlier = segment[first - 2] if first > 1 else None
    if joins(start) and not (start.text in ("-", "−") and start.end == segment[first + 1].start != before.end):
        return before.kind in ("word", "bad")  # "cost per apple * 3", "79 - B - 26"
    if before.kind == "word" and _words(before.text) in (["of"], ["and"]):
        return closes(earlier)  # "1 and 1/4", "60% of the 5"
    return before.text in (",", ".") and closes(earlier) and before.end == start.start  # "16,0000"


def _opening_side(segment: list[Token]) -> _Side | None:
    """The expression that stands at the beginning of a segment, behind an equals sign."""
    segment = segment[: 2 * LONGEST_RUN]
    runs = _runs(segment)
    if not runs or runs[0].first != 0 or not _has_number(runs[0].tokens):
        return None
    _, end, tokens, placed, doubtful = runs[0]
    stop = min(_unmatched(tokens), default=len(tokens))
    if stop == len(tokens) and end < len(segment):
        after = segment[end]
        glued = after.kind == "word" and after.start == tokens[-1].end and len(after.text) == 1
        doubtful = doubtful or glued or after.kind == "bad" or _is_colon(after, tokens[-1])
    near = segment[end : end + 2] if stop == len(tokens) else []
    words = [word for place, word in placed if place < stop]
    # Words behind the last number say what it counts, or how: "15 apples", "15 more than before".
    trailing = [word for place, word in placed if place >= stop]
    trailing += [word for token in near if token.kind == "word" for word in _words(token.text)]
    inner = tokens[:stop]
    doubtful = doubtful or (stop < len(tokens) and tokens[stop].text in OPENING)
    return (
        _Side(inner, tuple(words), doubtful or len(inner) > LONGEST_RUN, tuple(trailing))
        if _has_number(inner)
        else None
    )


def _unmatched(tokens: Sequence[Token]) -> list[int]:
    """Where brackets stand that have no partner."""
    waiting: list[int] = []
    alone: list[int] = []
    for at, token in enumerate(tokens):
        if token.text in OPENING:
            waiting.append(at)
        elif token.text in CLOSING:
            if waiting:
                waiting.pop()
            else:
                alone.append(at)
    return alone + waiting


def _is_colon(token: Token, beside: Token) -> bool:
    """A ratio or a time of day: 2:3, 7:30."""
    return token.text == ":" and (token.end == beside.start or beside.end == token.start) and beside.kind == "number"


def _is_code(token: Token) -> bool:
    """A time such as 0730, or a number of something."""
    return token.kind == "number" and len(token.text) > 1 and token.text[0] == "0" and token.text[1].isdigit()


def _has_number(tokens: Sequence[Token]) -> bool:
    return any(token.kind == "number" for token in tokens)


# --- the verdict ---------------------------------------------------------------------------------------------------


def _judge(text: str, left: _Side, right: _Side, *, approximate: bool) -> Equation:
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
    if "of" in words or not CHANGING.isdisjoint(words) or any(map(_is_code, (*left.tokens, *right.tokens))):
        return unsure
    rounds = approximate or not ROUNDING.isdisjoint(words)
    if rounds:
        near = a != 0 and abs(a - b) <= abs(a) / 20 + 1
        return Equation(start, end, a, b, True if _rounded(a, right) else None if near else False)
    bare = not any(joins(token) or token.kind == "frac" for token in (*left.tokens, *right.tokens))
    money = "$" in text[max(0, start - 2) : end]
    measures = {MEASURES[word] for word in words if word in MEASURES} | ({"dollar"} if money else set())
    # "3 weeks = 21 days" and "2 dollars - 50 cents" are not arithmetic alone.
    if len(measures) > 1 or (bare and (words or money)) or (len(left.tokens) == 1 and left.words):
        return unsure
    close = abs(a - b) <= max(abs(a), abs(b)) / 50
    if close and any(token.kind == "number" and LOOKS_ROUNDED.search(token.text) for token in left.tokens):
        return unsure
    return Equation(start, end, a, b, False)


def _readings(left: _Side, right: _Side) -> list[tuple[Fraction, Fraction]]:
    """The values of both sides, with 20% as 0.2 and as 20: people write both."""
    hundredth, one = Fraction(1, 100), Fraction(1)
    pairs = [(hundredth, hundredth)]
    if any(token.kind == "percent" for token in (*left.tokens, *right.tokens)):
        pairs += [(one, one), (hundredth, one)]
    values = [(_value(left, p), _value(right, q)) for p, q in pairs]
    return [(a, b) for a, b in values if a is not None and b is not None]


def _value(side: _Side, percent: Fraction = Fraction(1, 100)) -> Fraction | None:
    if len(side.tokens) > LONGEST_RUN:
        return None
    try:
        return Parser(side.tokens, percent).whole()
    except CannotTell:
        return None


def _agree(a: Fraction, b: Fraction, right: _Side) -> bool:
    """Equal, or equal as far as the decimals of the right side go."""
    if a == b:
        return True
    numbers = [token.text for token in right.tokens if token.kind == "number"]
    if len(numbers) != 1 or "." not in numbers[0]:
        return False
    step = Fraction(1, 10 ** len(numbers[0].split(".")[1]))
    if any(token.kind == "percent" for token in right.tokens) and abs(b) < abs(number_value(numbers[0])):
        step /= 100
    # Cut off instead of rounded is tolerated too, but only where digits are missing.
    return (a / step).denominator != 1 and (abs(a - b) <= step / 2 or (0 < abs(a) - abs(b) < step and a * b >= 0))


def _rounded(a: Fraction, right: _Side) -> bool:
    """Whether a number that is said to be rounded is: half a unit of its last digit that is not 0."""
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
