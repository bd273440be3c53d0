"""Which of several answers mean the same.

The rule: answers are compared by `text.equality.same_answer`, each pair once. An answer belongs to the reference if
it means the same, else to the first answer before it that does. What could not be decided is not the same for a vote,
and not judged against a reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from surefoot.evaluate.selection import NO_ANSWER
from surefoot.text.equality import same_answer


@dataclass(frozen=True)
class Grouping:
    """The answers of one problem, sorted into classes."""

    classes: tuple[int, ...]
    """The class of each answer: a number from 0, or NO_ANSWER."""
    correct: tuple[bool | None, ...]
    """Whether each answer means the reference; no answer is never right. None where it was not decided."""


class AnswerBook:
    """Remembers which answers mean the same."""

    def __init__(self, timeout: float = 3.0) -> None:
        self.compared = 0
        """Pairs that were compared so far."""
        self._timeout = timeout
        self._known: dict[tuple[str, str], bool | None] = {}

    def same(self, reference: str, answer: str) -> bool | None:
        """As `same_answer`."""
        pair = (reference, answer)
        if pair not in self._known:
            self.compared += 1
            self._known[pair] = same_answer(reference, answer, timeout=self._timeout)
        return self._known[pair]

    def group(self, answers: Sequence[str | None], reference: str | None) -> Grouping:
        """The classes of these answers; the first class is the reference's if there is one."""
        leaders = [] if reference is None else [reference]
        number_of: dict[str, int] = {}
        verdict_of: dict[str, bool | None] = {}
        for answer in dict.fromkeys(answers):
            if answer is None:
                continue
            if reference is not None:
                verdict_of[answer] = self.same(reference, answer)
            # A verdict that is open stays out of the reference's class.
            first = 0 if reference is None else 1
            number_of[answer] = 0 if verdict_of.get(answer) else self._leader(leaders, first, answer)
        return Grouping(
            tuple(NO_ANSWER if answer is None else number_of[answer] for answer in answers),
            tuple(False if answer is None else verdict_of.get(answer) for answer in answers),
        )

    def _leader(self, leaders: list[str], first: int, answer: str) -> int:
        for number, leader in enumerate(leaders[first:], start=first):
            if self.same(leader, answer) or self.same(answer, leader):
                return number
        leaders.append(answer)
        return len(leaders) - 1
