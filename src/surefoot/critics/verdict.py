"""What a critic says about a step: votes, each with a score or the reason why it has none.

Invariant: a vote without a readable verdict never becomes a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from statistics import pstdev

from surefoot.core.members import MemberScore
from surefoot.core.result import StepStatus

AFTER_ERROR = "The critic found an error in an earlier step, so it says nothing about this one."
SPLIT_VOTE = "Too many votes have no readable verdict. The first reason: {reason}"


@dataclass(frozen=True)
class Vote:
    """One verdict on one step."""

    score: float | None
    status: StepStatus = "scored"
    reason: str | None = None
    mass: float | None = None
    """The probability of both labels together; None if the verdict was read from text."""


@dataclass(frozen=True)
class Judgement:
    """All votes on one step."""

    votes: tuple[Vote, ...]
    output: str | None = None
    """What the model wrote in its first vote, for critics that read their own earlier output."""

    @property
    def known(self) -> list[float]:
        """The scores of the votes that have one."""
        return [vote.score for vote in self.votes if vote.score is not None]

    @property
    def score(self) -> float | None:
        """The mean of the votes. None if most votes stopped at an earlier error, or most others are unreadable."""
        known = self.known
        return fsum(known) / len(known) if known and self._decisive is None else None

    @property
    def status(self) -> StepStatus:
        """`scored`, or why there is no score."""
        return "scored" if self._decisive is None else self._decisive.status

    @property
    def reason(self) -> str | None:
        """Why there is no score."""
        failure = self._decisive
        if failure is None or not self.known or failure.status == "after_error":
            return None if failure is None else failure.reason
        return SPLIT_VOTE.format(reason=failure.reason)

    @property
    def _decisive(self) -> Vote | None:
        """The vote that says why there is no score; None if there is one."""
        silent = [vote for vote in self.votes if vote.status == "after_error"]
        unreadable = [vote for vote in self.votes if vote.score is None and vote.status != "after_error"]
        if len(silent) > len(self.known):
            return silent[0]
        return unreadable[0] if len(unreadable) > len(self.known) else None

    @property
    def spread(self) -> float | None:
        """The standard deviation of the votes; None for a single one."""
        return pstdev(self.known) if self.score is not None and len(self.known) > 1 else None

    @property
    def mass(self) -> float | None:
        """The lowest probability of both labels together over all votes that were read from probabilities."""
        return min((vote.mass for vote in self.votes if vote.mass is not None), default=None)

    def members(self) -> tuple[MemberScore, ...]:
        """The votes as results show them; none if there is only one."""
        if len(self.votes) < 2:
            return ()
        return tuple(
            MemberScore(f"vote {number}", vote.score, None if vote.score is not None else vote.reason)
            for number, vote in enumerate(self.votes, 1)
        )


def failed(status: StepStatus, reason: str, mass: float | None = None) -> Vote:
    """A vote without a verdict."""
    return Vote(None, status, reason, mass)


def from_first_errors(reported: Sequence[int | Vote], steps: int) -> list[Judgement]:
    """Judgements of all steps, from votes that each name the first wrong step, -1 for none, or failed.

    Steps before the reported error are right, that one is wrong, and nothing is known about later ones.

    >>> [judgement.score for judgement in from_first_errors([1], 3)]
    [1.0, 0.0, None]
    """
    return [
        Judgement(tuple(each if isinstance(each, Vote) else _vote(each, step) for each in reported))
        for step in range(steps)
    ]


def _vote(first_error: int, step: int) -> Vote:
    if first_error < 0 or step < first_error:
        return Vote(1.0)
    return Vote(0.0) if step == first_error else Vote(None, "after_error", AFTER_ERROR)
