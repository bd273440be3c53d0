"""A training example: a question, the steps of one solution, and a target per step.

A target is the probability that the step is correct: 1 or 0 for a label, a value in between for a teacher's score, None
if unknown. Targets after the first incorrect step are unknown: the correctness of a step that builds on an error is not
well defined.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from surefoot.data.step_labels import WRONG_BELOW, check_targets, first_wrong, targets_of_label, targets_of_ratings
from surefoot.errors import InputError, OptionError

MARK = re.compile(r"<<[^<>\n]*>>")


@dataclass(frozen=True)
class Example:
    """One solution with one target per step."""

    question: str
    steps: tuple[str, ...]
    targets: tuple[float | None, ...]
    source: str = ""

    def __post_init__(self) -> None:
        if not self.steps:
            raise InputError("The solution has no steps.")
        if len(self.steps) != len(self.targets):
            raise InputError(f"Got {len(self.steps)} steps but {len(self.targets)} targets.")
        check_targets(self.targets)

    @property
    def first_error(self) -> int:
        """The index of the first incorrect step, or -1."""
        return first_wrong(self.targets)

    @property
    def has_loss(self) -> bool:
        """Whether any step has a target."""
        return any(target is not None for target in self.targets)


def from_label(question: str, steps: Sequence[str], label: int, source: str = "") -> Example:
    """Make an example from a label: the index of the first incorrect step, or -1 if all steps are correct."""
    return Example(question, tuple(steps), targets_of_label(len(steps), label), source)


def from_ratings(question: str, steps: Sequence[str], ratings: Sequence[int | None], source: str = "") -> Example:
    """Make an example from PRM800K's ratings: 1 good, 0 neutral (both count as correct), -1 bad, None not rated."""
    if len(ratings) != len(steps):
        raise InputError(f"Got {len(steps)} steps but {len(ratings)} ratings.")
    return Example(question, tuple(steps), stop_at_error(targets_of_ratings(ratings)), source)


def from_scores(question: str, steps: Sequence[str], scores: Sequence[float | None], source: str = "") -> Example:
    """Make an example with a teacher's probabilities as soft targets."""
    return Example(question, tuple(steps), stop_at_error(scores), source)


def stop_at_error(targets: Sequence[float | None]) -> tuple[float | None, ...]:
    """Replace the targets after the first incorrect step with None."""
    kept: list[float | None] = []
    wrong = False
    for target in targets:
        kept.append(None if wrong else target)
        wrong = wrong or (target is not None and target < WRONG_BELOW)
    return tuple(kept)


def strip_marks(text: str) -> str:
    """Remove GSM8K's calculator annotations (`<<48/2=24>>`), which neither people nor models write."""
    return MARK.sub("", text)


def set_aside(
    examples: Sequence[Example], share: float, seed: int = 0, sources: Collection[str] = ()
) -> tuple[list[Example], list[Example]]:
    """Split the examples by question into training and validation; about `share` of the questions go to validation.

    No question is in both. With `sources`, only examples from these sources are used for validation.
    """
    if not 0.0 <= share < 1.0:
        raise OptionError(f"The share to set aside is {share}; it must be at least 0 and below 1.")
    keys = {key for key in map(question_key, {example.question for example in examples}) if _draw(key, seed) < share}
    kept = [example for example in examples if question_key(example.question) not in keys]
    aside = [example for example in examples if question_key(example.question) in keys]
    return kept, [example for example in aside if not sources or example.source in sources]


def balanced_part(examples: Sequence[Example], most: int, seed: int = 0) -> list[Example]:
    """Keep at most `most` examples of each source, half of them with an error where there are enough of both."""
    groups: dict[str, tuple[list[int], list[int]]] = {}
    for at, example in enumerate(examples):
        groups.setdefault(example.source, ([], []))[example.first_error >= 0].append(at)
    kept: list[int] = []
    for group in groups.values():
        right, wrong = (sorted(part, key=lambda at: _draw(repr(examples[at]), seed)) for part in group)
        count = max(most // 2, most - len(right))
        kept += wrong[:count] + right[: most - min(count, len(wrong))]
    return [examples[at] for at in sorted(kept)]


def _draw(key: str, seed: int) -> float:
    """Return a number between 0 and 1 that depends only on the key and the seed."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{key}".encode()).digest()[:6], "big") / 2**48


def question_key(question: str) -> str:
    """Return the letters and digits of a question, which identify it regardless of spacing and punctuation."""
    return "".join(char for char in question.lower() if char.isalnum())
