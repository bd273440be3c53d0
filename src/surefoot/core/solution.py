"""A solution: the text as it came, and the steps found in it.

The rule: nothing of the text is lost. Every character lies in a step, in `outside`, or is white space or a step's
label (`Step 3:`); spans are half-open character offsets into `Solution.text`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

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
