"""Dyve: a dialogue with one user turn per step, to which the model replies with reasoning that ends in + or -.

The makers take any plus sign in the text for a verdict, also that of a sum. Here only one at the end of the reply
counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from surefoot.critics.backend import NO_VERDICT, CriticBackend, Labels, incomplete
from surefoot.critics.base import StepCritic, Task
from surefoot.critics.prompt import Token, TokenPrompt
from surefoot.critics.r1 import ASSISTANT, BOS, END, USER
from surefoot.critics.verdict import Vote, failed

VERDICT = re.compile(r"( ?)(?<![+\-\w])([+-])[\s.'\"`*}$]*\Z")


@dataclass(frozen=True)
class Dyve(StepCritic):
    """Jianyuan1/deepseek-r1-14b-cot-math-reasoning-full."""

    name: ClassVar[str] = "dyve"
    description: ClassVar[str] = "Dyve: reasons about each step and ends with + or -"
    models: ClassVar[tuple[str, ...]] = ("Jianyuan1/deepseek-r1-14b-cot-math-reasoning-full",)
    takes_tokens: ClassVar[bool] = True
    takes_system: ClassVar[bool] = False
    structure: ClassVar[tuple[str, ...]] = ("Is this step correct? You must answer with",)

    temperature: float = 0.0
    max_tokens: int = 1024

    def prompt(self, task: Task, step: int) -> TokenPrompt:
        """The dialogue up to a step, as in the makers' code.

        Only the first message has the problem, later ones lack a quote, and earlier replies are replaced with +.
        """
        return TokenPrompt((BOS, *self._turns(task, step), ASSISTANT))

    def _turns(self, task: Task, step: int) -> Iterator[str | Token]:
        for number, text in enumerate(task.steps[: step + 1]):
            yield USER
            problem, minus = (f"Problem: {task.question}\n\n", "'-'") if number == 0 else ("", "-'")
            yield (
                f"{problem}Step: {text}\n\nIs this step correct? You must answer with '+' for correct or {minus} for "
                "incorrect in the end of your response."
            )
            if number < step:
                yield ASSISTANT
                yield "+"
                yield END

    async def vote(
        self, backend: CriticBackend, task: Task, step: int, history: tuple[str, ...], seed: int
    ) -> tuple[Vote, str | None]:
        """Let the model reason, and read the sign at the end."""
        prompt = self.prompt(task, step)
        written = await backend.write(prompt, max_tokens=self.max_tokens, sampling=self.sampling, seed=seed)
        if problem := incomplete(written, self.max_tokens):
            return problem, None
        found = VERDICT.search(written.text)
        if found is None:
            return failed("no_verdict", NO_VERDICT), None
        labels = Labels(found.group(1) + "+", found.group(1) + "-")
        return await backend.read(prompt.plus(written.text[: found.start()]), labels, self.min_mass), written.text
