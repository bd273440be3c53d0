"""Compare answers in words: names, yes and no, the letters of multiple choice.

As algebra, `no` and `on` are the same product of letters. Words are therefore compared as words.
"""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

from surefoot.text.answers import prose_words
from surefoot.text.arithmetic.words import SHORT, set_of
from surefoot.text.moments import MONTHS, WEEKDAYS
from surefoot.text.numerals import read_number
from surefoot.text.verdict import Verdict

_PROSE = re.compile(r"(?:[^\W\d_]|[\s.,'\u2019-])*")
# A product of variables rather than a word: only these letters, or no vowel at all.
_PRODUCT = re.compile(r"[abcxyz]{2,}|[b-df-hj-np-tv-xz]{2,}", re.IGNORECASE)
_ARTICLE = re.compile(r"(?:the|an|a)\s(?=\S)")
_LIST = re.compile(r"\s?,\s?(?:and\s|or\s)?|\s(?:and|or)\s|\s?&\s?")
_CHOICE = re.compile(
    r"(?:(?:option|choice|answer)\s)?(?:\((?P<round>[A-Ja-j])\)|(?P<letter>[A-J])(?P<mark>[).:](?=\s|\Z))?)(?:\s*(?P<rest>\S.*))?",
    re.DOTALL | re.IGNORECASE,
)
_LETTERS = re.compile(r"\(?[A-J]\)?(?:(?:\s?,\s?(?:and\s|or\s)?|\s(?:and|or)\s)\(?[A-J]\)?)+")
_NEGATIONS = set_of("no not never none non without cannot neither nor isn't can't don't doesn't")
_SYNONYMS = {
    "true": "yes", "false": "no", "dne": "does not exist", "no solutions": "no solution",
    "infinite": "\\infty", "infinity": "\\infty", "inf": "\\infty", "positive infinity": "\\infty",
    "negative infinity": "-\\infty", "minus infinity": "-\\infty", "empty set": "\\emptyset",
    "all real numbers": "\\mathbb{R}", "real numbers": "\\mathbb{R}", "all reals": "\\mathbb{R}",
    **{name[:3]: name for name in (*WEEKDAYS, *MONTHS)}, "tues": "tuesday", "thurs": "thursday", "sept": "september",
}  # fmt: skip


class Choice(NamedTuple):
    """The letter of an option, and its text if given."""

    letter: str
    rest: str
    explicit: bool
    """Whether it is marked as an option: `(B)`, `B)`, `option B`."""


def read_choice(text: str) -> Choice | None:
    """Return the option that an answer names: `B`, `(B)`, `B) 12`, `option B`; None if it names none.

    >>> read_choice("(B) 12").letter
    'B'
    """
    match = _CHOICE.fullmatch(text)
    if match is None:
        return None
    named = text[:1] not in "(" and text[1:2].isalpha()  # `option ...`
    explicit = bool(match["round"] or match["mark"] or named)
    if (match["rest"] and not (match["round"] or match["mark"])) or (not explicit and not match["letter"].isupper()):
        return None
    return Choice((match["round"] or match["letter"]).upper(), match["rest"] or "", explicit)


def read_choices(text: str) -> frozenset[str]:
    """Return the options of an answer that names several: `A, C`, `(A) and (C)`."""
    return frozenset(re.findall("[A-J]", text)) if _LETTERS.fullmatch(text) else frozenset()


def canonical(text: str) -> str:
    """Return the usual form of a word or phrase: lower case, no article, no abbreviation. Other text is unchanged."""
    if not _PROSE.fullmatch(text) or read_number(text) is not None:
        return text
    lower = _ARTICLE.sub("", unicodedata.normalize("NFC", text).casefold().strip(), count=1)
    if lower in _SYNONYMS:
        return _SYNONYMS[lower]
    return lower if is_wording(text) else text


def is_wording(text: str) -> bool:
    """Whether this consists of words, rather than of variables."""
    if not _PROSE.fullmatch(text):
        return False
    words = [word for word in re.findall(r"[^\W\d_]+", text) if len(word) > 1]
    return any(word.casefold() in SHORT or (len(word) > 2 and not _PRODUCT.fullmatch(word)) for word in words)


def same_wording(first: str, second: str) -> Verdict | None:
    """Compare two answers if they have words.

    The same words in another order, or one more word that is not a negation, may or may not mean the same.
    """
    both = is_wording(first), is_wording(second)
    if all(both):
        return Verdict(_same_phrases(first, second))
    if any(both) and all(_PROSE.fullmatch(each) for each in (first, second)):
        return Verdict(first.casefold() == second.casefold())
    first_words, second_words = _words(first), _words(second)
    if first_words and second_words and first_words != second_words:
        return Verdict(False)
    return None


def _words(text: str) -> list[str]:
    return [word for word in prose_words(text) if not _PRODUCT.fullmatch(word)]


def _same_phrases(first: str, second: str) -> bool | None:
    one, other = (sorted(canonical(part) for part in _LIST.split(text) if part) for text in (first, second))
    if one == other:
        return True
    if len(one) != 1 or len(other) != 1:
        return False
    a, b = (set(re.findall(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)?", text)) for text in (one[0], other[0]))
    return None if (a <= b or b <= a) and not (a ^ b) & _NEGATIONS else False
