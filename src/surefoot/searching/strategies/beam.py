"""Beam search: in every round, the best paths of all are continued.

A finished path that ranks among them takes its place for good; the others share the remaining continuations. So a
round never generates more than N continuations, and the search ends when all places are taken by finished paths.
"""

from __future__ import annotations

from collections.abc import Sequence

from surefoot.searching.exploration import Branch, Exploration
from surefoot.searching.tree import Node, prune_rest, ranked


async def beam(search: Exploration) -> None:
    """Keep the best paths of the whole tree."""
    places, branches = search.settings.beams, search.settings.branches
    paths = [search.root]
    while paths and places:
        children = await search.expand(shared(paths, places * branches))
        order = ranked(children)
        prune_rest(order, places)
        kept = order[:places]
        paths = [node for node in kept if node.can_continue]
        places -= sum(node.end == "answer" for node in kept)


def shared(paths: Sequence[Node], total: int) -> list[Branch]:
    """Share continuations among paths, best first. The first ones get one more if they cannot be divided evenly."""
    each, rest = divmod(total, len(paths))
    return [Branch(node, each + (at < rest)) for at, node in enumerate(paths)]
