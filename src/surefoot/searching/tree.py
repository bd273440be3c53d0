"""The tree of a search while it grows.

Invariant: node ids count from 0 in the order in which nodes were added, so equal searches give equal trees.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from surefoot.core.aggregation import find_aggregation
from surefoot.core.generation import EndState
from surefoot.core.result import DEFAULT_AGGREGATION
from surefoot.core.search_result import AnswerVotes, Fate, Lookahead, NodeStep, SearchNode
from surefoot.text.answer_groups import NO_ANSWER, AnswerGrouper
from surefoot.text.answers import find_answer


@dataclass(eq=False)
class Node:
    """A continuation in a growing tree."""

    id: int
    parent: Node | None
    text: str = ""
    end: EndState | None = None
    tokens: int = 0
    """Of all identical continuations together: what it cost."""
    length: int = 0
    """Of one of them: what the path grows by."""
    seed: int = 0
    steps: tuple[NodeStep, ...] = ()
    value: float | None = None
    count: int = 1
    fate: Fate = "open"
    reason: str | None = None
    subtree: int | None = None
    lookahead: Lookahead | None = None
    answer: str | None = None
    children: list[Node] = field(default_factory=list)
    depth: int = 0
    """The number of continuations from the root to this node."""

    @property
    def path(self) -> list[Node]:
        """The nodes from the root's child to this one."""
        found: list[Node] = []
        node = self
        while node.parent is not None:
            found.append(node)
            node = node.parent
        return found[::-1]

    @property
    def prefix(self) -> str:
        """The exact text of the path."""
        return "".join(node.text for node in self.path)

    @property
    def path_steps(self) -> list[NodeStep]:
        """The steps of the path."""
        return [step for node in self.path for step in node.steps]

    @property
    def path_tokens(self) -> int:
        """The tokens of the path."""
        return sum(node.length for node in self.path)

    @property
    def can_continue(self) -> bool:
        """Whether the path ends with a whole step that was scored."""
        return self.end == "step" and self.fate == "open" and self.value is not None

    def prune(self, reason: str) -> None:
        """Give up a path. Finished and failed ones stay what they are."""
        if self.fate == "open":
            self.fate, self.reason = "pruned", reason

    def frozen(self) -> SearchNode:
        """The node as part of a result."""
        return SearchNode(
            id=self.id,
            parent=None if self.parent is None else self.parent.id,
            text=self.text,
            end=self.end,
            tokens=self.tokens,
            seed=self.seed,
            depth=self.depth,
            steps=self.steps,
            value=self.value,
            count=self.count,
            fate=self.fate,
            reason=self.reason,
            subtree=self.subtree,
            lookahead=self.lookahead,
            answer=self.answer,
        )


class Tree:
    """A tree with one root, whose nodes are added one by one."""

    def __init__(self, aggregation: str | None, uncertainty: float = 0.0) -> None:
        self.root = Node(0, None, fate="root")
        self.nodes = [self.root]
        self.aggregation = aggregation
        """Ranks paths. None until the first result says what the makers of the model recommend."""
        self.uncertainty = uncertainty

    def add(self, parent: Node, text: str, end: EndState, tokens: int, seed: int, count: int) -> Node:
        """Add a continuation of `parent`."""
        node = Node(len(self.nodes), parent, text, end, tokens, tokens, seed, count=count, depth=parent.depth + 1)
        parent.children.append(node)
        self.nodes.append(node)
        return node

    def rank(self, node: Node) -> None:
        """Set the value of a node whose steps are scored: the aggregation of its path, with the lookahead."""
        steps = [*node.path_steps, *(node.lookahead.steps if node.lookahead else ())]
        scores = [step.cautious_score(self.uncertainty) for step in steps]
        node.value = find_aggregation(self.aggregation or DEFAULT_AGGREGATION).function(scores)

    def finish(self, node: Node) -> None:
        """Mark a path as a finished solution and read its answer."""
        node.fate = "finished"
        found = find_answer(node.prefix)
        node.answer = None if found is None else found.value

    def votes(self) -> tuple[AnswerVotes, ...]:
        """The answers of finished paths, grouped by meaning, most votes first."""
        finished = [node for node in self.nodes if node.fate == "finished"]
        grouping = AnswerGrouper().group([node.answer for node in finished], None)
        members: dict[int, list[Node]] = {}
        for node, group in zip(finished, grouping.groups, strict=True):
            if group != NO_ANSWER:
                members.setdefault(group, []).append(node)
        found = [
            AnswerVotes(nodes[0].answer or "", tuple(node.id for node in nodes), sum(node.count for node in nodes))
            for nodes in members.values()
        ]
        return tuple(sorted(found, key=lambda each: (-each.votes, each.nodes[0])))


def ranked(nodes: Sequence[Node]) -> list[Node]:
    """Nodes with a value, best first. Ties keep the order in which they were added."""
    return sorted((node for node in nodes if node.value is not None), key=lambda node: (-(node.value or 0.0), node.id))


def prune_rest(nodes: Sequence[Node], kept: int, among: str = "") -> None:
    """Give up all but the first `kept` of ranked nodes."""
    for place, node in enumerate(nodes[kept:], start=kept + 1):
        node.prune(f"rank {place} of {len(nodes)} in this round{among}; {kept} kept")


def steps_in(text: str, step_end: str) -> Iterator[str]:
    """The steps in a text, without surrounding blanks. Blank pieces are no steps."""
    return (piece for part in text.split(step_end) if (piece := part.strip()))
