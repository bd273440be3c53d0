"""Critics that write one chain of verification per prefix and end with a yes/no question: ThinkPRM, gPRM, gORM, R-PRM.

The chain stops at the question, or the question is appended to it, and the two answers are compared as next tokens.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from surefoot.critics.backend import CriticBackend, Labels, incomplete
from surefoot.critics.base import StepCritic, Task
from surefoot.critics.prompt import TokenPrompt
from surefoot.critics.verdict import Vote

END_OF_THINKING = "</think>"


@dataclass(frozen=True)
class ChainCritic(StepCritic):
    """A critic that ends its analysis with a question."""

    takes_tokens: ClassVar[bool] = True
    closing: ClassVar[str]
    """The question before the verdict, as the model writes it."""
    forced: ClassVar[str]
    """What is appended to an analysis that ends without the question."""
    keeps_closing: ClassVar[bool] = True
    """Whether the model's own question is kept. Otherwise the forced one takes its place."""
    ends_with_thinking: ClassVar[bool] = False
    """Whether the chain is taken to end with the thinking, as ThinkPRM's makers do."""
    labels: ClassVar[Labels]

    @abstractmethod
    def prompt(self, task: Task, step: int) -> TokenPrompt:
        """The prompt for the solution up to a step."""

    async def vote(
        self, backend: CriticBackend, task: Task, step: int, history: tuple[str, ...], seed: int
    ) -> tuple[Vote, str | None]:
        """Let the model verify the steps so far, and read its answer to the closing question."""
        prompt = self.prompt(task, step)
        stops = (self.closing, END_OF_THINKING) if self.ends_with_thinking else (self.closing,)
        chain = await backend.write(prompt, max_tokens=self.max_tokens, sampling=self.sampling, seed=seed, stops=stops)
        if problem := incomplete(chain, self.max_tokens):
            return problem, None
        analysis = chain.text.removesuffix(END_OF_THINKING) if self.ends_with_thinking else chain.text
        asked = analysis.endswith(self.closing)
        if asked and not self.keeps_closing:
            analysis, asked = analysis.removesuffix(self.closing), False
        question = analysis if asked else analysis + self.forced
        return await backend.read(prompt.plus(question), self.labels, self.min_mass), chain.text
