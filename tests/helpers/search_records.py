"""Records of searches for tests: written by hand, or random. Answers are grouped by their text."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from surefoot.core.generation import EndState
from surefoot.core.search_result import (
    AnswerVotes,
    Lookahead,
    NodeStep,
    SearchNode,
    SearchRecord,
    SearchResult,
    Spent,
    Stop,
)

ROOT = SearchNode(0, None, "", None, fate="root")


def sample(
    answer: str | None, tokens: int = 10, scores: Sequence[float | None] = (0.5,), end: EndState = "answer"
) -> SearchNode:
    """A whole answer; `of_samples` gives it its place."""
    steps = tuple(NodeStep(f"Step {at}.", score, None if score is not None else "?") for at, score in enumerate(scores))
    finished = end == "answer"
    return SearchNode(
        id=0,
        parent=0,
        text="\n\n".join(step.text for step in steps),
        end=end,
        tokens=tokens,
        depth=1,
        steps=steps,
        fate="finished" if finished else "failed" if end == "error" else "pruned",
        answer=answer if finished else None,
    )


def of_samples(samples: Sequence[SearchNode], **options: Any) -> SearchResult:
    """Independent samples, in the order of sampling."""
    nodes = [ROOT, *(replace(each, id=at) for at, each in enumerate(samples, start=1))]
    spent = Spent(generated_tokens=sum(each.tokens for each in samples), generator_calls=1)
    return of_nodes(nodes, spent=spent, strategy={"name": "samples"}, **{"aggregation": "min"} | options)


def of_nodes(nodes: Sequence[SearchNode], *, spent: Spent, stop: Stop = "finished", **options: Any) -> SearchResult:
    """A search with this tree. Votes follow from its finished nodes."""
    groups: dict[str, list[SearchNode]] = {}
    for node in nodes:
        if node.fate == "finished" and node.answer is not None:
            groups.setdefault(node.answer, []).append(node)
    answers = [
        AnswerVotes(answer, tuple(node.id for node in group), sum(node.count for node in group))
        for answer, group in groups.items()
    ]
    answers.sort(key=lambda each: -each.votes)
    given = {"question": "What is 2 + 3 * 4?", "strategy": {"name": "beam"}, "model": "prm", "generator": "writer"}
    draft = SearchResult(nodes=tuple(nodes), answers=tuple(answers), spent=spent, stop=stop, **given | options)
    valued = [
        replace(node, value=draft.path_value(node.id, draft.aggregation)) if node.value is None and node.steps else node
        for node in nodes
    ]
    return replace(draft, nodes=tuple(valued))


def found(answer: str | None, tokens: int, **options: Any) -> SearchResult:
    """A search that found one answer, or none, for so many tokens."""
    end = sample(answer, tokens, end="answer" if answer is not None else "cut_off")
    spent = Spent(
        generated_tokens=tokens, generator_calls=2, prm_tokens=tokens, prm_tokens_rescored=3 * tokens, prm_calls=1
    )
    return of_nodes([ROOT, replace(end, id=1)], spent=spent, **{"aggregation": "min"} | options)


def record(
    searches: Mapping[str, SearchResult],
    samples: Sequence[SearchNode] | None = None,
    *,
    gold: str | None = "14",
    greedy: SearchResult | None = None,
    question: str = "What is 2 + 3 * 4?",
    index: int = 0,
) -> SearchRecord:
    """A record of one question."""
    drawn = None if samples is None else of_samples(samples)
    return SearchRecord(index, question, searches, gold, f"q{index}", greedy, drawn)


def random_tree(
    rng: random.Random, nodes: int = 60, *, subtrees: int = 0, words: int = 12, **options: Any
) -> SearchResult:
    """A tree with every fate, merged continuations, lookahead and, with `subtrees`, those of a DVTS."""
    tree = [ROOT]
    frontier: list[SearchNode] = [ROOT]
    while len(tree) < nodes and frontier:
        following: list[SearchNode] = []
        for parent in frontier[:4]:
            children = [
                _node(
                    rng,
                    len(tree) + at,
                    parent,
                    words,
                    (at % subtrees if not parent.id else parent.subtree) if subtrees else None,
                )
                for at in range(4)
            ]
            kept = [each for each in children if each.end == "step"][:1]
            for child in children:
                if child in kept:
                    following.append(child)
                    child = replace(child, fate="expanded")
                elif child.end == "step":
                    child = replace(child, fate="pruned", reason=f"rank {rng.randint(2, 4)} of 4; 1 kept")
                tree.append(child)
        frontier = following
    tree = [replace(node, fate="open") if node in frontier else node for node in tree]
    tokens = sum(node.tokens * node.count for node in tree)
    spent = Spent(tokens, 8 * tokens, len(tree) // 3, 2 * tokens, 9 * tokens, len(tree) // 3)
    return of_nodes(tree, spent=spent, stop=rng.choice(["finished", "steps"]), **options)


def _node(rng: random.Random, at: int, parent: SearchNode, words: int, subtree: int | None) -> SearchNode:
    ends: list[EndState] = ["step", "answer", "cut_off", "error"]
    end = rng.choices(ends, [6, 4, 1, 0.3] if parent.depth else [9, 0, 1, 0.3])[0]
    text = f"Step {parent.depth + 1}: " + " ".join(rng.choice(WORDS) for _ in range(words))
    answer = rng.choice(["14", "14", "20", "24"]) if end == "answer" else None
    if answer:
        text += f"\n\nFinal Answer: {answer}"
    scored = end in ("step", "answer")
    ahead = None
    if end == "step" and rng.random() < 0.2:
        ahead = Lookahead("Then we add both.", (NodeStep("Then we add both.", round(rng.random(), 4)),), 5, "step")
    return SearchNode(
        id=at,
        parent=parent.id,
        text="" if end == "error" else text + ("\n\n" if end == "step" else ""),
        end=end,
        tokens=0 if end == "error" else words + rng.randint(0, 9),
        seed=rng.randrange(1 << 31),
        depth=parent.depth + 1,
        steps=(NodeStep(text, rng.random()),) if scored else (),
        count=rng.choice([1, 1, 1, 2, 3]),
        fate={"step": "open", "answer": "finished", "cut_off": "pruned", "error": "failed"}[end],  # type: ignore[arg-type]
        reason={"cut_off": "cut off at max_tokens=2048", "error": "the server replied with status 500"}.get(end),
        subtree=subtree,
        lookahead=ahead,
        answer=answer,
    )


def random_samples(rng: random.Random, count: int = 16, steps: int = 4) -> list[SearchNode]:
    """Whole answers, some of them cut off."""
    ends: list[EndState] = ["answer", "answer", "answer", "answer", "cut_off", "error"]
    return [
        sample(
            rng.choice(["14", "20", "24", None]),
            rng.randint(20, 90),
            [rng.random() for _ in range(steps)],
            rng.choice(ends),
        )
        for _ in range(count)
    ]


def random_records(count: int, *, nodes: int = 60, words: int = 12, seed: int = 0) -> list[SearchRecord]:
    """Questions with a beam search, a DVTS, samples and a greedy answer."""
    rng = random.Random(seed)
    records = []
    for at in range(count):
        searches = {
            "beam 4x4": random_tree(rng, nodes, words=words, strategy={"name": "beam", "width": 4}),
            "dvts 4x4": random_tree(rng, nodes, subtrees=4, words=words, strategy={"name": "dvts", "subtrees": 4}),
        }
        records.append(
            record(
                searches,
                random_samples(rng),
                greedy=found(rng.choice(["14", "20"]), 40, strategy={"name": "greedy"}),
                question=f"Question {at}: Tom has {at} boxes with 8 pencils each. How many pencils are there?",
                index=at,
            )
        )
    return records


WORDS = (
    *("the", "number", "of", "pencils", "is", "times", "boxes", "so", "we", "add", "both", "sides", "by", "eight"),
    *("which", "gives", "$24$", "then", "subtract", "five", "because", "sister", "therefore", "total", "remaining"),
)
