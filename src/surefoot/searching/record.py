"""Runs one question of a job: every search, and the baselines that they are compared with at equal tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from surefoot.core.search_result import SearchRecord, SearchResult
from surefoot.searching.runner import Plan, SearchRunner
from surefoot.searching.settings import UNLIMITED

GREEDY, SAMPLES = "greedy", "samples"
"""What the runs of the baselines are saved as."""

Save = Callable[[str, SearchResult], None]


@dataclass(frozen=True)
class Question:
    """A question of a job."""

    index: int
    """Its position in the input."""
    text: str
    gold: str | None = None
    id: str | None = None


def run_names(plans: Sequence[Plan], baselines: bool) -> list[str]:
    """What belongs to the record of a question."""
    return [*(plan.label for plan in plans), *((GREEDY, SAMPLES) if baselines else ())]


def as_record(question: Question, plans: Sequence[Plan], runs: Mapping[str, SearchResult]) -> SearchRecord:
    """Put the runs of a question together."""
    searches = {plan.label: runs[plan.label] for plan in plans}
    baselines = runs.get(GREEDY), runs.get(SAMPLES)
    return SearchRecord(question.index, question.text, searches, question.gold, question.id, *baselines)


class RunFailedError(Exception):
    """The generator failed in a run, which is then worth nothing. The message is its reason."""


async def run_question(
    runner: SearchRunner,
    question: Question,
    plans: Sequence[Plan],
    runs: Mapping[str, SearchResult],
    save: Save,
    *,
    baselines: bool,
    seed: int,
) -> None:
    """Do the runs of a question that are missing, one after the other, and save each. Raises `RunFailedError`.

    The baselines are greedy decoding, and independent samples with at least as many tokens as the longest search. A
    best-of-N among the searches, if it has no budget, is the first N of these samples.
    """
    done = dict(runs)

    def keep(name: str, result: SearchResult) -> None:
        if result.stop == "error":
            raise RunFailedError(next((node.reason for node in result.nodes if node.reason), "unknown reason"))
        done[name] = result
        save(name, result)

    sampled = [plan for plan in plans if baselines and not plan.strategy.steps and plan.settings.budget == UNLIMITED]
    searched = [plan for plan in plans if plan not in sampled]
    for plan in searched:
        if plan.label not in done:
            keep(plan.label, await runner.search(question.text, plan, seed))
    if baselines and GREEDY not in done:
        keep(GREEDY, await runner.greedy(question.text, plans[0]))
    missing = [name for name in (*(plan.label for plan in sampled), SAMPLES) if name not in done]
    if baselines and missing:
        tokens = max((done[plan.label].spent.generated_tokens for plan in searched), default=0)
        first, every = await runner.samples(question.text, (sampled or plans)[0], seed, tokens)
        for name in missing:
            keep(name, every if name == SAMPLES else first)
