"""Diverse verifier tree search (DVTS): independent subtrees, each of which continues its own best path.

Subtrees do not compete, so the answers stay diverse. Every node records its subtree.
"""

from __future__ import annotations

from surefoot.searching.exploration import Branch, Exploration
from surefoot.searching.tree import Node, prune_rest, ranked


async def dvts(search: Exploration) -> None:
    """Continue the best path of every subtree."""
    branches = search.settings.branches
    tips: dict[int, Node] = dict.fromkeys(range(search.settings.beams), search.root)
    while tips:
        children = await search.expand([Branch(node, branches, subtree) for subtree, node in tips.items()])
        following: dict[int, Node] = {}
        for subtree in tips:
            order = ranked([node for node in children if node.subtree == subtree])
            prune_rest(order, 1, " in its subtree")
            if order and order[0].can_continue:
                following[subtree] = order[0]
        tips = following
