"""The result of a search: its whole tree, the answers that were found, and what it cost.

Invariant: an answer belongs to a node that ended with `answer`. Paths that were cut off, failed or given up stay in the
tree and are never returned as answers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from surefoot.core.aggregation import AGGREGATIONS, find_aggregation
from surefoot.core.generation import EndState
from surefoot.core.result import DEFAULT_AGGREGATION, Scale
from surefoot.display.counting import counted
from surefoot.errors import InputError, OptionError

Fate = Literal["root", "expanded", "finished", "pruned", "open", "failed"]
"""What became of a node. `expanded`: it was continued. `finished`: it ended the answer. `pruned`: others were better,
or it cannot be continued. `open`: the search ended first. `failed`: the generator or the scorer failed."""

Selection = Literal["best", "weighted", "majority"]
"""Which answer is returned: that of the best path, the one with the highest sum of scores, or the most frequent one."""
SELECTIONS: tuple[Selection, ...] = ("best", "weighted", "majority")

Stop = Literal["finished", "unfinished", "steps", "tokens", "calls", "seconds", "error"]
"""Why a search ended. `finished`: nothing was left to do, and there is a finished path. `unfinished`: nothing was left
to do, because every path was cut off or failed. `steps`, `tokens`, `calls` and `seconds`: this limit was reached.
`error`: the generator failed throughout."""


@dataclass(frozen=True)
class NodeStep:
    """A step in a node, with its score or the reason why there is none."""

    text: str
    score: float | None
    reason: str | None = None
    spread: float | None = None
    """The disagreement of the members of an ensemble, or of a model's heads; None if there is only one."""

    def cautious_score(self, uncertainty: float) -> float | None:
        """The score less `uncertainty` times the disagreement, at least 0: what ranks paths.

        >>> NodeStep("So it is 5.", 0.8, spread=0.3).cautious_score(0.5)
        0.65
        """
        if self.score is None or not uncertainty or self.spread is None:
            return self.score
        return max(0.0, self.score - uncertainty * self.spread)


@dataclass(frozen=True)
class Lookahead:
    """What the model would write next after a node, scored to judge the node. It is not part of any path."""

    text: str
    steps: tuple[NodeStep, ...]
    tokens: int
    end: EndState


@dataclass(frozen=True)
class SearchNode:
    """One continuation: its text, its scores and what became of it."""

    id: int
    """Position in `SearchResult.nodes`. Node 0 is the root, which has no text."""
    parent: int | None
    text: str
    """Exactly as generated. The texts from the root to a node make the solution so far."""
    end: EndState | None
    """None for the root."""
    tokens: int = 0
    seed: int = 0
    depth: int = 0
    steps: tuple[NodeStep, ...] = ()
    """One for most strategies. Whole answers have several."""
    value: float | None = None
    """What the search ranked it by: the aggregation of all scores of its path, with the lookahead if there is one."""
    count: int = 1
    """How many identical continuations of the parent this one stands for."""
    fate: Fate = "open"
    reason: str | None = None
    """Why it was pruned or failed."""
    subtree: int | None = None
    """Its subtree in a diverse verifier tree search."""
    lookahead: Lookahead | None = None
    answer: str | None = None
    """The final answer of a finished path, if it states one."""

    @property
    def spread(self) -> float | None:
        """The largest spread of its steps; None if no step has one."""
        return max((step.spread for step in self.steps if step.spread is not None), default=None)


@dataclass(frozen=True)
class Spent:
    """What a search cost."""

    generated_tokens: int = 0
    prompt_tokens: int = 0
    """Tokens of the prompts that were sent to the generator."""
    generator_calls: int = 0
    prm_tokens: int = 0
    """Tokens that the PRM computed."""
    prm_tokens_rescored: int = 0
    """Tokens that it would have computed if every candidate were scored from scratch."""
    prm_calls: int = 0


@dataclass(frozen=True)
class AnswerVotes:
    """An answer and the finished paths that state it, up to notation."""

    answer: str
    nodes: tuple[int, ...]
    votes: int
    """Solutions with this answer; identical ones count each."""


