"""Samples answers to one question, judges them against the reference, and keeps to the budget.

Invariant: the seed of a rollout depends on the question, the solution, the step and the round, not on what else runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from surefoot.core.generation import Continuation, GenerationRequest, Generator, derived_seed
from surefoot.core.labels import FREE, NONE_SAMPLED, LabelCost, Outcomes, Verdict
from surefoot.labelling.reading import Question
from surefoot.labelling.settings import LabelSettings
from surefoot.text.answer_groups import AnswerGrouper
from surefoot.text.answers import find_answer

WHOLE = -1
"""Takes the place of solution and step in the seeds of whole answers."""


@dataclass(frozen=True)
class Judged:
    """A solution that was sampled, with its verdict."""

    text: str
    """With the prefix that it continues."""
    verdict: Verdict
    answer: str | None
    reason: str | None = None
    """Why it failed or was cut off."""


@dataclass(frozen=True)
class Measurement:
    """The rollouts of one step."""

    outcomes: Outcomes = NONE_SAMPLED
    spent: LabelCost = FREE
    stopped_early: bool = False
    missing: str | None = None
    """Why there are fewer rollouts than planned."""


class RolloutSampler:
    """Samples and judges answers to one question."""

    def __init__(self, generator: Generator, question: Question, settings: LabelSettings, seed: int) -> None:
        self.spent = FREE
        self.failures: list[str] = []
        """Reasons of requests that failed as a whole."""
        self.succeeded = 0
        """Requests that returned anything."""
        self._generator = generator
        self._question = question
        self._settings = settings
        self._seed = seed
        self._grouper = AnswerGrouper()

    async def whole_answers(self, count: int) -> tuple[list[Judged], LabelCost]:
        """Sample whole answers, fewer if the budget ends."""
        found, spent, _ = await self._sample("", count, (WHOLE, WHOLE, 0))
        return found, spent

    async def measure(self, prefix: str, solution: int, step: int) -> Measurement:
        """Continue a prefix until the decision is certain or there are k rollouts."""
        settings = self._settings
        outcomes, spent, missing = NONE_SAMPLED, FREE, None
        while missing is None and outcomes.total < settings.k and not settings.certain_about(outcomes):
            count = min(settings.round_size, settings.k - outcomes.total)
            found, cost, missing = await self._sample(prefix, count, (solution, step, outcomes.total))
            spent += cost
            for each in found:
                outcomes = outcomes.plus(each.verdict)
        certain = settings.certain_about(outcomes)
        return Measurement(outcomes, spent, certain and outcomes.total < settings.k, None if certain else missing)

    async def judge(self, text: str) -> Judged:
        """Judge a finished solution by its own answer."""
        (judged,) = await asyncio.to_thread(self._judge, "", [Continuation(text, "answer", 0, 0)], False)
        return judged

    async def _sample(
        self, prefix: str, count: int, place: tuple[int, int, int]
    ) -> tuple[list[Judged], LabelCost, str | None]:
        """Sample continuations. Returns them with their cost, and why there are fewer than wanted."""
        settings, budget = self._settings, self._settings.budget
        missing = None
        if budget.calls is not None and self.spent.rollouts + count > budget.calls:
            count, missing = budget.calls - self.spent.rollouts, "The budget of calls is used up."
        limit = settings.max_tokens
        if budget.tokens is not None and count:
            limit = min(limit, (budget.tokens - self.spent.generated_tokens) // count)
        if count < 1 or limit < 1:
            return [], FREE, missing or "The budget of tokens is used up."
        seed = derived_seed(self._seed, self._question.text, *place, prefix)
        generation = await self._generator.generate(
            GenerationRequest(self._question.text, prefix, count, None, limit, settings.sampling, seed)
        )
        cost = LabelCost(count, generation.calls, generation.tokens, generation.prompt_tokens)
        self.spent += cost
        found = generation.continuations
        if all(each.end == "error" for each in found):
            self.failures.append(next((each.reason for each in found if each.reason), "unknown reason"))
        else:
            self.succeeded += 1
        return await asyncio.to_thread(self._judge, prefix, found, limit < settings.max_tokens), cost, missing

    def _judge(self, prefix: str, found: Sequence[Continuation], limited: bool) -> list[Judged]:
        return [self._judge_one(prefix + each.text, each, limited) for each in found]

    def _judge_one(self, text: str, each: Continuation, limited: bool) -> Judged:
        wrong = self._settings.count_as_wrong
        if each.end == "error":
            return Judged(text, "failed", None, each.reason or "The generator failed.")
        if each.end != "answer":
            # What the budget cut off says nothing about the solution.
            why = "the budget of tokens" if limited else f"max_tokens={self._settings.max_tokens}"
            verdict: Verdict = "wrong" if "cut_off" in wrong and not limited else "cut_off"
            return Judged(text, verdict, None, f"It was cut off at {why}.")
        answer = find_answer(text)
        if answer is None:
            return Judged(text, "wrong" if "unanswered" in wrong else "unanswered", None)
        same = self._grouper.same(self._question.gold, answer.value)
        return Judged(text, "undecided" if same is None else "right" if same else "wrong", answer.value)
