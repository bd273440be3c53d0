"""Tokenize arithmetic expressions and evaluate them exactly.

Numbers are fractions, nothing is passed to `eval`, and the length of a number, the depth of brackets and the size of a
result are all limited. Anything that exceeds a limit or is not understood has no value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

NUMBER = r"(?:\d{1,3}(?:(?:,|\{,\}|\\,)\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+"
TOKEN = re.compile(
    rf"""
    (?P<mark><<[^<>\n]*>>)
  | (?P<number>{NUMBER})
  | (?P<percent>%|\\%)
  | (?P<frac>\\[dt]?frac(?![a-zA-Z]))
  | (?P<times>\\times(?![a-zA-Z])|\\cdot(?![a-zA-Z])|[×·∙⋅]|(?<!\*)\\\*(?!\\?\*))
  | (?P<divide>\\div(?![a-zA-Z])|[÷∕])
  | (?P<approx>\\approx(?![a-zA-Z])|≈)
  | (?P<equals>==?(?![=<>]))
  | (?P<power>\^(?!\\circ|\{{\\circ\}})|[²³])
  | (?P<word>\\(?:text|mathrm|textbf|textrm|mbox)\s*\{{[^{{}}]*\}}
      |(?:(?<=\d)-(?=[^\W\d_]{{2}}))?[^\W\d_]+(?:['’-][^\W\d_]+)*)
  | (?P<skip>\\left(?![a-zA-Z])|\\right(?![a-zA-Z])|\\boxed(?![a-zA-Z])|\\q?quad(?![a-zA-Z])
      |\^\\circ|\^\{{\\circ\}}|\\[$,;:!\ ()\[\]]|\*\*(?!\s*\d+\s*=)|[$€£&°]|[^\S\n]+)
  | (?P<newline>\n)
  | (?P<operator>[-+*/−–()\[\]{{}}])
  | (?P<edge>\\(?:begin|end)\{{[a-zA-Z]+\*?\}})
  | (?P<bad>\\[a-zA-Z]+|[<>!≠≤≥~_√∛∜∑∏∫∠±∓|@\#]+)
  | (?P<stop>.)
    """,
    re.VERBOSE | re.DOTALL,
)
OPENING, CLOSING = "([{", ")]}"
LONGEST_RUN = 120
DEEPEST = 24
MOST_BITS = 512
LONGEST_NUMBER = 30


class Token(NamedTuple):
    """A piece of text with its kind and position."""

    kind: str
    text: str
    start: int
    end: int


class CannotTell(Exception):
    """The expression is not understood."""


def number_value(text: str) -> Fraction:
    """Return the value of a number as written; it may contain thousands separators."""
    digits = text.replace("{,}", "").replace("\\,", "").replace(",", "")
    if len(digits) > LONGEST_NUMBER:
        raise ValueError(f"A number of {len(digits)} digits is too long.")
    # Parsing an integer is three times as fast as parsing a fraction, and nearly all numbers are integers.
    return Fraction(int(digits)) if digits.isdecimal() else Fraction(digits)


def numbers_in(text: str) -> list[Fraction]:
    """Return every number in the text, in order, except implausibly long ones."""
    return numbers_of(tokens_of(text))


def numbers_of(tokens: Iterable[Token]) -> list[Fraction]:
    """Return every number among the tokens, except implausibly long ones."""
    found = (token.text for token in tokens if token.kind == "number")
    return [number_value(number) for number in found if len(number) <= LONGEST_NUMBER]


def evaluate(expression: str) -> Fraction | None:
    """Return the value of a text that consists of one expression, or None."""
    tokens = [token for token in tokens_of(expression) if token.kind not in ("newline", "skip")]
    if not tokens or len(tokens) > LONGEST_RUN:
        return None
    try:
        return Parser(tokens, percent=Fraction(1, 100)).whole()
    except CannotTell:
        return None


def tokens_of(text: str) -> list[Token]:
    """Return the tokens without whitespace. Line ends are kept where they separate two expressions."""
    raw: list[Token] = []
    line_start = True
    for match in TOKEN.finditer(text):
        kind = str(match.lastgroup)
        token = Token(kind, match.group(), *match.span())
        bullet = line_start and token.text in ("-", "*", "+", "–") and text[token.end : token.end + 1].isspace()
        if kind == "newline":
            raw.append(token)
            line_start = True
        elif bullet:
            raw.append(Token("stop", token.text, token.start, token.end))
            line_start = False
        elif kind != "skip":
            raw.append(token)
            line_start = False
    return [token for at, token in enumerate(raw) if token.kind != "newline" or _parts(raw, at)]


def _parts(tokens: list[Token], at: int) -> bool:
    """Whether a line end separates two expressions: not if it follows or precedes a sign that needs an operand."""
    before = tokens[at - 1] if at else None
    after = tokens[at + 1] if at + 1 < len(tokens) else None
    waits = before is not None and (before.kind in ("equals", "approx", "times", "divide") or before.text in "+")
    return not (waits or (after is not None and after.kind in ("equals", "approx")))


def is_expression(token: Token) -> bool:
    """Whether the token can be part of an expression."""
    return token.kind in ("number", "percent", "frac", "times", "divide", "power", "operator")


def joins(token: Token | None) -> bool:
    """Whether the token is a binary operator."""
    return token is not None and (token.kind in ("times", "divide") or token.text in ("+", "-", "−", "–", "*", "/"))


def closes(token: Token | None) -> bool:
    """Whether an operand can end with the token."""
    return token is not None and (token.kind in ("number", "percent") or token.text in CLOSING or token.text in "²³")


def opens(token: Token | None) -> bool:
    """Whether an operand can begin with the token."""
    return token is not None and (token.kind in ("number", "frac") or token.text in OPENING)


class Parser:
    """A recursive-descent parser that evaluates one expression exactly and within limits."""

    def __init__(self, tokens: Sequence[Token], percent: Fraction) -> None:
        self._tokens = tokens
        self._percent = percent
        self._at = 0
        self._depth = 0

    def whole(self) -> Fraction:
        """Return the value if the tokens form exactly one expression; otherwise raise CannotTell."""
        value = self._sum()
        if self._at != len(self._tokens):
            raise CannotTell
        return value

    def _peek(self) -> Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _take(self) -> Token:
        token = self._peek()
        if token is None:
            raise CannotTell
        self._at += 1
        return token

    def _sum(self) -> Fraction:
        value = self._product()
        while (token := self._peek()) is not None and token.text in ("+", "-", "−", "–"):
            self._at += 1
            other = self._product()
            value = _limited(value + other if token.text == "+" else value - other)
        return value

    def _product(self) -> Fraction:
        value = self._power()
        while (token := self._peek()) is not None:
            if token.kind == "times" or token.text == "*":
                self._at += 1
                value = _limited(value * self._power())
            elif token.kind == "divide" or token.text == "/":
                self._at += 1
                value = _divided(value, self._divisor())
            elif token.text in "([" and self._tokens[self._at - 1].end == token.start:
                value = _limited(value * self._power())
            else:
                break
        return value

    def _divisor(self) -> Fraction:
        """Parse an operand; "24 / 2/3" is ambiguous and is rejected."""
        sign, *following = self._tokens[self._at - 1 : self._at + 3]
        if len(following) == 3 and following[1].text == "/" and sign.end < following[0].start:
            top, bar, bottom = following
            if top.end == bar.start and bar.end == bottom.start:
                raise CannotTell
        return self._power()

    def _power(self) -> Fraction:
        value = self._operand()
        while (token := self._peek()) is not None and token.kind == "power" and token.text != "^":
            self._at += 1
            value = _raised(value, Fraction("²³".index(token.text) + 2))
        if token is not None and token.kind == "power":
            self._at += 1
            value = _raised(value, self._power())  # from the right: 2^3^2 is 2^9
        return value

    def _operand(self) -> Fraction:
        token = self._take()
        if token.text in ("-", "−"):
            return -self._power()
        if token.text == "+":
            return self._power()
        if token.kind == "number":
            value = self._number(token)
        elif token.kind == "frac":
            value = self._fraction()
        elif token.text in OPENING:
            value = self._group(token)
        else:
            raise CannotTell
        while (sign := self._peek()) is not None and sign.kind == "percent":
            self._at += 1
            value = value * self._percent
        return value

    def _number(self, token: Token) -> Fraction:
        if len(token.text) > LONGEST_NUMBER:
            raise CannotTell
        value = number_value(token.text)
        following = self._tokens[self._at : self._at + 3]
        if value.denominator == 1 and len(following) == 3:
            top, bar, bottom = following
            written_together = top.end == bar.start and bar.end == bottom.start
            if top.kind == bottom.kind == "number" and bar.text == "/" and written_together:
                self._at += 3
                if max(len(top.text), len(bottom.text)) > LONGEST_NUMBER:
                    raise CannotTell
                share = _divided(number_value(top.text), number_value(bottom.text))
                if not 0 < share < 1:
                    raise CannotTell
                return value + share
        if following and following[0].kind == "frac" and following[0].start == token.end:
            self._at += 1
            return value + self._fraction()
        return value

    def _fraction(self) -> Fraction:
        token = self._take()
        if token.kind == "number" and len(token.text) == 2 and token.text.isdigit():
            return _divided(Fraction(token.text[0]), Fraction(token.text[1]))
        if token.text != "{":
            raise CannotTell
        top = self._group(token)
        token = self._take()
        if token.text != "{":
            raise CannotTell
        return _divided(top, self._group(token))

    def _group(self, opening: Token) -> Fraction:
        self._depth += 1
        if self._depth > DEEPEST:
            raise CannotTell
        value = self._sum()
        if self._take().text != CLOSING[OPENING.index(opening.text)]:
            raise CannotTell
        self._depth -= 1
        return value


def _raised(value: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1 or not 0 <= exponent <= 64 or (value == 0 and exponent == 0):
        raise CannotTell
    if max(value.numerator.bit_length(), value.denominator.bit_length()) * exponent > MOST_BITS:
        raise CannotTell
    return _limited(value ** int(exponent))


def _divided(a: Fraction, b: Fraction) -> Fraction:
    if b == 0:
        raise CannotTell
    return _limited(a / b)


def _limited(value: Fraction) -> Fraction:
    if value.numerator.bit_length() > MOST_BITS or value.denominator.bit_length() > MOST_BITS:
        raise CannotTell
    return value
