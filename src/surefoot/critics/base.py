"""What every critic has: options, a prompt, and how to judge.

Invariant: judging depends on the question, the steps and the options only. Seeds are derived from these, so a solution
gets the same verdicts alone or in any batch, as far as the generator honours seeds.
"""

from __future__ import annotations

import asyncio
import re
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from surefoot.core.generation import Sampling, derived_seed
from surefoot.critics.backend import CriticBackend
from surefoot.critics.verdict import Judgement, Vote, failed
from surefoot.errors import OptionError

NUMBERED = re.compile(r"(?<=\n)[ \t]*Step \d+:")
NO_HISTORY = "An earlier step has no complete analysis, which this critic reads before it judges the next step."


@dataclass(frozen=True)
class Task:
    """A question and the steps to judge."""

    question: str
    steps: tuple[str, ...]
    system: str | None = None
    """Replaces the critic's system message."""


class Memo:
    """Judgements of prefixes that were asked for before, also those that are still being computed."""

    def __init__(self) -> None:
        self._tasks: dict[tuple[object, ...], asyncio.Task[Judgement]] = {}
        self._results: dict[tuple[object, ...], Judgement] = {}

    async def get(self, key: tuple[object, ...], judge: Callable[[], Awaitable[Judgement]]) -> Judgement:
        """Return the judgement for a key. It is computed once; a failed computation is not kept."""
        if key in self._results:
            return self._results[key]
        loop = asyncio.get_running_loop()
        task = self._tasks.get(key)
        if task is None or task.get_loop() is not loop:
            task = loop.create_task(_run(judge))
            self._tasks[key] = task
        try:
            judgement = await asyncio.shield(task)
        finally:
            if task.done():
                self._tasks.pop(key, None)
        if not any(vote.status == "generator_error" for vote in judgement.votes):
            self._results[key] = judgement
        return judgement


async def _run(judge: Callable[[], Awaitable[Judgement]]) -> Judgement:
    return await judge()


@dataclass(frozen=True)
class Critic:
    """A way to prompt a model for verdicts and to read them. Subclasses are frozen dataclasses: fields are options."""

    name: ClassVar[str]
    description: ClassVar[str]
    """One line for lists and help texts."""
    models: ClassVar[tuple[str, ...]] = ()
    """The hub ids of models that are made for this critic."""
    model_options: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """The options that some of these models need."""
    takes_tokens: ClassVar[bool] = False
    """Whether prompts are sent as token ids, for which the model's tokenizer is needed."""
    system: ClassVar[str | None] = None
    """The system message of a critic that sends chat messages."""
    takes_system: ClassVar[bool] = True
    """Whether the option `system` can replace the system message."""
    adds_generation_prompt: ClassVar[bool] = True
    """Whether the makers' prompt has the beginning of a reply that the chat template adds."""
    structure: ClassVar[tuple[str, ...]] = ()
    """Plain text that is structure in the prompt. A question or a step that contains it is not judged."""
    numbers_steps: ClassVar[bool] = False
    """Whether the prompt writes `Step 1:` before every step. A step with such a line inside is not judged."""
    recommended: ClassVar[str | None] = None
    """The aggregation that the makers use."""

    votes: int = 1
    """Independent verdicts per step. The score is their mean."""
    temperature: float = 0.6
    """Of the analysis. 0 is greedy decoding, with which more than one vote makes no sense."""
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 2048
    """The most tokens of one analysis."""
    min_mass: float = 0.5
    """The least probability that both labels must have together."""

    def __post_init__(self) -> None:
        if self.votes < 1 or self.max_tokens < 1:
            raise OptionError(f"votes={self.votes}, max_tokens={self.max_tokens}: pass numbers above 0.")
        if not 0 <= self.min_mass <= 1:
            raise OptionError(f"min_mass={self.min_mass}: pass a number from 0 to 1.")
        if self.votes > 1 and self.sampling.greedy:
            raise OptionError(f"votes={self.votes} with temperature=0 are all the same. Raise the temperature.")

    @property
    def options(self) -> dict[str, Any]:
        """The options by name."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @property
    def sampling(self) -> Sampling:
        """How the analysis is sampled."""
        return Sampling(self.temperature, self.top_p, self.top_k)

    def seed(self, task: Task, step: int, vote: int) -> int:
        """The seed of one verdict."""
        return derived_seed("critic", self.name, task.question, *task.steps[: step + 1], vote)

    def forged(self, task: Task) -> str | None:
        """The structure of the prompt that a question or a step contains, if any."""
        texts = (task.question, *task.steps)
        if self.numbers_steps:
            for text in task.steps:
                if found := NUMBERED.search(text.strip()):
                    return found.group().strip()
        return next((mark for mark in self.marks() if any(mark in text for text in texts)), None)

    def marks(self) -> tuple[str, ...]:
        """The plain text that is structure in the prompt."""
        return self.structure

    def published_template(self) -> str | None:
        """How the makers' chat template renders a user message `{user}`, after a system message `{system}` if any.

        It ends with the generation prompt, unless `adds_generation_prompt` is false. None if the critic uses the
        model's own template, or the published one is not known.
        """
        return None

    @abstractmethod
    async def judge(self, backend: CriticBackend, task: Task, memo: Memo) -> list[Judgement]:
        """Judge all steps. Each entry of the list belongs to one step."""


@dataclass(frozen=True)
class StepCritic(Critic):
    """A critic that judges one step at a time, given the steps before it."""

    reads_history: ClassVar[bool] = False
    """Whether a step's prompt contains what the model wrote about earlier steps."""

    async def judge(self, backend: CriticBackend, task: Task, memo: Memo) -> list[Judgement]:
        """Judge every step. Steps that an earlier solution shares are judged once."""

        async def one(step: int, history: tuple[str, ...]) -> Judgement:
            key = (self.name, task.system, task.question, *task.steps[: step + 1])
            return await memo.get(key, lambda: self.judge_step(backend, task, step, history))

        if not self.reads_history:
            return list(await asyncio.gather(*(one(step, ()) for step in range(len(task.steps)))))
        judgements: list[Judgement] = []
        for step in range(len(task.steps)):
            outputs = [judgement.output for judgement in judgements]
            if any(output is None for output in outputs):
                judgements.append(Judgement((failed("no_verdict", NO_HISTORY),)))
            else:
                judgements.append(await one(step, tuple(output for output in outputs if output is not None)))
        return judgements

    async def judge_step(self, backend: CriticBackend, task: Task, step: int, history: tuple[str, ...]) -> Judgement:
        """Judge one step with all votes."""
        votes = await asyncio.gather(
            *(self.vote(backend, task, step, history, self.seed(task, step, vote)) for vote in range(self.votes))
        )
        return Judgement(tuple(vote for vote, _ in votes), votes[0][1])

    @abstractmethod
    async def vote(
        self, backend: CriticBackend, task: Task, step: int, history: tuple[str, ...], seed: int
    ) -> tuple[Vote, str | None]:
        """One verdict, and what the model wrote; None if that is not complete."""


def numbered(steps: Sequence[str], separator: str = "\n") -> str:
    """Steps as `Step 1: ...`, without a number that they already have.

    >>> numbered(["Add.", "Step 2: Halve."])
    'Step 1: Add.\\nStep 2: Halve.'
    """
    bare = (re.sub(r"Step \d+:", "", step).strip() for step in steps)
    return separator.join(f"Step {number}: {step}" for number, step in enumerate(bare, 1))
