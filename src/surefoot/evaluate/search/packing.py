"""Pack search results for a page: 500 trees of 100 nodes have to fit into one file.

A packed node names its text once, as the alternation of what is outside and inside its steps. Seeds are left out, and
numbers have five digits. `unpack` in `report_page/questions.js` restores what `SearchResult.to_dict` returns otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from surefoot.core.generation import EndState
from surefoot.core.search_result import Fate, NodeStep, SearchNode, SearchResult

ENDS = get_args(EndState)
FATES = get_args(Fate)
RESULT_FIELDS = ("stop", "scale", "aggregation", "selection", "answer")


def pack(result: SearchResult) -> dict[str, Any]:
    """Return the result as compact JSON-compatible data."""
    return {
        **{name: getattr(result, name) for name in RESULT_FIELDS},
        "strategy": dict(result.strategy),
        "warnings": list(result.warnings),
        "spent": {
            name: getattr(result.spent, name)
            for name in ("generated_tokens", "generator_calls", "prm_tokens", "prm_tokens_rescored")
        },
        "answers": [[each.answer, list(each.nodes), each.votes] for each in result.answers],
        "nodes": [_pack_node(node) for node in result.nodes],
    }


def _pack_node(node: SearchNode) -> list[Any]:
    """Return parent, end, fate, tokens, value, text, scores, and an object with what most nodes do not have."""
    more: dict[str, Any] = {}
    parts = _parts(node.text, node.steps)
    if parts is None:
        parts = [node.text]
        more["steps"] = [_pack_step(step) for step in node.steps]
    else:
        if any(step.reason for step in node.steps):
            more["reasons"] = [step.reason for step in node.steps]
        if node.spread is not None:
            more["spreads"] = [_short(step.spread) for step in node.steps]
    if node.lookahead is not None:
        ahead = node.lookahead
        more["lookahead"] = [ahead.text, ahead.tokens, ahead.end, [_pack_step(step) for step in ahead.steps]]
    for name, usual in (("count", 1), ("reason", None), ("subtree", None), ("answer", None)):
        if (value := getattr(node, name)) != usual:
            more[name] = value
    scores = [] if "steps" in more else [_short(step.score) for step in node.steps]
    end = -1 if node.end is None else ENDS.index(node.end)
    packed = [node.parent, end, FATES.index(node.fate), node.tokens, _short(node.value), parts, scores]
    return [*packed, more] if more else packed


def _pack_step(step: NodeStep) -> list[Any]:
    packed = [step.text, _short(step.score), step.reason]
    return packed if step.spread is None else [*packed, _short(step.spread)]


def _parts(text: str, steps: Sequence[NodeStep]) -> list[str] | None:
    """Return outside, step, outside, step, ..., outside, which make up the text; None if the steps are not in it."""
    parts: list[str] = []
    at = 0
    for step in steps:
        start = text.find(step.text, at)
        if start < 0:
            return None
        parts += [text[at:start], step.text]
        at = start + len(step.text)
    return [*parts, text[at:]]


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")
