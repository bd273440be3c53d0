"""A pair of question and solution, as a caller gives it.

The rule: what is no such pair is refused with its number, before anything is computed or sent.
"""

from __future__ import annotations

from typing import Any

from surefoot.errors import InputError


def read_pair(item: Any, number: int) -> tuple[str, Any]:
    """The question, and the solution as it was given."""
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise InputError(f"Item {number} is not a pair of question and solution but {type(item).__name__}.")
    question, given = item
    if not isinstance(question, str):
        raise InputError(f"The question of item {number} is {type(question).__name__}, not a string.")
    return question, given


def require_unicode(number: int, **texts: str) -> None:
    """Refuses texts of an item that no tokenizer and no JSON can hold."""
    for name, text in texts.items():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InputError(
                f"The {name} of item {number} holds half of a surrogate pair, which is no character. Repair it "
                'where the text was made, or drop it: text.encode("utf-8", "ignore").decode().'
            ) from None
