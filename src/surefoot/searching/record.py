"""Runs one question of a job: every search, and the baselines that they are compared with at equal tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from surefoot.core.search_result import SearchRecord
from surefoot.searching.runner import Plan, SearchRunner


@dataclass(frozen=True)
class Question:
    """A question of a job."""

    index: int
    """Its position in the input."""
    text: str
    gold: str | None = None
    id: str | None = None


async def run_record(
    runner: SearchRunner, question: Question, plans: Sequence[Plan], *, baselines: bool, seed: int
) -> SearchRecord:
    """Run all searches of a question, one after the other, and then its baselines.

    The baselines are greedy decoding, and independent samples with at least as many tokens as the longest search. A
    best-of-N among the searches is the first N of these samples.
    """
    searches = {
        plan.label: await runner.search(question.text, plan, seed)
        for plan in plans
        if not baselines or plan.strategy.steps
    }
    greedy = samples = None
    if baselines:
        greedy = await runner.greedy(question.text, plans[0])
        tokens = max((search.spent.generated_tokens for search in searches.values()), default=0)
        whole = next((plan for plan in plans if not plan.strategy.steps), plans[0])
        first, samples = await runner.samples(question.text, whole, seed, tokens)
        searches |= {plan.label: first for plan in plans if not plan.strategy.steps}
    return SearchRecord(question.index, question.text, searches, question.gold, question.id, greedy, samples)
