"""Best-of-N: N whole answers, chosen between at the end by their scores or their votes.

Identical answers are not merged: each is a sample with tokens of its own.
"""

from __future__ import annotations

from surefoot.searching.exploration import Branch, Exploration


async def best_of_n(search: Exploration) -> None:
    """Sample N whole answers."""
    await search.expand([Branch(search.root, search.settings.n)], whole=True, merge=False)
