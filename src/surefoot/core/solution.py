"""A solution: the text as it came, and the steps found in it.

The rule: nothing of the text is lost. Every character lies in a step, in `outside`, or is white space or a step's
label (`Step 3:`); spans are half-open character offsets into `Solution.text`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from surefoot.errors import InputError

StepKind = Literal["body", "answer"]


class Span(NamedTuple):
    """A half-open range of characters."""

    start: int
    end: int


@dataclass(frozen=True)
class Step:
    """One step of reasoning.

    For a `body` step, `solution.text[start:end] == text`. The closing `answer` step is worded by us, and its span is
    that of the line which states the answer.
    """

    text: str
    start: int
    end: int
    index: int
    """Position among all pieces, empty ones counted: for a ready list, the index in the caller's list."""
    kind: StepKind = "body"


@dataclass(frozen=True)
class Solution:
    """A text, its steps in order, and what belongs to none of them."""

    text: str
    steps: tuple[Step, ...]
    answer: str | None = None
    outside: tuple[Span, ...] = ()
    """Text in no step: a preamble, what follows the final answer. White space alone is not listed."""
    empty_steps: int = 0
    """Pieces without content, which were dropped."""
    rule: str = "list"
    """How the steps were found: steps, paragraphs, lines or list."""

    @property
    def outside_chars(self) -> int:
        """How many characters no step covers, white space at their edges not counted."""
        return sum(span.end - span.start for span in self.outside)


def read_solution(given: Any) -> str | Sequence[str]:
    """Returns a solution that callers may pass: a string, or a sequence of strings, one per step."""
    if isinstance(given, str):
        return given
    if isinstance(given, bytes | bytearray):
        raise InputError(f"The solution is {type(given).__name__}; decode it to str first: solution.decode().")
    if not isinstance(given, Sequence):
        raise InputError(f"The solution is of type {type(given).__name__}; pass a str, or a list with one str per step.")
    for number, step in enumerate(given):
        if not isinstance(step, str):
            hint = " Decode it first." if isinstance(step, bytes | bytearray) else ""
            raise InputError(
                f"Step {number} of the list is of type {type(step).__name__}; every step must be a str.{hint}"
            )
    return given
