"""Runs searches with one generator and one scorer, any number of questions at a time.

Questions share nothing but the generator and the scorer: every search has its own tree, session and seeds, so a result
does not depend on what else is running.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

from surefoot.core.aggregation import find_aggregation
from surefoot.core.generation import GREEDY, Generator
from surefoot.core.options import DEFAULT_OPTIONS, ReadOptions
from surefoot.core.protocols import StepScorer
from surefoot.core.result import DEFAULT_AGGREGATION, SolutionScore, threshold_for
from surefoot.core.search_result import SearchResult, Stop
from surefoot.data.items import read_question
from surefoot.display.counting import counted
from surefoot.errors import InputError, OptionError
from surefoot.searching.events import Listener, SearchEvent, ignore
from surefoot.searching.exploration import CUT_BY_BUDGET, CUT_OFF, Branch, Exploration, Problem
from surefoot.searching.settings import UNLIMITED, SearchSettings
from surefoot.searching.strategies.registry import Strategy, find_strategy
from surefoot.searching.tree import Node

T = TypeVar("T")

SAMPLES = "best-of-n"
"""The strategy of independent samples."""
MOST_SAMPLES = 16
"""A baseline has at most this many times N samples, however many tokens are left."""


@dataclass(frozen=True)
class Plan:
    """A strategy and its settings."""

    strategy: Strategy
    settings: SearchSettings

    @classmethod
    def of(cls, name: str, settings: SearchSettings) -> Plan:
        """Find the strategy and check that it can use the settings."""
        strategy = find_strategy(name)
        strategy.check(settings)
        return cls(strategy, settings)

    @property
    def label(self) -> str:
        """What reports call this search."""
        return self.strategy.label(self.settings)


class SearchRunner:
    """A generator and a scorer that search together. `close` it after use; it does not close the two."""

    def __init__(
        self,
        generator: Generator,
        scorer: StepScorer,
        *,
        options: ReadOptions = DEFAULT_OPTIONS,
        on_event: Listener = ignore,
    ) -> None:
        self.generator = generator
        self.scorer = scorer
        self.scoring_seconds = 0.0
        """Seconds in which the PRM was computing, over all searches."""
        self._options = options
        self._on_event = on_event
        # One thread: a model in this process uses all cores by itself, and several threads would slow each other down.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="surefoot-search")

    async def check(self, plans: Sequence[Plan]) -> None:
        """Reject what cannot work, before any tokens are spent."""
        await self.generator.check()
        scale = self.scorer.scale
        for plan in plans:
            if plan.strategy.steps and not self.generator.continues:
                raise OptionError(
                    f"{self.generator.name} cannot continue a partial solution, and {plan.strategy.name} needs that. "
                    "Use the strategy best-of-n, or a server with continuation: vLLM, SGLang or llama.cpp."
                )
            if plan.settings.aggregation is not None:
                chosen = find_aggregation(plan.settings.aggregation)
                if chosen.needs_probabilities and scale != "probability":
                    raise OptionError(
                        f"aggregation={chosen.name!r} needs probabilities, and the scores of {self.scorer.name} are "
                        f"on the scale {scale!r}. Use mean, min or final."
                    )
            if plan.settings.uncertainty and scale != "probability":
                raise OptionError(
                    f"uncertainty lowers probabilities, and the scores of {self.scorer.name} are on the scale "
                    f"{scale!r}. Omit it."
                )
            if plan.settings.selection == "weighted" and scale != "probability":
                raise OptionError("selection='weighted' sums probabilities, and these scores are not. Use best.")
            threshold_for(scale, plan.settings.threshold)

    def close(self) -> None:
        """Stop the scoring thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def search(self, question: str, plan: Plan, seed: int = 0) -> SearchResult:
        """Search for the answer to one question."""
        search = await self._explore(question, plan, seed)
        await plan.strategy.run(search)
        return await self._result(question, plan, seed, search)

    async def samples(self, question: str, plan: Plan, seed: int, tokens: int) -> tuple[SearchResult, SearchResult]:
        """Sample whole answers until they have at least so many tokens together. Identical ones are kept apart.

        Returns the first N as a result of their own, and all of them.
        """
        plan = Plan.of(SAMPLES, replace(plan.settings, budget=UNLIMITED, lookahead=0))
        search = await self._explore(question, plan, seed)
        first, count, n = None, plan.settings.n, plan.settings.n
        while count:
            await search.expand([Branch(search.root, count)], whole=True, merge=False)
            first = first or await self._result(question, plan, seed, search)
            spent, found = search.spent.generated_tokens, len(search.tree.nodes) - 1
            if search.stop is not None or not spent:
                break
            needed = math.ceil((tokens - spent) * found / spent)
            count = max(0, min(needed, n, MOST_SAMPLES * n - found))
        every = await self._result(question, plan, seed, search)
        return first or every, every

    async def greedy(self, question: str, plan: Plan) -> SearchResult:
        """Generate one whole answer by greedy decoding."""
        settings = replace(plan.settings, n=1, sampling=GREEDY, budget=UNLIMITED, lookahead=0)
        return await self.search(question, Plan.of(SAMPLES, settings))

    async def _explore(self, question: str, plan: Plan, seed: int) -> Exploration:
        if not read_question(question).strip():
            raise InputError("The question is empty.")
        session = await self._in_thread(lambda: self.scorer.session(question, self._options))

        async def score(candidates: Sequence[Sequence[str]]) -> list[SolutionScore]:
            return await self._in_thread(lambda: session.score(candidates))

        def on_nodes(nodes: Sequence[Node]) -> None:
            self._on_event(SearchEvent(question, plan.label, search.spent, tuple(node.frozen() for node in nodes)))

        problem = Problem(question, self.generator, session, score, self.scorer.scale, seed)
        search = Exploration(problem, plan.settings, on_nodes)
        return search

    async def _in_thread(self, work: Callable[[], T]) -> T:
        def timed() -> T:
            started = time.perf_counter()
            try:
                return work()
            finally:
                self.scoring_seconds += time.perf_counter() - started

        return await asyncio.get_running_loop().run_in_executor(self._thread, timed)

    async def _result(self, question: str, plan: Plan, seed: int, search: Exploration) -> SearchResult:
        answers = await asyncio.to_thread(search.tree.votes)  # algebra takes its time
        result = SearchResult(
            question=question,
            strategy={"name": plan.strategy.name, "label": plan.label, **plan.settings.to_dict()},
            nodes=tuple(node.frozen() for node in search.tree.nodes),
            answers=answers,
            spent=search.spent,
            stop=_stop(search),
            model=self.scorer.name,
            generator=self.generator.name,
            scale=self.scorer.scale,
            aggregation=search.tree.aggregation or DEFAULT_AGGREGATION,
            selection=plan.settings.selection,
            seed=seed,
            warnings=tuple(_warnings(search.tree.nodes)),
        )
        self._on_event(SearchEvent(question, plan.label, search.spent, result=result))
        return result


