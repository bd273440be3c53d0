"""A solution: its original text and the steps found in it.

Invariant: no text is lost. Every character is in a step, in `outside`, in `skipped`, in a step's label (`Step 3:`), or
is whitespace.
Spans are half-open character offsets into `Solution.text`.
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

    >>> solution = surefoot.split("Step 1: 2 + 3 = 5.")
    >>> step = solution.steps[0]
    >>> solution.text[step.start : step.end]
    '2 + 3 = 5.'

    For a `body` step, `solution.text[start:end] == text`, without the end of the label's emphasis: the text of
    `**Step 1: Add** them` is `Add them`. The closing `answer` step has a text of our own; its span is that of the line
    that states the answer.
    """

    text: str
    start: int
    end: int
    index: int
    """Position among all pieces, including empty ones: for a list of steps, the index in that list."""
    kind: StepKind = "body"


@dataclass(frozen=True)
class Solution:
    """A text, its steps in order, and the text outside the steps.

    >>> solution = surefoot.split("Step 1: 2 + 3 = 5.\\nFinal Answer: 5")
    >>> [step.kind for step in solution.steps]
    ['body', 'answer']
    >>> solution.answer
    '5'
    """

    text: str
    steps: tuple[Step, ...]
    answer: str | None = None
    outside: tuple[Span, ...] = ()
    """Text that is in no step, such as a preamble or what follows the final answer. Whitespace is not listed."""
    skipped: tuple[Span, ...] = ()
    """Text that the option `thinking` excludes from scoring, such as a `<think>` block."""
    empty_steps: int = 0
    """Number of empty pieces that were dropped."""
    rule: str = "list"
    """How the steps were found: steps, paragraphs, lines or list."""

    @property
    def outside_chars(self) -> int:
        """Number of characters in no step, without surrounding whitespace."""
        return sum(span.end - span.start for span in self.outside)


def to_plain(value: Any) -> Any:
    """Returns a cell or a column of a table as a string or a list, and any other value as it is.

    Arrays and scalars of NumPy, pandas and pyarrow are recognized by their methods: `core` imports none of them.
    """
    for name in ("as_py", "tolist", "to_pylist"):
        if callable(convert := getattr(type(value), name, None)):
            return convert(value)
    return value


def read_solution(given: Any) -> str | Sequence[str]:
    """Returns a solution that callers may pass: a string, or a sequence or an array of strings, one per step."""
    if isinstance(given, str):
        return given
    solution = to_plain(given)
    if isinstance(solution, str):
        return solution
    if isinstance(solution, bytes | bytearray):
        raise InputError(f"The solution is {type(solution).__name__}; decode it to str first: solution.decode().")
    if not isinstance(solution, Sequence):
        raise InputError(
            f"The solution is of type {type(given).__name__}; pass a str, or a list with one str per step."
        )
    for number, step in enumerate(solution):
        if not isinstance(step, str):
            hint = " Decode it first." if isinstance(step, bytes | bytearray) else ""
            raise InputError(
                f"Step {number} of the list is of type {type(step).__name__}; every step must be a str.{hint}"
            )
    return solution
