"""The functions of filter expressions, and the types of their values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from surefoot.errors import MissingDependencyError

BOOLEAN, NUMBER, STRING, LIST = "a boolean", "a number", "a string", "a list"


@dataclass(frozen=True)
class Function:
    """A function of the language. It gets arguments of the accepted kinds only; with null, its value is null.

    `most=None`: any number of arguments. A function with `has_pattern` takes a regular expression as last argument,
    which must be a constant, so that the parser can check it.
    """

    accepts: tuple[str, ...]
    returns: str
    least: int
    most: int | None
    compute: Callable[..., object]
    has_pattern: bool = False


def kind_of(value: object) -> str:
    """Return the type of a value in the words of the language."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, (int, float)):
        return NUMBER
    if isinstance(value, str):
        return STRING
    return LIST if isinstance(value, (list, tuple)) else f"an object ({type(value).__name__})"


def like(text: str, pattern: str) -> bool:
    """Whether the whole text matches the pattern, in which `*` stands for any characters. Takes linear time."""
    first, *rest = pattern.split("*")
    if not rest:
        return text == pattern
    *middle, last = rest
    at, end = len(first), len(text) - len(last)
    if at > end or not text.startswith(first) or not text.endswith(last):
        return False
    for part in middle:
        at = text.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True


def matches(text: str, pattern: str) -> bool:
    """Whether the pattern matches anywhere in the text.

    Uses RE2 through pyarrow: its time is linear in the length of the text, and its memory is bounded. Python's `re` can
    take exponential time. Raises `ValueError` if the pattern is invalid, or if the text has surrogate characters.
    """
    try:
        import pyarrow
        from pyarrow import compute
    except ImportError as error:
        raise MissingDependencyError('matches() needs pyarrow. Run: pip install "surefoot[bulk]"') from error
    return bool(compute.match_substring_regex(pyarrow.scalar(text), pattern=pattern).as_py())


FUNCTIONS = {
    "abs": Function((NUMBER,), NUMBER, 1, 1, abs),
    "len": Function((STRING, LIST), NUMBER, 1, 1, len),
    "like": Function((STRING,), BOOLEAN, 2, 2, like),
    "lower": Function((STRING,), STRING, 1, 1, str.lower),
    "matches": Function((STRING,), BOOLEAN, 2, 2, matches, has_pattern=True),
    "max": Function((NUMBER,), NUMBER, 2, None, max),
    "min": Function((NUMBER,), NUMBER, 2, None, min),
}
