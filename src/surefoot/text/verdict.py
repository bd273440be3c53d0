"""What a comparison of two answers found."""

from __future__ import annotations

from typing import NamedTuple


class Verdict(NamedTuple):
    """The comparison applies: the answers are equal, are not, or the texts do not tell (None).

    A comparison that does not apply to two answers returns None instead of a verdict.
    """

    same: bool | None