def _stop(search: Exploration) -> Stop:
    if search.stop is not None:
        return search.stop
    if search.cut_by_budget:
        return "tokens"
    return "finished" if any(node.fate == "finished" for node in search.tree.nodes) else "unfinished"


def _warnings(nodes: Sequence[Node]) -> list[str]:
    cut: Counter[str] = Counter()
    for node in nodes:
        if node.fate == "pruned" and node.reason is not None and node.reason.startswith(CUT_OFF):
            cut[node.reason] += node.count
    total = sum(node.count for node in nodes[1:])
    failed = Counter(node.reason for node in nodes if node.fate == "failed")
    found = [f"{count} of {len(nodes) - 1} continuations failed: {reason}" for reason, count in failed.items()]
    for reason, count in cut.items():
        limit = "the budget (--budget-tokens)" if reason == CUT_BY_BUDGET else "max_tokens (--max-new-tokens)"
        were = "was" if count == 1 else "were"
        found.append(f"{count} of {counted(total, 'continuation')} {were} {reason}, without an answer. Raise {limit}.")
    if silent := sum(node.fate == "finished" and node.answer is None for node in nodes):
        state, have = ("states", "has") if silent == 1 else ("state", "have")
        found.append(f"{counted(silent, 'finished solution')} {state} no answer and {have} no vote.")
    if not any(node.fate == "finished" for node in nodes):
        found.append("No path was finished, so there is no answer.")
    return found
