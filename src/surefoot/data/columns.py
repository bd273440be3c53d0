"""Finds the question, the solutions and the gold answer in the rows of a table, whatever its columns are called."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from surefoot.core.protocols import Item
from surefoot.data.items import read_question
from surefoot.data.messages import completion_text, is_conversation, question_of, response_of
from surefoot.errors import InputError, OptionError

ABSENT = object()


@dataclass(frozen=True)
class Columns:
    """Where a row holds what is scored. A name may be a path into nested values: `messages.0.content`.

    >>> columns = Columns(question="problem", completions="samples")
    >>> columns.items({"problem": "What is 2 + 3?", "samples": ["It is 5.", "It is 6."]})
    [('What is 2 + 3?', 'It is 5.'), ('What is 2 + 3?', 'It is 6.')]

    `solution` holds one text, `steps` one list of steps, `completions` a list of texts. A text may also be a list of
    chat messages: then the question is the last user message and the solution what the assistant said. Without any of
    the three, a row has `solution` or `steps`. `gold` holds the reference answer.
    """

    question: str = "question"
    solution: str | None = None
    steps: str | None = None
    completions: str | None = None
    gold: str | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("solution", "steps", "completions") if getattr(self, name) is not None]
        if len(given) > 1:
            raise OptionError(f"{', '.join(given)}: give one of them, because a row is read in one way.")

    def require(self, available: Collection[str]) -> None:
        """Reject a table that lacks one of the columns."""
        wanted = [[name] for field in fields(self) if (name := getattr(self, field.name)) is not None]
        if self._solution_by_default:
            wanted.append(["solution", "steps"])
        for names in wanted:
            if not any(name in available or name.partition(".")[0] in available for name in names):
                raise OptionError(
                    f"The input has no column {' or '.join(map(repr, names))}. It has: {', '.join(available)}. Name "
                    "the columns with question=... and one of solution=..., steps=... or completions=..."
                )

    @property
    def _solution_by_default(self) -> bool:
        return self.solution is None and self.steps is None and self.completions is None

    def key(self, row: Mapping[str, Any]) -> str:
        """Return the question of a row."""
        return _question(self._require(row, self.question), self.question)

    def items(self, row: Mapping[str, Any]) -> list[Item]:
        """Return question and solution of every solution in a row."""
        question = self.key(row)
        if self.completions is not None:
            found = self._require(row, self.completions)
            if not isinstance(found, list) or is_conversation(found):
                raise InputError(f"`{self.completions}` is {_kind(found)}, not a list of completions.")
            return [(question, _text(each, f"{self.completions}.{at}")) for at, each in enumerate(found)]
        return [(question, self._one_solution(row))]

    def gold_answer(self, row: Mapping[str, Any]) -> Any:
        """Return the reference answer of a row, or None."""
        found = ABSENT if self.gold is None else value_at(row, self.gold)
        return None if found is ABSENT else found

    def _one_solution(self, row: Mapping[str, Any]) -> str | list[str]:
        solution, steps = self.solution, self.steps
        if self._solution_by_default:
            given = [name for name in ("solution", "steps") if row.get(name) is not None]
            if len(given) != 1:
                problem = "both `solution` and `steps`" if given else "neither `solution` nor `steps`"
                raise InputError(f"The row has {problem}. It needs one of them.")
            solution, steps = (given[0], None) if given == ["solution"] else (None, given[0])
        if steps is not None:
            return _steps(self._require(row, steps), steps)
        assert solution is not None
        found = self._require(row, solution)
        if solution == self.question and is_conversation(found):
            return response_of(found)
        return _text(found, solution)

    def _require(self, row: Mapping[str, Any], name: str) -> Any:
        found = value_at(row, name)
        if found is ABSENT or found is None:
            raise InputError(f"`{name}` is missing." if found is ABSENT else f"`{name}` is null.")
        return found


def value_at(row: Mapping[str, Any], name: str) -> Any:
    """Return the value of a column, or of a path such as `messages.0.content`; ABSENT if there is none."""
    if name in row:
        return row[name]
    found: Any = row
    for piece in name.split("."):
        if isinstance(found, Mapping) and piece in found:
            found = found[piece]
        elif isinstance(found, list) and piece.lstrip("-").isdigit() and -len(found) <= int(piece) < len(found):
            found = found[int(piece)]
        else:
            return ABSENT
    return found


def _question(value: Any, name: str) -> str:
    if is_conversation(value):
        return question_of(value)
    if not isinstance(value, str):
        raise InputError(f"`{name}` is {_kind(value)}, not text or chat messages.")
    return read_question(value)


def _text(value: Any, name: str) -> str:
    if is_conversation(value):
        return str(completion_text(value))
    if not isinstance(value, str):
        hint = " A list of steps is read with steps=..., a list of completions with completions=..."
        raise InputError(
            f"`{name}` is {_kind(value)}, not text or chat messages.{hint if isinstance(value, list) else ''}"
        )
    return value


def _steps(value: Any, name: str) -> list[str]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise InputError(f"`{name}` is {_kind(value)}, not a list of steps.")
    if wrong := [step for step in value if not isinstance(step, str)]:
        raise InputError(f"`{name}` contains {_kind(wrong[0])}; every step has to be text.")
    return list(value)


def _kind(value: Any) -> str:
    return "null" if value is None else type(value).__name__
