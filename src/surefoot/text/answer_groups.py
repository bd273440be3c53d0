"""Group answers that mean the same.

Answers are compared by `text.equality.same_answer`, each pair once. An answer joins the group of the reference if it
matches, else the first group whose leader it matches. An undecided comparison is not a match for voting, and leaves the
answer unjudged against a reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from surefoot.text.equality import same_answer

NO_ANSWER = -1
"""The group of a missing answer."""


@dataclass(frozen=True)
class Grouping:
    """The answers of one problem, grouped by meaning."""

    groups: tuple[int, ...]
    """The group of each answer: a number from 0, or NO_ANSWER."""
    correct: tuple[bool | None, ...]
    """Whether each answer matches the reference. A missing answer is incorrect; None means undecided."""


class AnswerGrouper:
    """Groups answers and remembers every comparison."""

    def __init__(self, timeout: float = 3.0) -> None:
        self.compared = 0
        """The number of pairs compared so far."""
        self._timeout = timeout
        self._verdicts: dict[tuple[str, str], bool | None] = {}

    def same(self, reference: str, answer: str) -> bool | None:
        """Return `same_answer(reference, answer)`, from memory if the pair was compared before."""
        pair = (reference, answer)
        if pair not in self._verdicts:
            self.compared += 1
            self._verdicts[pair] = same_answer(reference, answer, timeout=self._timeout)
        return self._verdicts[pair]

    def group(self, answers: Sequence[str | None], reference: str | None) -> Grouping:
        """Group the answers. With a reference, group 0 is the one that matches it."""
        leaders = [] if reference is None else [reference]
        first = len(leaders)
        group_of: dict[str, int] = {}
        verdict_of: dict[str, bool | None] = {}
        for answer in dict.fromkeys(answers):
            if answer is None:
                continue
            if reference is not None:
                verdict_of[answer] = self.same(reference, answer)
            # An undecided answer stays out of the reference's group.
            group_of[answer] = 0 if verdict_of.get(answer) else self._find_group(leaders, first, answer)
        return Grouping(
            tuple(NO_ANSWER if answer is None else group_of[answer] for answer in answers),
            tuple(False if answer is None else verdict_of.get(answer) for answer in answers),
        )

    def _find_group(self, leaders: list[str], first: int, answer: str) -> int:
        for number, leader in enumerate(leaders[first:], start=first):
            if self.same(leader, answer) or self.same(answer, leader):
                return number
        leaders.append(answer)
        return len(leaders) - 1
