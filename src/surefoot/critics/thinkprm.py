"""ThinkPRM: one long chain that verifies all steps so far, then a forced answer to `Is the solution correct?`.

The score of a step is the probability that the solution up to it is correct. The makers' F1 on ProcessBench is a binary
one over whole solutions, which must not be compared with first-error F1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from surefoot.critics.backend import Labels
from surefoot.critics.base import Task, numbered
from surefoot.critics.chains import ChainCritic
from surefoot.critics.prompt import TokenPrompt
from surefoot.critics.r1 import ASSISTANT, BOS, THINK, USER, WITH_THINKING


@dataclass(frozen=True)
class ThinkPRM(ChainCritic):
    """launch/ThinkPRM-1.5B, -7B and -14B."""

    name: ClassVar[str] = "thinkprm"
    description: ClassVar[str] = "ThinkPRM: verifies each prefix in one chain, forced yes/no verdict"
    models: ClassVar[tuple[str, ...]] = ("launch/ThinkPRM-1.5B", "launch/ThinkPRM-7B", "launch/ThinkPRM-14B")
    takes_system: ClassVar[bool] = False
    structure: ClassVar[tuple[str, ...]] = ("[Math Problem]", "[Solution]", "Is the solution correct?")
    closing: ClassVar[str] = "Is the solution correct?"
    # The makers append a trailing space and compare `yes` and `no`. Together these are the tokens ` yes` and ` no`.
    forced: ClassVar[str] = "\nIs the solution correct?"
    keeps_closing: ClassVar[bool] = False
    ends_with_thinking: ClassVar[bool] = True
    labels: ClassVar[Labels] = Labels(" yes", " no")

    max_tokens: int = 8172

    def published_template(self) -> str | None:
        """The template of DeepSeek-R1-Distill."""
        return WITH_THINKING

    def prompt(self, task: Task, step: int) -> TokenPrompt:
        """The solution up to a step, in the makers' words."""
        user = (
            "You are given a math problem and a proposed step-by-step solution:\n\n"
            f"[Math Problem]\n\n{task.question}\n\n[Solution]\n\n{numbered(task.steps[: step + 1])}\n\n"
            "Review and critique each step in the proposed solution to determine whether each step is correct. "
            "If the solution is incomplete, only verify the provided steps."
        )
        return TokenPrompt((BOS, USER, user, ASSISTANT, THINK, "\n", "\nLet's verify step by step:"))
