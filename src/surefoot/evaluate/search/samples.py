"""Independent whole answers as baselines: those that a number of tokens pays for, and what they vote for.

Invariant: samples are taken in the order of sampling. Samples that were cut off or failed cost tokens, but they neither
vote nor can they be chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from surefoot.core.search_result import SearchNode, SearchResult


@dataclass(frozen=True)
class Taken:
    """The first samples of a question."""

    result: SearchResult
    """The samples, with the answers of those that were taken only."""
    count: int
    tokens: int
    used_up: bool
    """Whether all samples were taken and tokens are left over."""
    exceeded: bool
    """Whether the first sample alone costs more than the budget."""


def samples_of(result: SearchResult | None) -> list[SearchNode]:
    """Return the samples in the order of sampling: the children of the root."""
    return [] if result is None else [node for node in result.nodes if node.parent == 0]


def take(result: SearchResult | None, tokens: int) -> Taken | None:
    """Take as many samples as fit into `tokens`, at least one; None if there are no samples."""
    samples = samples_of(result)
    if result is None or not samples:
        return None
    spent = list(accumulate(sample.tokens for sample in samples))
    count = max(1, sum(total <= tokens for total in spent))
    return Taken(
        result=first_answers(result, samples[:count]),
        count=count,
        tokens=spent[count - 1],
        used_up=spent[-1] < tokens,
        exceeded=spent[0] > tokens,
    )


def first_answers(result: SearchResult, samples: Sequence[SearchNode]) -> SearchResult:
    """Return the result with the answers of these samples only, so that it selects among them."""
    kept = {sample.id for sample in samples}
    answers = []
    for answer in result.answers:
        nodes = tuple(at for at in answer.nodes if at in kept)
        if nodes:
            votes = sum(result.nodes[at].count for at in nodes)
            answers.append(replace(answer, nodes=nodes, votes=votes))
    answers.sort(key=lambda each: (-each.votes, min(each.nodes)))
    return replace(result, answers=tuple(answers))
