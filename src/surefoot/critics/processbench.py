"""ProcessBench's critic: any chat model names the first wrong paragraph of a whole solution.

Steps before the reported error are right, that one is wrong, and nothing is known about later ones.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from surefoot.critics.backend import NO_VERDICT, CriticBackend, incomplete
from surefoot.critics.base import Critic, Memo, Task
from surefoot.critics.prompt import ChatMessage
from surefoot.critics.verdict import Judgement, Vote, failed, from_first_errors
from surefoot.text.thinking import after_thinking

BOXED = re.compile(r"\\boxed\{([^}]*)\}")
INDEX = re.compile(r"\s*(?:\\text\{)?\s*(-?\d{1,5})\s*\Z")
NOT_A_STEP = "The critic named paragraph {index}, and the solution has {steps} steps, numbered from 0."


@dataclass(frozen=True)
class ProcessBenchCritic(Critic):
    """The prompt with which the makers of ProcessBench evaluated chat models."""

    name: ClassVar[str] = "processbench"
    description: ClassVar[str] = "any chat model with ProcessBench's prompt: names the first wrong step"
    structure: ClassVar[tuple[str, ...]] = ("<paragraph_", "</paragraph_")
    takes_system: ClassVar[bool] = False

    temperature: float = 0.0
    """For several votes, the makers use 1.0 with top_p=0.9."""
    max_tokens: int = 8192

    def prompt(self, question: str, steps: Sequence[str]) -> ChatMessage:
        """The message, in the makers' words."""
        tagged = "\n\n".join(f"<paragraph_{k}>\n{step}\n</paragraph_{k}>" for k, step in enumerate(steps))
        return ChatMessage(
            "The following is a math problem and a solution (split into paragraphs, enclosed with tags and indexed "
            f"from 0):\n\n[Math Problem]\n\n{question}\n\n[Solution]\n\n{tagged}\n\n"
            "Your task is to review and critique the solution paragraph by paragraph. Once you identify an error in a "
            "paragraph, return the index of the paragraph where the earliest error occurs. Otherwise, return the index "
            'of -1 (which typically denotes "not found").\n\n'
            "Please put your final answer (i.e., the index) in \\boxed{}."
        )

    async def judge(self, backend: CriticBackend, task: Task, memo: Memo) -> list[Judgement]:
        """Ask for the first error, once per vote."""
        if not task.steps:
            return []
        prompt, last = self.prompt(task.question, task.steps), len(task.steps) - 1
        reported = await asyncio.gather(
            *(self._first_error(backend, prompt, task, self.seed(task, last, vote)) for vote in range(self.votes))
        )
        return from_first_errors(reported, len(task.steps))

    async def _first_error(self, backend: CriticBackend, prompt: ChatMessage, task: Task, seed: int) -> int | Vote:
        written = await backend.write(prompt, max_tokens=self.max_tokens, sampling=self.sampling, seed=seed)
        return incomplete(written, self.max_tokens) or read_index(written.text, len(task.steps))


def read_index(text: str, steps: int) -> int | Vote:
    """The last boxed index after the thinking, or why it cannot be used.

    >>> read_index("The sum in paragraph 1 is wrong: \\\\boxed{1}", 3)
    1
    """
    boxed = BOXED.findall(after_thinking(text))
    found = INDEX.match(boxed[-1]) if boxed else None
    if found is None:
        return failed("no_verdict", NO_VERDICT)
    index = int(found.group(1))
    if not -1 <= index < steps:
        return failed("no_verdict", NOT_A_STEP.format(index=index, steps=steps))
    return index
