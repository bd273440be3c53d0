"""Validates what callers pass to a scorer: an item is a question and a solution.

Every scorer checks its items here, before it computes or sends anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from surefoot.core.solution import read_solution, to_plain
from surefoot.errors import InputError

MAX_CHARS = 1_000_000
"""The most characters of a question or a solution: more than any model reads."""
MAX_STEPS = 10_000
MAX_LINE_ENDS = 100_000


def over_limit(question: str, solution: str | Sequence[str]) -> str | None:
    """Returns why an item is too large to be read, or None. It is unscored then; splitting it could fill the memory.

    >>> over_limit("What is 1 + 1?", ["2."] * 20_000)
    'The solution has 20,000 steps; the limit is 10,000.'
    """
    pieces = (solution,) if isinstance(solution, str) else solution
    chars = sum(map(len, pieces))
    ends = max((piece.count("\n") + piece.count("\r") for piece in pieces), default=0) if chars <= MAX_CHARS else 0
    for what, count, limit in (
        ("question has {:,} characters", len(question), MAX_CHARS),
        ("solution has {:,} characters", chars, MAX_CHARS),
        ("solution has {:,} steps", len(pieces), MAX_STEPS),
        ("solution has {:,} line ends", ends, MAX_LINE_ENDS),
    ):
        if count > limit:
            return f"The {what.format(count)}; the limit is {limit:,}."
    return None


def read_item(item: Any, number: int) -> tuple[str, str | Sequence[str]]:
    """Returns the question and the solution of an item. Errors name the item by its `number`."""
    try:
        return _read(item)
    except InputError as error:
        raise InputError(f"Item {number}: {error}") from error


def read_question(question: Any) -> str:
    """Returns a question, which has to be a string."""
    text = question if isinstance(question, str) else to_plain(question)
    if not isinstance(text, str):
        raise InputError(f"The question is {type(question).__name__}, not a string.")
    return text


def read_candidates(question: str, prefixes: Any) -> list[tuple[str, Any]]:
    """Returns one item per candidate solution of a search. Scoring checks the candidates themselves."""
    if isinstance(prefixes, str):
        raise InputError("session.score() takes a list of candidates. For one candidate pass a list of one.")
    return [(question, prefix) for prefix in prefixes]


def read_record(record: Any) -> tuple[str, str | Sequence[str]]:
    """Returns the item in an object with `question` and either `solution` (text) or `steps` (a list or an array)."""
    if not isinstance(record, Mapping) or "question" not in record:
        raise InputError("Expected an object with `question` and either `solution` or `steps`.")
    given = [name for name in ("solution", "steps") if record.get(name) is not None]
    if len(given) != 1:
        problem = "both `solution` and `steps`" if given else "neither `solution` nor `steps`"
        raise InputError(f"The object has {problem}. Give one of them.")
    found = record[given[0]]
    solution = found if isinstance(found, str) else to_plain(found)
    expected, article = (list, "a list of strings") if given[0] == "steps" else (str, "a string")
    if not isinstance(solution, expected):
        raise InputError(f"`{given[0]}` is {type(found).__name__}, not {article}.")
    return _read((record["question"], solution))


def _read(item: Any) -> tuple[str, str | Sequence[str]]:
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise InputError(f"Expected a pair of question and solution, got {type(item).__name__}.")
    question, given = read_question(item[0]), item[1]
    solution = read_solution(given)
    _require_unicode("question", question)
    _require_unicode("solution", solution if isinstance(solution, str) else "".join(solution))
    return question, solution


def _require_unicode(name: str, text: str) -> None:
    if not is_unicode(text):
        raise InputError(
            f"The {name} contains half of a surrogate pair, which is not a character. Fix it where the text was "
            'produced, or drop it: text.encode("utf-8", "ignore").decode().'
        )


def is_unicode(text: str) -> bool:
    """Whether a text can be encoded: half of a surrogate pair is not a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