@dataclass(frozen=True)
class SearchResult:
    """What a search found for one question.

    >>> result = surefoot.search("What is 2 + 3?", generator="samples.jsonl", strategy="best-of-n", n=4)
    >>> [(answer.answer, answer.votes) for answer in result.answers]
    [('5', 4)]
    """

    question: str
    strategy: Mapping[str, Any]
    """Name and settings of the strategy."""
    nodes: tuple[SearchNode, ...]
    """The root, which has no text, and every continuation."""
    answers: tuple[AnswerVotes, ...]
    """Most votes first."""
    spent: Spent
    stop: Stop
    model: str
    """The scorer."""
    generator: str
    scale: Scale = "probability"
    aggregation: str = DEFAULT_AGGREGATION
    """Ranks paths; the scores of the tree yield all others, too."""
    selection: Selection = "best"
    seed: int = 0
    warnings: tuple[str, ...] = ()

    @property
    def finished(self) -> tuple[SearchNode, ...]:
        """The nodes that end a solution."""
        return tuple(node for node in self.nodes if node.fate == "finished")

    @property
    def answer(self) -> str | None:
        """The selected answer; None if no finished path states one."""
        return self.select()

    @property
    def solution(self) -> str | None:
        """The best finished solution that states the selected answer."""
        best = self._best()
        return None if best is None else self.text(best)

    @property
    def score(self) -> float | None:
        """The score of `solution`: the aggregation of the scores of its steps."""
        best = self._best()
        return None if best is None else self.path_value(best, self.aggregation)

    def path(self, node: int) -> list[SearchNode]:
        """The nodes from the root's child to `node`."""
        found: list[SearchNode] = []
        at: int | None = node
        while at is not None:
            found.append(self.nodes[at])
            at = self.nodes[at].parent
        return found[-2::-1]

    def text(self, node: int) -> str:
        """The text of the path that ends at `node`."""
        return "".join(each.text for each in self.path(node))

    def path_scores(self, node: int) -> list[float | None]:
        """The scores of all steps of a path."""
        return [step.score for each in self.path(node) for step in each.steps]

    @property
    def uncertainty(self) -> float:
        """How much the disagreement of an ensemble lowers the value of a path; see `NodeStep.cautious_score`."""
        return float(self.strategy.get("uncertainty", 0.0))

    def path_value(self, node: int, aggregation: str) -> float | None:
        """An aggregation of the scores of a path, as the search ranks it; None if a score is missing."""
        chosen = find_aggregation(aggregation)
        if chosen.needs_probabilities and self.scale != "probability":
            return None
        steps = (step for each in self.path(node) for step in each.steps)
        return chosen.function([step.cautious_score(self.uncertainty) for step in steps])

    @property
    def aggregations(self) -> list[str]:
        """The aggregations that apply to these scores."""
        return [
            each.name
            for each in AGGREGATIONS.values()
            if (each.in_results or each.name == self.aggregation)
            and (self.scale == "probability" or not each.needs_probabilities)
        ]

    def select(self, selection: Selection | None = None, aggregation: str | None = None) -> str | None:
        """The answer that another selection or aggregation would return. Ties go to the answer that was found first.

        Selections that sum or compare scores are None if those are missing.
        """
        chosen = self._group(selection or self.selection, aggregation or self.aggregation)
        return None if chosen is None else chosen.answer

    def weight(self, answer: AnswerVotes, aggregation: str) -> float | None:
        """The sum of the values of the scored solutions with an answer; None if none is scored, or one is negative."""
        values = [
            (value, self.nodes[at].count)
            for at in answer.nodes
            if (value := self.path_value(at, aggregation)) is not None
        ]
        if not values or min(value for value, _ in values) < 0:
            return None
        return sum(value * count for value, count in values)

    def _best(self) -> int | None:
        chosen = self._group(self.selection, self.aggregation)
        if chosen is None:
            return None
        return max(chosen.nodes, key=lambda at: _order(self.path_value(at, self.aggregation)))

    def _group(self, selection: Selection, aggregation: str) -> AnswerVotes | None:
        if selection not in SELECTIONS:
            raise OptionError(f"selection={selection!r} is unknown. Choose one of: {', '.join(SELECTIONS)}.")
        ranks: list[tuple[float, int, AnswerVotes]] = []
        for answer in self.answers:
            if selection == "majority":
                rank: float | None = float(answer.votes)
            elif selection == "weighted":
                rank = self.weight(answer, aggregation)
            else:
                values = [self.path_value(at, aggregation) for at in answer.nodes]
                rank = max((value for value in values if value is not None), default=None)
            if rank is not None:
                ranks.append((rank, -min(answer.nodes), answer))
        return max(ranks, key=lambda each: each[:2])[2] if ranks else None

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-compatible data."""
        data = {field.name: getattr(self, field.name) for field in fields(self)}
        return data | {
            "strategy": dict(self.strategy),
            "nodes": [_node_dict(node) for node in self.nodes],
            "answers": [asdict(each) for each in self.answers],
            "spent": asdict(self.spent),
            "warnings": list(self.warnings),
            "answer": self.answer,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SearchResult:
        """Rebuild a result from its `to_dict`."""
        try:
            taken = {field.name: data[field.name] for field in fields(cls) if field.name in data}
            return cls(
                **taken
                | {
                    "nodes": tuple(_node(each) for each in data["nodes"]),
                    "answers": tuple(AnswerVotes(**each | {"nodes": tuple(each["nodes"])}) for each in data["answers"]),
                    "spent": Spent(**data["spent"]),
                    "warnings": tuple(data.get("warnings", ())),
                }
            )
        except (KeyError, TypeError) as error:
            raise InputError(f"This is not the result of a search ({type(error).__name__}: {error}).") from error

    def to_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    def __repr__(self) -> str:
        """Show the result in one line, with its warnings."""
        parts = [
            f"answer {self.answer!r}",
            counted(len(self.finished), "finished path"),
            f"{counted(len(self.nodes) - 1, 'node')} and the root",
            counted(self.spent.generated_tokens, "generated token"),
            f"stop {self.stop!r}",
            *(f"warning: {text}" for text in self.warnings),
        ]
        return f"<surefoot.SearchResult {self.strategy.get('name')}: {', '.join(parts)}>"


@dataclass(frozen=True)
class SearchRecord:
    """All that was run for one question: searches, and what they are compared with.

    >>> settings = surefoot.SearchSettings(n=2)
    >>> report = surefoot.search_many("samples.jsonl", "found", generator="samples.jsonl", settings=settings)
    >>> list(report.records[0].searches)
    ['beam 1x2']
    """

    index: int
    """Position in the input."""
    question: str
    searches: Mapping[str, SearchResult]
    """By the label of the strategy, such as `beam 4x2`."""
    gold: str | None = None
    """The reference answer, if known."""
    id: str | None = None
    greedy: SearchResult | None = None
    """One whole answer by greedy decoding."""
    samples: SearchResult | None = None
    """Independent whole answers, one child of the root each in the order of sampling. Identical ones are not merged."""

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-compatible data."""
        return {
            "index": self.index,
            "id": self.id,
            "question": self.question,
            "gold": self.gold,
            "searches": {label: search.to_dict() for label, search in self.searches.items()},
            "greedy": None if self.greedy is None else self.greedy.to_dict(),
            "samples": None if self.samples is None else self.samples.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SearchRecord:
        """Rebuild a record from its `to_dict`."""
        try:
            runs = {name: data.get(name) for name in ("greedy", "samples")}
            return cls(
                index=data["index"],
                question=data["question"],
                searches={label: SearchResult.from_dict(each) for label, each in data["searches"].items()},
                gold=data.get("gold"),
                id=data.get("id"),
                **{name: None if run is None else SearchResult.from_dict(run) for name, run in runs.items()},
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"This is not the record of a search ({type(error).__name__}: {error}).") from error


def _order(value: float | None) -> float:
    return float("-inf") if value is None else value


def _node_dict(node: SearchNode) -> dict[str, Any]:
    """A node without what it does not have: trees are large."""
    whole = asdict(node, dict_factory=_without_spread)
    always = ("id", "parent", "text", "end", "fate")
    default = {field.name: field.default for field in fields(SearchNode)}
    return {name: value for name, value in whole.items() if name in always or value != default[name]}


def _without_spread(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The fields of a step without `spread` if it has none."""
    return {name: value for name, value in pairs if name != "spread" or value is not None}


def _node(data: Mapping[str, Any]) -> SearchNode:
    ahead = data.get("lookahead")
    return SearchNode(
        **dict(data)
        | {
            "steps": _steps(data.get("steps", ())),
            "lookahead": None if ahead is None else Lookahead(**ahead | {"steps": _steps(ahead["steps"])}),
        }
    )


def _steps(data: Sequence[Mapping[str, Any]]) -> tuple[NodeStep, ...]:
    return tuple(NodeStep(**each) for each in data)
