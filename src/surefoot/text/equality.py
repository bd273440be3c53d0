"""Decide whether two answers are equal.

Words, numbers, units, times and options are compared here, exactly; anything that takes algebra goes to math-verify, in
a process that is killed at the time limit. An undecided comparison is None, never a guess.
"""

from __future__ import annotations

import re

from surefoot.errors import OptionError
from surefoot.text.answers import BOX_TOKEN, clean_answer, require_text
from surefoot.text.latex import as_latex, normalize, without_text
from surefoot.text.moments import same_moment
from surefoot.text.numerals import read_number
from surefoot.text.quantities import Quantity, conversion, read_quantity, same_based, same_quantity, split_unit
from surefoot.text.verdict import Verdict
from surefoot.text.wording import canonical, read_choice, read_choices, same_wording

MAX_TIMEOUT = 3600.0
MAX_COMPARED_CHARS = 2000

_ASSIGNED = re.compile(r"(?P<name>[A-Za-z])\s?(?:=|\\approx)\s?(?P<value>[^=<>,]+)")
_VECTOR = re.compile(r"\\begin\{pmatrix\}(?P<rows>.*)\\end\{pmatrix\}", re.DOTALL)
_TUPLE = re.compile(r"\(.*,.*\)", re.DOTALL)
_APPROXIMATELY = re.compile(
    r"\A(?:\\approx|(?:about|approximately|around|roughly|almost))\s?(?=[$\d+-])", re.IGNORECASE
)
_INEQUALITY = re.compile(r"[<>]|\\[lg]e(?![a-z])")
_JOIN = re.compile(r"\b(?:or|and)\b")
_SET = re.compile(r"[<>(\[]|\\[lg]e(?![a-z])|\\cup")
_CONTINENTAL = re.compile(r"[+-]?\d+,\d+")
_DEGREES = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s?\^\s?\{?\s?\\circ\s?\}?")
_RADIANS = re.compile(r"\\pi(?![A-Za-z])")
_TRIGONOMETRY = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z])")
_WORDED = re.compile(r"(?P<number>\S*\d)\s(?!and\s|or\s)(?:[A-Za-z]{3,}\s?){1,5}")
_EMPTY = frozenset(("\\emptyset", "\\{\\}", "\\{ \\}"))
_NO_SOLUTION = frozenset(("no solution", "no real solution", "no real solutions", "none"))


