"""What each member of an ensemble gave for a step.

Invariant: a member either has a score or a reason, never both and never neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class MemberScore:
    """The score of one member for one step, or the reason why it gave none.

    >>> MemberScore("mini", 0.75)
    MemberScore(model='mini', score=0.75, reason=None)
    """

    model: str
    """The name of the member, unique in its ensemble."""
    score: float | None
    reason: str | None = None


def plain_members(members: Iterable[MemberScore]) -> list[dict[str, Any]]:
    """Return members as JSON-compatible data."""
    return [dict(vars(member)) for member in members]


def read_members(data: Iterable[Mapping[str, Any]]) -> tuple[MemberScore, ...]:
    """Rebuild members from their `plain_members`."""
    return tuple(MemberScore(**member) for member in data)
