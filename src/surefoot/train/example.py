"""A training example: a question, the steps of one solution, and what is known of each step.

The rule: a target is the probability that a step is right: 1 or 0 for a label, something between for a teacher's
opinion, None where nothing is known. Behind the first wrong step nothing is known: whether a step that builds on an
error is right is not a question with an answer.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from surefoot.errors import InputError, OptionError

MARK = re.compile(r"<<[^<>\n]*>>")
WRONG_BELOW = 0.5
"""A target below it calls a step wrong."""


@dataclass(frozen=True)
class Example:
    """One solution and its targets, one a step."""

    question: str
    steps: tuple[str, ...]
    targets: tuple[float | None, ...]
    source: str = ""

    def __post_init__(self) -> None:
        if not self.steps:
            raise InputError("The solution has no steps.")
        if len(self.steps) != len(self.targets):
            raise InputError(f"There are {len(self.steps)} steps and {len(self.targets)} targets.")
        for number, target in enumerate(self.targets):
            if target is not None and not 0.0 <= target <= 1.0:
                raise InputError(f"The target of step {number} is {target}, not a probability.")

    @property
    def first_error(self) -> int:
        """The index of the first step that is called wrong, or -1."""
        return next((at for at, target in enumerate(self.targets) if target is not None and target < WRONG_BELOW), -1)

    @property
    def has_loss(self) -> bool:
        """Whether anything can be learnt from it."""
        return any(target is not None for target in self.targets)


def from_label(question: str, steps: Sequence[str], label: int, source: str = "") -> Example:
    """`label` is the index of the first wrong step, or -1 when every step is right."""
    if not -1 <= label < len(steps):
        raise InputError(f"label is {label}, and there are {len(steps)} steps: it must lie in -1..{len(steps) - 1}.")
    targets: list[float | None] = [1.0] * len(steps)
    if label >= 0:
        targets[label:] = [0.0] + [None] * (len(steps) - label - 1)
    return Example(question, tuple(steps), tuple(targets), source)


def from_ratings(question: str, steps: Sequence[str], ratings: Sequence[int | None], source: str = "") -> Example:
    """PRM800K's ratings: 1 good, 0 neutral (both count as right), -1 bad, None not rated."""
    if len(ratings) != len(steps):
        raise InputError(f"There are {len(steps)} steps and {len(ratings)} ratings.")
    meaning = {1: 1.0, 0: 1.0, -1: 0.0, None: None}
    for rating in ratings:
        if rating not in meaning:
            raise InputError(f"A rating is {rating!r}; it must be 1, 0, -1 or null.")
    return Example(question, tuple(steps), stop_at_error([meaning[rating] for rating in ratings]), source)


def from_scores(question: str, steps: Sequence[str], scores: Sequence[float | None], source: str = "") -> Example:
    """A teacher's probabilities as soft targets."""
    return Example(question, tuple(steps), stop_at_error(scores), source)


def stop_at_error(targets: Sequence[float | None]) -> tuple[float | None, ...]:
    """The targets up to and including the first wrong step, and None behind it."""
    kept: list[float | None] = []
    wrong = False
    for target in targets:
        kept.append(None if wrong else target)
        wrong = wrong or (target is not None and target < WRONG_BELOW)
    return tuple(kept)


def strip_marks(text: str) -> str:
    """GSM8K's calculator marks (`<<48/2=24>>`) taken out: people and models do not write them."""
    return MARK.sub("", text)


def set_aside(
    examples: Sequence[Example], share: float, seed: int = 0, sources: Collection[str] = ()
) -> tuple[list[Example], list[Example]]:
    """Parts the examples by question: those to train on, and about `share` of the questions to validate on.

    No question is on both sides. With `sources`, only examples from these are validated on.
    """
    if not 0.0 <= share < 1.0:
        raise OptionError(f"The share to set aside is {share}; it must lie between 0 and 1.")
    keys = {key for key in map(question_key, {example.question for example in examples}) if _draw(key, seed) < share}
    kept = [example for example in examples if question_key(example.question) not in keys]
    aside = [example for example in examples if question_key(example.question) in keys]
    return kept, [example for example in aside if not sources or example.source in sources]


def _draw(key: str, seed: int) -> float:
    """A number between 0 and 1 that depends on the key and the seed alone."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{key}".encode()).digest()[:6], "big") / 2**48


def question_key(question: str) -> str:
    """What makes two spellings of a question the same one: its letters and digits."""
    return "".join(char for char in question.lower() if char.isalnum())
