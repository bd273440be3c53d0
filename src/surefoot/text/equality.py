"""Decide whether two answers are equal.

Text and plain numbers are compared here, exactly; anything that takes algebra goes to math-verify, in a process that is
killed at the time limit. An undecided comparison is None, never a guess.
"""

from __future__ import annotations

import re
from fractions import Fraction

from surefoot.errors import OptionError
from surefoot.text.answers import (
    BOX_TOKEN,
    NUMBER,
    TEXT_COMMAND,
    clean_answer,
    counted_amount,
    prose_words,
    require_text,
)

MAX_TIMEOUT = 3600.0
MAX_COMPARED_CHARS = 2000
_MAX_NUMBER_CHARS = 300

_SYNONYMS = re.compile(
    r"\\\\|\\[dt]frac(?![A-Za-z])|\\(?:left|right)(?![A-Za-z])|\\[!,;: ]|\{,\}|\\[%$]|\*\*|[\u2212\u00d7·÷π∞°≤≥≠]"
)
_PLAIN = {
    "\\\\": "\\\\", "\\dfrac": "\\frac", "\\tfrac": "\\frac", "\\left": "", "\\right": "", "\\!": "", "\\,": "",
    "\\;": " ", "\\:": " ", "\\ ": " ", "{,}": ",", "\\%": "%", "\\$": "", "**": "^", "\u2212": "-", "·": "\\cdot ",
    "\u00d7": "\\times ", "÷": "\\div ", "π": "\\pi ", "∞": "\\infty ", "°": "^\\circ ", "≤": "\\le ", "≥": "\\ge ",
    "≠": "\\ne ",
}  # fmt: skip
_TEXT = re.compile(TEXT_COMMAND + r"\{([^{}\\]*)\}")
_PROSE = re.compile(r"(?:[^\W\d_]|[\s.,'\u2019-])*")
_AMOUNT = re.compile(r"(?P<sign>[+-]?)\s?[$€£]?\s?(?P<inner>[+-]?)(?P<body>[^\s%][^%]*?)\s?(?P<percent>%?)")
_QUOTIENT = re.compile(rf"(?:(?P<whole>\d+)\s+)?(?P<top>{NUMBER})\s?/\s?(?P<bottom>{NUMBER})|(?P<only>{NUMBER})")
_FRAC = re.compile(
    rf"(?P<whole>\d+)?\s?\\frac\s?(?:\{{\s?(?P<top>[+-]?{NUMBER})\s?\}}\s?\{{\s?(?P<bottom>[+-]?{NUMBER})\s?\}}"
    r"|(?P<digits>\d\d))"
)


def same_answer(a: str, b: str, *, timeout: float = 3.0) -> bool | None:
    r"""Return whether answer `b` is equal to the reference `a`, or None if that could not be decided.

    Text and plain numbers are compared exactly: `1,234.50` equals `1234.5`, `\frac{1}{2}` equals `0.5`, and `1/3` does
    not equal `0.333`. A plain number also equals the same number with what it counts: `14` equals `14 eggs`. As in
    math-verify, `50%` equals both `0.5` and `50`. Everything else goes to math-verify, with `a` as its gold and `b` as
    its target. The two are not interchangeable: the reference `1<x<2` accepts `(1,2)`, but the reference `(1,2)` does
    not accept `1<x<2`. An empty answer, or one that math-verify cannot parse, is never equal: False.

    math-verify runs in a child process that is killed after `timeout` seconds, so the limit holds for any input, in any
    thread, without signals. Starting a worker and waiting for a free one do not count towards `timeout`; they have
    limits of their own (see `math_verify_pool`), so no thread waits forever. Answers longer than 2,000 characters that
    differ as text give None at once.

    >>> same_answer("1/2", "0.5")
    True
    """
    require_text(a, "same_answer() expects two strings")
    require_text(b, "same_answer() expects two strings")
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout <= MAX_TIMEOUT:
        raise OptionError(f"timeout={timeout!r} must be a number of seconds above 0 and at most {MAX_TIMEOUT:g}.")
    gold, target = _normal(a), _normal(b)
    if not gold or not target:
        return False
    if gold == target:
        return True
    if max(len(gold), len(target)) > MAX_COMPARED_CHARS:
        return None
    decided = _same_at_sight(gold, target)
    if decided is not None:
        return decided
    # Imported here: only callers that need math-verify pay for subprocess and the hooks around fork and exit.
    from surefoot.text import math_verify_pool

    return math_verify_pool.compare(gold, target, float(timeout))


def _normal(raw: str) -> str:
    """Return the cleaned answer with equivalent notations unified."""
    value = _SYNONYMS.sub(lambda match: _PLAIN[match.group()], clean_answer(raw))
    if whole := _TEXT.fullmatch(value):
        value = whole[1]
    return " ".join(value.split())


def _same_at_sight(a: str, b: str) -> bool | None:
    """Compare two answers that differ as text, without algebra; None if that is not enough."""
    first, second = _numbers(a), _numbers(b)
    if bool(first) != bool(second):
        # One is a plain number; the other may be a number with what it counts.
        first, second = first or _counted(a), second or _counted(b)
    if first and second:
        return not first.isdisjoint(second)
    if not _balanced(a) or not _balanced(b):
        return False
    # As algebra, `listen` and `silent` are the same product of letters. Compare words as words.
    first_words, second_words = prose_words(a), prose_words(b)
    if first_words and second_words:
        if _PROSE.fullmatch(a) and _PROSE.fullmatch(b):
            return a.casefold() == b.casefold()
        if first_words != second_words:
            return False
    return None


def _counted(value: str) -> frozenset[Fraction]:
    amount = counted_amount(_TEXT.sub(r" \1 ", value))
    return frozenset() if amount is None else _numbers(amount)


def _numbers(value: str) -> frozenset[Fraction]:
    """Return the possible values of a plain number: one, two for a percentage, none if it is not a plain number."""
    # The bound keeps hostile digits cheap, and is below any limit that can be set for int().
    amount = _AMOUNT.fullmatch(value) if len(value) <= _MAX_NUMBER_CHARS else None
    if amount is None or (amount["sign"] and amount["inner"]):
        return frozenset()
    body = amount["body"]
    quotient = _FRAC.fullmatch(body) or _QUOTIENT.fullmatch(body)
    if quotient is None:
        return frozenset()
    parts = quotient.groupdict()
    if parts.get("only"):
        number = _fraction(parts["only"])
    else:
        digits = parts.get("digits")
        top, bottom = (digits[0], digits[1]) if digits else (parts["top"], parts["bottom"])
        # A sign inside a mixed number is ambiguous, and a zero denominator has no value.
        if not _fraction(bottom) or (parts["whole"] and not (top + bottom).isalnum()):
            return frozenset()
        number = int(parts["whole"] or 0) + _fraction(top) / _fraction(bottom)
    if "-" in (amount["sign"], amount["inner"]):
        number = -number
    return frozenset((number, number / 100)) if amount["percent"] else frozenset((number,))


def _fraction(number: str) -> Fraction:
    return Fraction(number.replace(",", ""))


def _balanced(value: str) -> bool:
    depth = 0
    for token in BOX_TOKEN.finditer(value):
        depth += (token.lastgroup == "open" or token["brace"] is not None) - (token.lastgroup == "close")
        if depth < 0:
            return False
    return depth == 0
