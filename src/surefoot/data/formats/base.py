"""The contract of a format of step labels, and what its modules share.

`parse` rejects a malformed row with an `InputError`. `write` never drops or changes anything without counting it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from surefoot.data.step_labels import WRONG_BELOW, AnnotatedSolution, Loss, Losses
from surefoot.errors import InputError, OptionError

Row = Mapping[str, Any]

NEUTRAL = Loss("neutral ratings became correct", "steps")
SOFT = Loss(f"soft labels became correct (at least {WRONG_BELOW}) or incorrect", "steps")
UNLABELLED_END = Loss("steps without a label at the end were dropped", "steps")
UNLABELLED = Loss("solutions were dropped because a step without a label precedes a labelled one", "solutions")
NO_LABEL = Loss("solutions were dropped because no step has a label", "solutions")
AFTER_ERROR = Loss("labels after the first error were dropped", "steps")
ALTERNATIVES = Loss("alternative completions were dropped", "completions")
NO_SOLUTION = Loss("rows without any step were dropped", "rows")
WHITE_SPACE = Loss("white space around the question or a step was removed", "solutions")

_FIRST_STEP = re.compile(r"(?<!\w)step 1:", re.IGNORECASE)


@dataclass(frozen=True)
class Format:
    """One format of step labels."""

    name: str
    """As on the command line."""
    summary: str
    labels: str
    """What the format can say about a step."""
    limits: str
    """What the format cannot represent."""
    recognizes: Callable[[Row], bool]
    """Whether the keys of a row are those of the format."""
    parse: Callable[[Row], AnnotatedSolution]
    write: Callable[[AnnotatedSolution, Losses], dict[str, Any] | None] | None
    """Build a row, or return None if the format cannot represent the solution. Count all that is lost. None for a
    format that is only read."""
    fields: Collection[str]
    """The keys that `parse` reads, with dots for nested ones. Others survive only if the format stays the same."""
    is_empty: Callable[[Row], bool] = lambda row: False
    """Whether a valid row has no solution to use. Such rows are skipped."""
    empty: Loss = NO_SOLUTION
    """How skipped rows are counted."""
    carries: Collection[str] = ()
    """Which of the optional fields of a solution the format has."""

    def read(self, row: Row) -> AnnotatedSolution:
        """Parse a row and keep it, so that `rewrite` can return it unchanged."""
        solution = self.parse(row)
        unread = tuple(Loss(f"`{name}` was dropped", "solutions") for name in _unread(row, self.fields))
        return replace(solution, format=self.name, row=row, reading_losses=solution.reading_losses + unread)

    def rewrite(self, solution: AnnotatedSolution, losses: Losses) -> dict[str, Any] | None:
        """Return the row of a solution. A solution that was read from this format gets its own row back."""
        if solution.format == self.name and solution.row is not None and self.parse(solution.row) == solution:
            return dict(solution.row)
        if self.write is None:
            raise OptionError(f"The format {self.name} can only be read.")
        found = Losses()
        row = self.write(solution, found)
        if row is not None:
            found.update(solution.reading_losses)
            found.update(self._uncarried(solution))
        losses.update(found)
        return row

    def _uncarried(self, solution: AnnotatedSolution) -> Iterable[Loss]:
        for name in ("id", "answer", "final_answer_correct", "generator", "source"):
            if getattr(solution, name) is not None and name not in self.carries:
                yield Loss(f"`{name}` was dropped", "solutions")
        if "alternatives" not in self.carries:
            yield from [ALTERNATIVES] * len(solution.alternatives)


def _unread(row: Row, fields: Collection[str], prefix: str = "") -> Iterable[str]:
    """Yield the names of the fields with a value that are not among `fields`."""
    for key, value in row.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and any(field.startswith(f"{name}.") for field in fields):
            yield from _unread(value, fields, f"{name}.")
        elif name not in fields and value is not None:
            yield name


def hard_labels(solution: AnnotatedSolution, losses: Losses) -> list[bool | None]:
    """Return one label per step, with neutral as correct."""
    losses[NEUTRAL] += len(solution.neutral)
    return [_hard(target, losses) for target in solution.targets]


def _hard(target: float | None, losses: Losses) -> bool | None:
    if target is None:
        return None
    losses[SOFT] += target not in (0.0, 1.0)
    return target >= WRONG_BELOW


def fully_labelled(solution: AnnotatedSolution, losses: Losses) -> AnnotatedSolution | None:
    """Cut the steps without a label at the end. Return None if others remain, or if no step has a label."""
    count = max((at + 1 for at, target in enumerate(solution.targets) if target is not None), default=0)
    if not count or None in solution.targets[:count]:
        losses[UNLABELLED if count else NO_LABEL] += 1
        return None
    losses[UNLABELLED_END] += len(solution.steps) - count
    return replace(solution, steps=solution.steps[:count], targets=solution.targets[:count])


def stripped(solution: AnnotatedSolution, losses: Losses) -> AnnotatedSolution:
    """Remove the white space around the question and the steps, for formats that join them to one text."""
    bare = replace(solution, question=solution.question.strip(), steps=tuple(step.strip() for step in solution.steps))
    losses[WHITE_SPACE] += bare != solution
    return bare


def split_question(text: str) -> tuple[str, str] | None:
    """Split a text into the question and the first step, which begins with `Step 1:`. None if it does not."""
    found = _FIRST_STEP.search(text)
    if found is None or not text[: found.start()].strip():
        return None
    return text[: found.start()].strip(), text[found.start() :].strip()


def text_of(row: Row, *names: str) -> str:
    """Return the first of the fields that is present; it must be a non-empty text."""
    value = next((row[name] for name in names if name in row), None)
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"expected {' or '.join(f'`{name}`' for name in names)} as a non-empty string.")
    return value


def texts_of(row: Row, name: str) -> tuple[str, ...]:
    """Return a list of texts."""
    if name not in row:
        raise InputError(f"expected `{name}`, a list of strings.")
    values = row[name]
    if not isinstance(values, list | tuple) or not all(isinstance(value, str) for value in values):
        raise InputError(f"`{name}` must be a list of strings.")
    return tuple(values)


def list_of(row: Row, name: str) -> list[Any]:
    """Return a list."""
    values = row.get(name)
    if not isinstance(values, list | tuple):
        raise InputError(f"`{name}` must be a list.")
    return list(values)


def optional_text(row: Row, name: str, lost: list[Loss]) -> str | None:
    """Return a text, or None if the field is missing or null. A number becomes text; other values are lost."""
    value = row.get(name)
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value)
    if value is not None:
        lost.append(Loss(f"`{name}`, which is not a text, was dropped", "solutions"))
    return None


def optional_flag(row: Row, name: str, lost: list[Loss]) -> bool | None:
    """Return true or false, or None if the field is missing or null. Other values are lost."""
    value = row.get(name)
    if isinstance(value, bool):
        return value
    if value is not None:
        lost.append(Loss(f"`{name}`, which is not true or false, was dropped", "solutions"))
    return None


def label_target(value: Any, labels: Mapping[Any, float | None], name: str) -> float | None:
    """Return the target of one label, which must be among `labels`."""
    for label, target in labels.items():
        if type(value) is type(label) and value == label:
            return target
    raise InputError(f"`{name}` has the label {value!r}; expected one of {', '.join(map(repr, labels))}.")


def without_nulls(**fields: Any) -> dict[str, Any]:
    """Return the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}
