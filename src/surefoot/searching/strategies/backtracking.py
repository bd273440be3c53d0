"""Greedy step search with backtracking: continue the best step, and go back if it is not good enough.

It takes the best of N continuations of the present path. If its last step scores at or below the threshold, it returns
to the best path that was left open anywhere in the tree, at most `backtracks` times. After that it goes on regardless.
"""

from __future__ import annotations

from surefoot.core.result import threshold_for
from surefoot.searching.exploration import Branch, Exploration
from surefoot.searching.tree import Node, ranked


async def backtracking(search: Exploration) -> None:
    """Follow one path, and leave it for the best open one if it gets worse."""
    threshold = threshold_for(search.scale, search.settings.threshold)
    left = search.settings.backtracks
    at: Node | None = search.root
    while at is not None:
        children = ranked(await search.expand([Branch(at, search.settings.n)]))
        best = children[0] if children else None
        accepted = best is not None and _last_score(best) > threshold
        if search.stop is not None or (best is not None and best.end == "answer" and (accepted or not left)):
            break
        if accepted or (best is not None and best.can_continue and not left):
            at = best
        elif left:
            left -= 1
            at = next((node for node in ranked(search.tree.nodes) if node.can_continue), None)
        else:
            at = None
    for node in search.tree.nodes:
        if search.stop is None and node.can_continue:
            node.prune("another path was followed")


def _last_score(node: Node) -> float:
    """The score of the last step of a path; a path without one is as bad as can be."""
    scores = [step.score for step in node.path_steps]
    return scores[-1] if scores and scores[-1] is not None else float("-inf")