def same_answer(a: str, b: str, *, timeout: float = 3.0) -> bool | None:
    r"""Return whether answer `b` is equal to the reference `a`, or None if that could not be decided.

    - Numbers are compared exactly: `1,234.50` equals `1234.5`, `\frac{1}{2}` equals `0.5`, `twelve` equals `12`, and
      `1/3` does not equal `0.333`. For an irrational number, six correct decimals are enough, as in math-verify.
    - A number without a unit equals the same number with one, in both directions, because data sets state `18` where
      solutions say `$18` or `18 eggs`. As in math-verify, `50%` equals both `0.5` and `50`.
    - Two different units are converted: `5 km` equals `5000 m`, not `5 m` and not `$5`. Different things are not equal:
      `5 eggs` and `5 apples`.
    - Words are compared as words, options by their letter (`B`, `(B)`, `B) 12`), numerals with their base (`101_2`).
    - Everything else goes to math-verify. An inequality equals its interval if it is solved: `1<x<2` and `(1,2)`. An
      answer such as `2x+1<7` only restates the question, so the reference `(-\infty,3)` does not accept it.

    None means that the texts do not tell, or that time ran out: `101` and `101_2`, `3:30` and `3:30 pm`, `120` and
    `2 hours` (which is right if the question asked for minutes), `$5` and `$5 per day`. An empty answer is never equal,
    nor is one that math-verify cannot parse if it can parse the other.

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
    gold, target = (_APPROXIMATELY.sub("", normalize(clean_answer(each))) for each in (a, b))
    if not gold or not target:
        return False
    if gold == target:
        return True
    if max(len(gold), len(target)) > MAX_COMPARED_CHARS:
        return None
    gold, target = canonical(gold), canonical(target)
    return gold == target or _same(gold, target, float(timeout))


def _same(gold: str, target: str, timeout: float) -> bool | None:
    """Compare two normalized answers that differ as text."""
    decided = _same_option(gold, target, timeout) or _same_at_sight(gold, target)
    return decided.same if decided else _same_by_algebra(gold, target, timeout)


def _same_option(gold: str, target: str, timeout: float) -> Verdict | None:
    """Compare two answers if one of them names an option of a multiple-choice question."""
    first, second = read_choice(without_text(gold)), read_choice(without_text(target))
    several = read_choices(without_text(gold)), read_choices(without_text(target))
    if all(several):
        return Verdict(several[0] == several[1])
    if first and second:
        if not (first.explicit or second.explicit):
            return Verdict(False)
        if first.letter != second.letter:
            return Verdict(False)
        agree = not first.rest or not second.rest or first.rest == second.rest
        return Verdict(True if agree else None)
    for choice, other in ((first, target), (second, gold)):
        if choice and choice.rest and choice.explicit:
            # `(B) 12` answers with the option and with its text.
            return Verdict(choice.rest == other or _same(choice.rest, other, timeout))
    if len(gold) == len(target) == 1 and gold.casefold() == target.casefold():
        return Verdict(None)
    return None


def _same_at_sight(gold: str, target: str) -> Verdict | None:
    """Compare two answers without algebra; None if that is not enough."""
    if gold in _EMPTY or target in _EMPTY:
        both = {gold, target}
        return Verdict(both <= _EMPTY or (None if both & _NO_SOLUTION else False))
    plain = read_number(gold), read_number(target)
    number = plain[0] if plain[0] is not None else plain[1]
    flat = without_text(gold), without_text(target)
    if decided := same_based(*flat) or same_moment(*flat, number):
        return decided
    values = [_unassigned(gold, target), _unassigned(target, gold)]
    first, second = (read_quantity(value) for value in values)
    if first and second:
        return Verdict(same_quantity(first, second))
    if (first and _same_start(first, values[1])) or (second and _same_start(second, values[0])):
        return Verdict(None)
    if not _balanced(gold) or not _balanced(target):
        return Verdict(False)
    if any(_CONTINENTAL.fullmatch(one) and read_number(one.replace(",", ".")) == number and number is not None
           for one, number in zip((gold, target), plain[::-1], strict=True)):  # fmt: skip
        return Verdict(None)
    return same_wording(gold, target)


def _same_start(amount: Quantity, text: str) -> bool:
    """Whether the text starts with the same number, followed by words that may change it: `3` and `3 more`."""
    match = _WORDED.fullmatch(text)
    return match is not None and amount.measure.plain and read_number(match["number"]) == amount.number


def _unassigned(answer: str, other: str) -> str:
    """Return the value of `x = 5 km`, unless the other answer assigns to another name."""
    match, against = _ASSIGNED.fullmatch(answer), _ASSIGNED.fullmatch(other)
    return match["value"] if match and (not against or against["name"] == match["name"]) else answer


def _same_by_algebra(gold: str, target: str, timeout: float) -> bool | None:
    # Imported here: only callers that need math-verify pay for subprocess and the hooks around fork and exit.
    from surefoot.text import math_verify_pool

    (gold, first), (target, second) = split_unit(gold), split_unit(target)
    if first and second:
        factor = conversion(first, second)
        if factor is None:
            return False
        if factor != 1:
            target = f"\\frac{{{factor.numerator}}}{{{factor.denominator}}} \\cdot ({target})"
    if gold == target:
        return True
    gold, target = as_latex(gold), as_latex(target)
    gold, target = _in_radians(gold, target), _in_radians(target, gold)
    if _is_tuple(gold) != _is_tuple(target) and (_vector(gold) or _vector(target)):
        # A column of numbers and a point may mean the same.
        same = math_verify_pool.compare(_vector(gold) or gold, _vector(target) or target, timeout)
        return None if same else same
    same = math_verify_pool.compare(gold, target, timeout)
    # math-verify does not join inequalities by words.
    return None if same is False and (_joined(gold, target) or _joined(target, gold)) else same


def _joined(answer: str, other: str) -> bool:
    """Whether this joins inequalities (`x<1 or x>2`), and the other may be the same set."""
    return (
        _INEQUALITY.search(answer) is not None and _JOIN.search(answer) is not None and _SET.search(other) is not None
    )


def _is_tuple(answer: str) -> bool:
    return _TUPLE.fullmatch(answer) is not None


def _vector(answer: str) -> str | None:
    match = _VECTOR.fullmatch(answer)
    if match is None or "&" in match["rows"] or "\\begin" in match["rows"]:
        return None
    return "(" + ", ".join(match["rows"].split("\\\\")) + ")"


def _in_radians(answer: str, other: str) -> str:
    """Convert degrees where they matter: next to radians, and in a function."""
    if "\\circ" not in answer or not (
        _TRIGONOMETRY.search(answer) or (_RADIANS.search(other) and "\\circ" not in other)
    ):
        return answer
    return _DEGREES.sub(lambda match: f"(\\frac{{{match['number']}\\pi}}{{180}})", answer)


def _balanced(value: str) -> bool:
    depth = 0
    for token in BOX_TOKEN.finditer(value):
        depth += (token.lastgroup == "open" or token["brace"] is not None) - (token.lastgroup == "close")
        if depth < 0:
            return False
    return depth == 0
