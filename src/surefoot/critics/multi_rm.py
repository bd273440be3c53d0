"""gPRM and gORM of Multi-RM: a chain of verification that ends with Yes or No, in fourteen domains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from surefoot.critics.backend import CriticBackend, Labels
from surefoot.critics.base import Memo, Task
from surefoot.critics.chains import ChainCritic
from surefoot.critics.prompt import Token, TokenPrompt
from surefoot.critics.r1 import ASSISTANT, BOS, THINK, USER, WITH_THINKING
from surefoot.critics.verdict import Judgement, failed

OPENING = "Let's verify step by step:"
WHOLE_ONLY = "This critic judges whole solutions. Its score is that of the last step."
QWEN3 = "<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n"
SIZES = ("8B", "14B", "qwen")


@dataclass(frozen=True)
class GPRM(ChainCritic):
    """dongboklee/gPRM-8B, -14B and -qwen. The score of a step is that of the solution up to it."""

    name: ClassVar[str] = "gprm"
    description: ClassVar[str] = "gPRM (Multi-RM): verifies each prefix in one chain, 14 domains"
    models: ClassVar[tuple[str, ...]] = tuple(f"dongboklee/gPRM-{size}" for size in SIZES)
    model_options: ClassVar[Mapping[str, Mapping[str, Any]]] = {"dongboklee/gPRM-qwen": {"template": "qwen3"}}
    takes_system: ClassVar[bool] = False
    structure: ClassVar[tuple[str, ...]] = ("[Solution]", "Is the solution correct?")
    numbers_steps: ClassVar[bool] = True
    closing: ClassVar[str] = "Is the solution correct?"
    forced: ClassVar[str] = "\nIs the solution correct?"
    labels: ClassVar[Labels] = Labels(" Yes", " No")

    category: str = "math"
    """The domain as the prompt names it, such as `law` or `computer science`."""
    template: Literal["r1", "qwen3"] = "r1"
    """The chat format: `qwen3` for gPRM-qwen and gORM-qwen."""
    max_tokens: int = 8192

    def published_template(self) -> str | None:
        """The template that the makers set for R1, and that of Qwen3 before its option adds an empty thinking."""
        return WITH_THINKING if self.template == "r1" else QWEN3

    def prompt(self, task: Task, step: int) -> TokenPrompt:
        """The solution up to a step, in the makers' words."""
        return in_template(self.template, self.message(task.question, task.steps[: step + 1]))

    def message(self, question: str, steps: Sequence[str]) -> str:
        """The user message."""
        listed = "\n".join(f"Step {number}: {step}" for number, step in enumerate(steps, 1))
        return (
            f"You are given a {self.category} problem and a proposed step-by-step solution:\n\n"
            f"[{self.category.capitalize()} Problem]\n{question}\n\n[Solution]\n{listed}\n\n"
            "Review and critique each step in the proposed solution to determine whether each step is correct. "
            "If the solution is incomplete, only verify the provided steps."
        )


@dataclass(frozen=True)
class GORM(GPRM):
    """dongboklee/gORM-8B, -14B and -qwen. They judge whole solutions, so only the last step has a score."""

    name: ClassVar[str] = "gorm"
    description: ClassVar[str] = "gORM (Multi-RM): judges whole solutions, so only the last step has a score"
    models: ClassVar[tuple[str, ...]] = tuple(f"dongboklee/gORM-{size}" for size in SIZES)
    model_options: ClassVar[Mapping[str, Mapping[str, Any]]] = {"dongboklee/gORM-qwen": {"template": "qwen3"}}
    structure: ClassVar[tuple[str, ...]] = ("[Solution]", "Is the answer correct (Yes/No)?")
    numbers_steps: ClassVar[bool] = False
    closing: ClassVar[str] = "Verification: Is the answer correct (Yes/No)?"
    forced: ClassVar[str] = "\nVerification: Is the answer correct (Yes/No)?"
    recommended: ClassVar[str | None] = "final"

    def message(self, question: str, steps: Sequence[str]) -> str:
        """The user message."""
        solution = "\n\n".join(steps).strip()
        return (
            f"You are a {self.category} teacher. Grade the solution, verifying correctness step by step.\n"
            "At the end of Solution verification, when you give your final grade, write it in the form "
            '"Verification: Is the answer correct (Yes/No)? X", where X is either Yes or No.\n\n'
            f"[{self.category.capitalize()} Problem]\n{question.strip()}\n\n[Solution]\n{solution}\n"
        )

    async def judge(self, backend: CriticBackend, task: Task, memo: Memo) -> list[Judgement]:
        """Judge the whole solution."""
        if not task.steps:
            return []
        key = (self.name, task.question, *task.steps)
        last = len(task.steps) - 1
        whole = await memo.get(key, lambda: self.judge_step(backend, task, last, ()))
        return [*(Judgement((failed("not_judged", WHOLE_ONLY),)) for _ in range(last)), whole]


def in_template(template: Literal["r1", "qwen3"], message: str) -> TokenPrompt:
    """A user message in a chat format, with the beginning of the model's reply."""
    if template == "r1":
        return TokenPrompt((BOS, USER, message, ASSISTANT, THINK, "\n", OPENING))
    start, end = Token("<|im_start|>"), Token("<|im_end|>")
    thinking = (THINK, "\n\n", Token("</think>"), "\n\n")
    return TokenPrompt((start, "user\n", message, end, "\n", start, "assistant\n", *thinking, OPENING))
