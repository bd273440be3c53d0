"""Find the two sides of an equals sign in the text around it, and how reliably each was read.

A side is doubtful if it may continue in a way that is not understood (a variable, a function, an unmatched bracket).
It is hazy if the words around it may change its meaning (a remainder, an average, a denial). An equation with a
doubtful side is undecided; one with a hazy side is never called false.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from surefoot.text.arithmetic.expression import (
    CLOSING,
    LONGEST_RUN,
    OPENING,
    Token,
    closes,
    is_expression,
    joins,
    opens,
)
from surefoot.text.arithmetic.words import (
    CHANGING,
    CLAIMS,
    CLAUSE,
    LINKS,
    MEASURES,
    NUMBERED,
    QUALIFIED,
    SHORT,
    WORKING,
    words_of,
)


class Side(NamedTuple):
    """One side of an equals sign: its tokens, the words in it and after it, and how reliably it was read."""

    tokens: Sequence[Token]
    words: tuple[str, ...]
    doubtful: bool
    hazy: bool
    trailing: tuple[str, ...] = ()


class _Run(NamedTuple):
    """An expression in a segment: its range, its tokens, and the units in it."""

    first: int
    end: int
    tokens: list[Token]
    words: list[tuple[int, str]]
    """Each word with the number of tokens before it."""
    doubts: list[int]
    """For each unit that contains a variable, the number of tokens before it; 0 if it is certainly a factor."""
    hazy: bool


def closing_side(segment: list[Token]) -> Side | None:
    """Return the expression at the end of a segment, before an equals sign."""
    segment = segment[-2 * LONGEST_RUN :]
    run, earlier = None, None
    for run_ in _runs(segment):
        run, earlier = run_, run
    if run is None or run.end != len(segment):
        return None
    first, tokens = run.first, run.tokens
    start = max(_unmatched(tokens), default=-1) + 1
    inner = tokens[start:]
    if not _has_number(inner):
        return None
    doubtful, hazy = bool(run.doubts) or len(inner) > LONGEST_RUN, run.hazy
    if start:
        # "100 + (20 * 3 = 60", "(some words) + 1 = 4" and "\frac{x}{4} = 3" begin before the part that is seen.
        edge = tokens[start - 1]
        cut = edge.text in OPENING and start > 1 and joins(tokens[start - 2])
        # "(x)(3)", "(x) (3)", but not "1) (3 + 4) * 5"
        glued = edge.text == "}" or edge.end == inner[0].start or (start != 2 and inner[0].text in OPENING)
        factor = edge.text in CLOSING and glued
        doubtful = doubtful or cut or factor or joins(inner[0])
    elif first > 0:
        listed = earlier is not None and earlier.first > 0 and len(earlier.tokens) == 1 and earlier.end == first - 1
        doubtful = doubtful or _continues(segment, first)
        hazy = hazy or _is_worked_on(segment, first, bare=is_bare(tokens), listed=listed)
    return Side(inner, tuple(word for _, word in run.words), doubtful, hazy)


def opening_side(segment: list[Token]) -> Side | None:
    """Return the expression at the beginning of a segment, after an equals sign."""
    segment = segment[: 2 * LONGEST_RUN]
    run = next(_runs(segment), None)
    if run is None or run.first != 0:
        return None
    end, tokens = run.end, run.tokens
    stop = min(_unmatched(tokens), default=len(tokens))
    inner = tokens[:stop]
    if not _has_number(inner):
        return None
    doubtful = any(place < stop for place in run.doubts) or len(inner) > LONGEST_RUN
    near: list[Token] = []
    if stop < len(tokens):
        doubtful = doubtful or tokens[stop].text in OPENING
    elif end < len(segment):
        after = segment[end]
        glued = after.kind == "word" and after.start == tokens[-1].end and len(after.text) == 1
        doubtful = doubtful or glued or after.kind == "bad" or _is_colon(after, tokens[-1])
        near = segment[end : end + 2]
    # Words after the last number say what it counts, or how: "15 apples", "15 more than before".
    trailing = [word for place, word in run.words if place >= stop]
    trailing += [word for token in near if token.kind == "word" for word in words_of(token.text)]
    words = tuple(word for place, word in run.words if place < stop)
    # "2/3 = 2/3 of the cake"
    hazy = (
        run.hazy or bool(run.doubts) or any(token.kind == "times" and words_of(token.text) == ["of"] for token in inner)
    )
    return Side(inner, words, doubtful, hazy or _is_qualified(segment, end, trailing), tuple(trailing))


def is_bare(tokens: Sequence[Token]) -> bool:
    """Whether the tokens contain no operation."""
    return not any(joins(token) for token in tokens[1:]) and not any(token.kind == "frac" for token in tokens)


# --- the expressions of a segment ----------------------------------------------------------------------------------


def _runs(segment: list[Token]) -> Iterator[_Run]:
    """Yield the expressions of a segment, in order."""
    at = 0
    while at < len(segment):
        if not is_expression(segment[at]):
            at += 1
            continue
        first, hazy = at, False
        doubts: list[int] = []
        tokens: list[Token] = []
        words: list[tuple[int, str]] = []
        end = at
        while at < len(segment):
            token = segment[at]
            before = tokens[-1] if tokens else None
            after = segment[at + 1] if at + 1 < len(segment) else None
            if token.kind == "word":
                if (_is_times(segment, at) and (closes(before) or (tokens and end == at))) or (
                    words_of(token.text) == ["of"] and closes(before) and _is_share(tokens) and opens(after)
                ):
                    tokens.append(Token("times", token.text, token.start, token.end))
                    at += 1
                    continue
                stop = _end_of_unit(segment, at)
                unit = segment[at:stop]
                if not closes(before) or not _goes_on(segment, stop) or any(_begins_clause(part) for part in unit):
                    break
                glued = before is not None and unit[0].start == before.end
                if glued and len(unit[0].text) == 1:
                    doubts.append(0)
                elif (glued and _is_variable(unit[0], 3)) or (len(unit) > 1 and len(unit[-1].text) == 1):
                    doubts.append(len(tokens))
                hazy = hazy or _has_variable(unit)
                words += [(len(tokens), word) for part in unit for word in words_of(part.text)]
                at = end = stop
                continue
            if not is_expression(token):
                break
            per_unit = token.text == "/" and after is not None and after.kind == "word" and after.start == token.end
            if per_unit and after is not None and len(after.text) > 1 and tokens:
                words += [(len(tokens), word) for word in words_of(after.text)]
                at = end = at + 2
                continue
            tokens.append(token)
            at = end = at + 1
        yield _Run(first, end, tokens, words, doubts, hazy)
        at = max(at, end, first + 1)


def _is_times(segment: list[Token], at: int) -> bool:
    """Whether the letter x is used as a multiplication sign."""
    return segment[at].text in ("x", "X") and at + 1 < len(segment) and opens(segment[at + 1])


def _is_share(tokens: list[Token]) -> bool:
    """Whether the last operand is a percentage or a fraction, so that "of" after it means multiplication."""
    if tokens[-1].kind == "percent" or tokens[-1].text == "}":
        return True
    return len(tokens) > 2 and tokens[-1].kind == tokens[-3].kind == "number" and tokens[-2].text == "/"


def _end_of_unit(segment: list[Token], at: int) -> int:
    """Return the index after up to five consecutive words."""
    stop = at
    while stop < len(segment) and stop < at + 5 and segment[stop].kind == "word" and segment[stop].text not in "xX":
        stop += 1
    return max(stop, at + 1)


def _goes_on(segment: list[Token], stop: int) -> bool:
    """Whether the expression continues after a unit, or the segment ends with it."""
    follower = segment[stop] if stop < len(segment) else None
    return follower is None or joins(follower) or follower.text in CLOSING or _is_times(segment, stop)


def _begins_clause(token: Token) -> bool:
    return not token.text.startswith("\\") and token.text.lower() in CLAUSE


def _has_variable(unit: list[Token]) -> bool:
    """Whether a word of a unit looks like variables: "1.5 x", "3 x-y", but not "3 cm" nor "5 dollars a day"."""
    return any(_is_variable(token, 2) and not (token.text == "a" and token is not unit[-1]) for token in unit)


def _is_variable(token: Token, longest: int) -> bool:
    name = token.text.rstrip("²³").lower()
    return name not in SHORT and max(map(len, re.split("['’-]", name))) <= longest


def _unmatched(tokens: Sequence[Token]) -> list[int]:
    """Return the positions of unmatched brackets."""
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


def _has_number(tokens: Sequence[Token]) -> bool:
    return any(token.kind == "number" for token in tokens)


# --- the text around an expression ---------------------------------------------------------------------------------


def _continues(segment: list[Token], first: int) -> bool:
    """Whether the expression begins before its first token, in a way that is not understood."""
    before, start = segment[first - 1], segment[first]
    earlier = segment[first - 2] if first > 1 else None
    if before.kind in ("bad", "number") or _is_colon(before, start):
        return True
    unary = (
        start.text in ("-", "−") and first + 1 < len(segment) and start.end == segment[first + 1].start != before.end
    )
    dots = before.text == "…" or (before.text == "." and earlier is not None and earlier.text == ".")
    if joins(start) and (dots or not unary):
        return True  # "cost per apple * 3", "79 - B - 26", "1 + 2 + ... + 10"
    # "a third of the 18", but not "the third butcher delivered 18"
    reach = 3 if before.text in ("the", "of") else 2
    nearby = [word for token in segment[max(0, first - reach) : first] for word in words_of(token.text)]
    if not CHANGING.isdisjoint(nearby):
        return True
    if before.kind != "word":
        if before.text in (",", ".") and closes(earlier) and before.end == start.start:
            return True  # "16,0000"
        prime = before.text in ("'", "’", "′") and before.end == start.start
        return prime and earlier is not None and earlier.end == before.start  # "F'(3)"
    word = before.text.lower()
    if before.end == start.start or (len(word) == 1 and before.text not in "aI"):
        return True
    return word in ("of", "and") and closes(earlier)  # "1 and 1/4", "60% of the 5"


def _is_worked_on(segment: list[Token], first: int, *, bare: bool, listed: bool) -> bool:
    """Whether the words before the expression may change its value: "week 2", "average of 10 + 20"."""
    before = segment[first - 1]
    if before.kind != "word":
        return bare and listed and before.text == ","  # "average of 10, 20, 30"
    word = before.text.lower()
    if word in NUMBERED or (bare and word not in CLAIMS):
        return True
    counts = [token.kind in ("number", "percent") for token in segment[max(0, first - 3) : first - 1]]
    if counts[-1:] == [True] and (word not in CLAIMS or (bare and word == "to")):
        return True  # "17 mod 5 + 1", "5 feet 6 inches + 2", "from 1 to 3"
    if counts == [True, False] and word == "and" and segment[first - 2].text in MEASURES:
        return True  # "2 hours and 30 minutes + 15 minutes"
    at = first - 1
    while at > max(0, first - 4) and segment[at].text.lower() in LINKS:
        at -= 1
    word = segment[at].text.lower()
    if word == "by":
        return any(token.text.lower().startswith(("divi", "multipl")) for token in segment[max(0, at - 5) : at])
    return word in WORKING and (word != "out" or at < first - 1)


def _is_qualified(segment: list[Token], end: int, trailing: list[str]) -> bool:
    """Whether the text after the expression may qualify its value: "3 R 1", "30 with a remainder of 11"."""
    following = segment[end : end + 7]
    near = " ".join(word for token in following for word in (words_of(token.text) or [token.text]))
    if QUALIFIED.search(near) or not WORKING.isdisjoint(trailing[:1]):
        return True
    if not following:
        return False
    first, second = following[0], following[1] if len(following) > 1 else None
    if first.kind == "word":
        if first.text == "and" and second is not None:  # "1 and 1/4", "1 and a half"
            fraction = second.kind == "number" and len(following) > 2 and following[2].text == "/"
            return fraction or second.kind == "frac" or second.text in ("a", *OPENING)
        return _has_variable([token for token in following[:2] if token.kind == "word"])
    glued = second is not None and first.end == second.start
    match first.text:
        case "?":
            return True
        case ":":
            return opens(second)  # "1 : 6 : 4"
        case ",":
            return glued and opens(second)  # "4,2"
        case ".":
            return glued and second is not None and second.text in (".", "\\overline", "\\bar", *OPENING)  # "0.(3)"
    return False


def _is_colon(token: Token, beside: Token) -> bool:
    """Whether the colon is part of a ratio or a time of day: 2:3, 7:30."""
    return token.text == ":" and (token.end == beside.start or beside.end == token.start) and beside.kind == "number"
