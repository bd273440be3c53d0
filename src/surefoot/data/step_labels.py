"""A labelled solution, independent of the file format that it comes from.

A target is the probability that a step is correct: 1 or 0 for a label, a value in between for a soft label, None if
the step has no label. Nothing is filled in: what a format does not say is None.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from surefoot.errors import InputError

WRONG_BELOW = 0.5
"""A target below this means that the step is incorrect."""
RATINGS: Mapping[int | None, float | None] = {1: 1.0, 0: 1.0, -1: 0.0, None: None}
"""PRM800K's ratings as targets: good, neutral (correct, but no progress), bad, not rated."""

Targets = tuple[float | None, ...]


def check_targets(targets: Sequence[float | None]) -> None:
    """Raise `InputError` if a target is not a probability."""
    for number, target in enumerate(targets):
        if target is not None and not 0.0 <= target <= 1.0:
            raise InputError(f"The target of step {number} is {target}, not a probability.")


def first_wrong(targets: Sequence[float | None]) -> int:
    """Return the index of the first incorrect step, or -1.

    >>> first_wrong([1.0, None, 0.2, 0.0])
    2
    """
    return next((at for at, target in enumerate(targets) if target is not None and target < WRONG_BELOW), -1)


class Loss(NamedTuple):
    """A kind of information that a conversion drops or changes."""

    what: str
    unit: str
    """What is counted: steps, solutions, completions."""


Losses = Counter[Loss]


@dataclass(frozen=True)
class Alternative:
    """Another candidate for one step, which the solution does not continue with."""

    step: int
    text: str
    target: float | None
    neutral: bool = False


@dataclass(frozen=True)
class AnnotatedSolution:
    """A question, the steps of one solution, and one target per step."""

    question: str
    steps: tuple[str, ...]
    targets: Targets
    neutral: frozenset[int] = frozenset()
    """Indices of the steps that are rated neutral. Their target is 1."""
    alternatives: tuple[Alternative, ...] = ()
    id: str | None = None
    answer: str | None = None
    """The reference answer to the question."""
    final_answer_correct: bool | None = None
    generator: str | None = None
    """The model that wrote the solution."""
    source: str | None = None
    """The data set or task that the question comes from."""
    format: str | None = field(default=None, compare=False)
    """The name of the format that `row` has."""
    row: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)
    """The row that the solution was read from, unchanged."""
    reading_losses: tuple[Loss, ...] = field(default=(), compare=False)
    """What the row says but this object does not."""

    def __post_init__(self) -> None:
        if not self.question.strip():
            raise InputError("The question is empty.")
        if not self.steps:
            raise InputError("The solution has no steps.")
        if len(self.steps) != len(self.targets):
            raise InputError(f"Got {len(self.steps)} steps but {len(self.targets)} labels.")
        check_targets(self.targets)

    @property
    def first_error(self) -> int:
        """The index of the first incorrect step, or -1."""
        return first_wrong(self.targets)

    def branches(self) -> Iterator[AnnotatedSolution]:
        """Yield one solution per alternative that has a label: the steps before it, then the alternative."""
        for one in self.alternatives:
            if one.target is None:
                continue
            kept = frozenset(at for at in self.neutral if at < one.step)
            yield replace(
                self,
                steps=(*self.steps[: one.step], one.text),
                targets=(*self.targets[: one.step], one.target),
                neutral=kept | {one.step} if one.neutral else kept,
                alternatives=(),
                final_answer_correct=None,
                row=None,
                reading_losses=(),
            )

    def without_alternatives(self) -> AnnotatedSolution:
        """Return the solution alone."""
        return replace(self, alternatives=())


def targets_of_label(count: int, label: int) -> Targets:
    """Return the targets for the index of the first incorrect of `count` steps, or -1 if all steps are correct.

    Steps after the first error have no target: the correctness of a step that builds on an error is not well defined.
    """
    if not -1 <= label < count:
        raise InputError(f"label is {label}, but for {count} steps it must be in -1..{count - 1}.")
    return (1.0,) * count if label < 0 else (*(1.0,) * label, 0.0, *(None,) * (count - label - 1))


def targets_of_ratings(ratings: Sequence[int | None]) -> Targets:
    """Return the targets for PRM800K's ratings."""
    for rating in ratings:
        if isinstance(rating, bool) or not isinstance(rating, int | None) or rating not in RATINGS:
            raise InputError(f"The rating {rating!r} is invalid; it must be 1, 0, -1 or null.")
    return tuple(RATINGS[rating] for rating in ratings)


def rating_of(target: float | None, neutral: bool) -> int | None:
    """Return PRM800K's rating for a target."""
    return None if target is None else 0 if neutral else -1 if target < WRONG_BELOW else 1
