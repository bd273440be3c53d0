"""Grows the tree of one question: continuations from the generator, scores from the PRM, within a budget.

Strategies only decide which nodes to expand and which to prune. Everything that all of them need is here: merging
identical continuations, scoring only new steps, telling finished paths from unfinished ones, seeds, limits, events.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from surefoot.core.generation import (
    GREEDY,
    Continuation,
    Generation,
    GenerationRequest,
    Generator,
    derived_seed,
)
from surefoot.core.protocols import SearchSession
from surefoot.core.result import DEFAULT_AGGREGATION, Scale, SolutionScore
from surefoot.core.search_result import Lookahead, NodeStep, Spent, Stop
from surefoot.searching.settings import SearchSettings
from surefoot.searching.tree import Node, Tree, steps_in

MOST_BLANKS = 4
"""How many blank pieces in a row may come before a step."""
CUT_OFF = "cut off at "
"""Begins the reason of a node that reached a limit of tokens."""
CUT_BY_BUDGET = f"{CUT_OFF}the token budget"

Score = Callable[[Sequence[Sequence[str]]], Awaitable[list[SolutionScore]]]
"""Scores candidates, each a list of steps."""


@dataclass(frozen=True)
class Problem:
    """A question and the parties that work on it."""

    question: str
    generator: Generator
    session: SearchSession
    score: Score
    scale: Scale
    seed: int


@dataclass(frozen=True)
class Branch:
    """A node to continue, and by how many continuations."""

    node: Node
    count: int
    subtree: int | None = None
    """The subtree that the continuations start, if the node is the root of several."""


class Exploration:
    """The search of one question, as strategies see it."""

    def __init__(self, problem: Problem, settings: SearchSettings, on_nodes: Callable[[Sequence[Node]], None]) -> None:
        self.settings = settings
        self.tree = Tree(settings.aggregation, settings.uncertainty)
        self.spent = Spent()
        self.stop: Stop | None = None
        """The limit that was reached, if any."""
        self.cut_by_budget = False
        """Whether a continuation was cut off because the budget of tokens was used up."""
        self._problem = problem
        self._on_nodes = on_nodes
        self._started = time.monotonic()
        self._requested = 0
        self._computed_before = problem.session.computed_tokens

    @property
    def scale(self) -> Scale:
        """The scale of the scores."""
        return self._problem.scale

    @property
    def root(self) -> Node:
        """The node without text that all paths start from."""
        return self.tree.root

    async def expand(self, plan: Sequence[Branch], *, whole: bool = False, merge: bool = True) -> list[Node]:
        """Continue nodes, score the continuations, and return the new nodes in a fixed order.

        `whole` generates to the end of the answer instead of the end of the step. With `merge`, identical
        continuations of a branch become one. Returns nothing once a limit is reached; `stop` then says which.
        """
        limits = self._admit([branch for branch in plan if branch.count > 0], whole)
        if limits is None:
            return []
        requests = [self._request(branch, limit, whole) for branch, limit in limits]
        generations = await asyncio.gather(*map(self._generate, requests))
        added: list[Node] = []
        for (branch, limit), generation in zip(limits, generations, strict=True):
            branch.node.fate = "root" if branch.node.parent is None else "expanded"
            added += self._add(branch, limit, generation, merge)
        scorable = [node for node in added if node.end in ("step", "answer") and node.fate == "open"]
        if self.settings.lookahead and not whole:
            await self._look_ahead([node for node in scorable if node.end == "step"])
        await self._score(scorable)
        self._on_nodes(added)
        if added and all(node.end == "error" for node in added):
            self.stop = "error"
        return added

    def _admit(self, plan: list[Branch], whole: bool) -> list[tuple[Branch, int]] | None:
        """Attach a limit of tokens to each branch; None if nothing may be generated any more."""
        budget, settings = self.settings.budget, self.settings
        for branch in plan:
            if branch.node.path_tokens >= settings.max_tokens:
                branch.node.prune(f"{CUT_OFF}max_tokens={settings.max_tokens}")
        plan = [branch for branch in plan if branch.node.fate in ("root", "open", "expanded")]
        shallow = [branch for branch in plan if whole or branch.node.depth < settings.max_steps]
        wanted = sum(branch.count for branch in shallow)
        calls = wanted * (1 if whole else 1 + settings.lookahead)
        if plan and not shallow:
            self.stop = "steps"
        elif budget.seconds is not None and time.monotonic() - self._started >= budget.seconds:
            self.stop = "seconds"
        elif budget.calls is not None and self._requested + calls > budget.calls:
            self.stop = "calls"
        elif wanted and self._share(wanted) < 1:
            self.stop = "tokens"
        if not shallow or self.stop is not None:
            return None
        most = self._share(wanted)
        self._requested += wanted
        return [(branch, min(most, settings.max_tokens - branch.node.path_tokens)) for branch in shallow]

    def _share(self, count: int) -> int:
        """How many tokens each of `count` continuations may have, so that the budget is not exceeded."""
        if self.settings.budget.tokens is None:
            return self.settings.max_tokens
        return (self.settings.budget.tokens - self.spent.generated_tokens) // count

    def _request(self, branch: Branch, limit: int, whole: bool) -> GenerationRequest:
        sampling, node = self.settings.sampling, branch.node
        place = (node.id, len(node.children), branch.subtree)
        return GenerationRequest(
            question=self._problem.question,
            prefix=node.prefix,
            n=1 if sampling.greedy else branch.count,  # greedy continuations are all the same
            step_end=None if whole else self.settings.step_end,
            max_tokens=limit,
            sampling=sampling,
            seed=derived_seed(self._problem.seed, self._problem.question, *place),
        )

    async def _generate(self, request: GenerationRequest) -> Generation:
        """Ask the generator, and go on where it wrote nothing but the end of a step: that is not a step yet."""
        generation = await self._problem.generator.generate(request)
        self._charge(generation)
        found = [await self._after_blank(request, each) for each in generation.continuations]
        return replace(generation, continuations=tuple(found))

    async def _after_blank(self, request: GenerationRequest, found: Continuation) -> Continuation:
        for _ in range(MOST_BLANKS):
            left = request.max_tokens - found.tokens
            if found.end != "step" or found.text.strip() or left < 1:
                break
            again = replace(request, prefix=request.prefix + found.text, n=1, max_tokens=left, seed=found.seed)
            generation = await self._problem.generator.generate(again)
            self._charge(generation)
            (more,) = generation.continuations
            found = replace(more, text=found.text + more.text, tokens=found.tokens + more.tokens, seed=found.seed)
        return found

    def _charge(self, generation: Generation) -> None:
        self.spent = replace(
            self.spent,
            generated_tokens=self.spent.generated_tokens + generation.tokens,
            prompt_tokens=self.spent.prompt_tokens + generation.prompt_tokens,
            generator_calls=self.spent.generator_calls + generation.calls,
        )

    def _add(self, branch: Branch, limit: int, generation: Generation, merge: bool) -> list[Node]:
        found = generation.continuations
        copies = branch.count if self.settings.sampling.greedy else 1
        counts = Counter((each.text, each.end) for each in found)
        added: dict[tuple[str, str], Node] = {}
        nodes = []
        for each in found:
            key = (each.text, each.end)
            if merge and key in added:
                added[key].tokens += each.tokens  # all of them were paid for
                continue
            count = copies * (counts[key] if merge else 1)
            node = self.tree.add(branch.node, each.text, each.end, each.tokens, each.seed, count)
            node.subtree = branch.node.subtree if branch.subtree is None else branch.subtree
            added[key] = node
            nodes.append(node)
            self._judge_end(node, each, limit)
        return nodes

    def _judge_end(self, node: Node, continuation: Continuation, limit: int) -> None:
        """Set the fate of a continuation that cannot be continued."""
        if node.end == "error":
            node.fate, node.reason = "failed", continuation.reason or "the generator failed"
        elif node.end == "cut_off":
            limited = limit < self.settings.max_tokens - (node.parent.path_tokens if node.parent else 0)
            self.cut_by_budget = self.cut_by_budget or limited
            node.prune(CUT_BY_BUDGET if limited else f"{CUT_OFF}max_tokens={self.settings.max_tokens}")
        elif node.end == "step" and not node.text.strip():
            node.prune("an empty step")

    async def _score(self, nodes: Sequence[Node]) -> None:
        """Score the new steps of nodes, in one call."""
        if not nodes:
            return
        new = [list(steps_in(node.text, self.settings.step_end)) for node in nodes]
        candidates = [
            [
                *(step.text for step in (node.parent.path_steps if node.parent else ())),
                *texts,
                *(step.text for step in (node.lookahead.steps if node.lookahead else ())),
            ]
            for node, texts in zip(nodes, new, strict=True)
        ]
        known = [at for at, candidate in enumerate(candidates) if candidate]
        results = await self._problem.score([candidates[at] for at in known])
        if self.tree.aggregation is None and results:
            self.tree.aggregation = results[0].recommended or DEFAULT_AGGREGATION
        for at, result in zip(known, results, strict=True):
            node, own = nodes[at], len(new[at])
            before = len(candidates[at]) - own - (len(node.lookahead.steps) if node.lookahead else 0)
            scored = _node_steps(candidates[at], result)
            node.steps = scored[before : before + own]
            if node.lookahead:
                node.lookahead = replace(node.lookahead, steps=scored[before + own :])
        computed = self._problem.session.computed_tokens
        self.spent = replace(
            self.spent,
            prm_tokens=self.spent.prm_tokens + computed - self._computed_before,
            prm_tokens_rescored=self.spent.prm_tokens_rescored + sum(result.tokens for result in results),
            prm_calls=self.spent.prm_calls + 1,
        )
        self._computed_before = computed
        for node in nodes:
            self.tree.rank(node)
            if node.end == "answer":
                self.tree.finish(node)
            elif node.value is None:
                why = next((step.reason for step in node.path_steps if step.score is None), None)
                node.fate, node.reason = "failed", f"unscored: {why or 'there is no step'}"

    async def _look_ahead(self, nodes: Sequence[Node]) -> None:
        """Generate the next steps of each node greedily, and keep them next to it."""
        share = self._share(max(1, len(nodes)))

        async def one(node: Node) -> Lookahead | None:
            text, tokens, end = "", 0, node.end or "step"
            for _ in range(self.settings.lookahead):
                left = min(share, self.settings.max_tokens - node.path_tokens) - tokens
                if end != "step" or left < 1:
                    break
                generation = await self._generate(
                    GenerationRequest(
                        self._problem.question,
                        node.prefix + text,
                        step_end=self.settings.step_end,
                        max_tokens=left,
                        sampling=GREEDY,
                    )
                )
                self._requested += 1
                (each,) = generation.continuations
                text, tokens, end = text + each.text, tokens + each.tokens, each.end
            found = tuple(NodeStep(step, None) for step in steps_in(text, self.settings.step_end))
            return Lookahead(text, found, tokens, end) if text else None

        for node, ahead in zip(nodes, await asyncio.gather(*map(one, nodes)), strict=True):
            node.lookahead = ahead


def _node_steps(texts: Sequence[str], result: SolutionScore) -> tuple[NodeStep, ...]:
    """The steps of a candidate with their scores. Steps that the scorer did not read have the reason why."""
    scores = {step.index: step for step in result.steps}
    found = []
    for at, text in enumerate(texts):
        if (step := scores.get(at)) is None:
            found.append(NodeStep(text, None, result.reason or "the scorer did not read this step"))
        elif step.score is None:
            found.append(NodeStep(text, None, result.reason or step.status))
        else:
            found.append(NodeStep(text, step.score, spread=step.spread))
    return tuple(found)
