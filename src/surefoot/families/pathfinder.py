"""PathFinder-PRM-7B.

Every step has its own prompt: the question after an instruction, then the earlier steps, the current one and two slots,
`Math reasoning` and `Consistency`. The verdict `<+>` or `<->` of a slot is read one token before it, and for the makers
a step is wrong if either verdict is `<->`. Its score is the lower of the two probabilities of `<+>`, so it is above 0.5
exactly for the steps that the makers count as right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from surefoot.core.prompt import Prompt
from surefoot.families.base import StepValue
from surefoot.families.builder import PromptBuilder
from surefoot.families.chat import chatml_turn, template_system
from surefoot.families.label_words import LabelWordFamily
from surefoot.tokenization.settings import Message, TokenizerSettings
from surefoot.tokenization.tokenizer import PromptTokenizer

if TYPE_CHECKING:
    from torch import Tensor

INSTRUCTION = (
    "You are a Math Teacher. Given a question and a student's solution, evaluate the mathematical correctness, logic "
    "consistency of the current step and whether it will lead to the correct final solution"
)
MATH, CONSISTENCY = " Math reasoning: ", ", Consistency: "


@dataclass(frozen=True)
class PathFinder(LabelWordFamily):
    """One prompt per step, with two verdicts."""

    name = "pathfinder"
    readout = "two verdicts per step, one token before each slot; the lower one"
    added_tokens = ("<+>", "<->", "<extra>")

    good: str = "<+>"
    bad: str = "<->"
    slot: str = "<extra>"
    """The special token in the place of a verdict."""
    instruction: str = INSTRUCTION
    default_system: str | None = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
    """What the chat template puts in the system turn by itself."""

    def options_from(self, settings: TokenizerSettings) -> dict[str, Any]:
        """The system message of the checkpoint's chat template."""
        return template_system(settings, "chatml", "default_system")

    def chat_messages(self, question: str, steps: Sequence[str]) -> list[Message]:
        """The conversation for the last step."""
        verdicts = f"{MATH}{self.slot}{CONSISTENCY}{self.slot}"
        return [
            {"role": "user", "content": self._request(question)},
            {"role": "assistant", "content": _current(steps) + verdicts},
        ]

    def reduce_head(self, tokenizer: PromptTokenizer, name: str, tensor: Tensor) -> Tensor:
        """Keep the rows of the two verdicts, which are special tokens."""
        return tensor[[tokenizer.token(self.good), tokenizer.token(self.bad)]]

    def render(
        self, tokenizer: PromptTokenizer, question: str, steps: Sequence[str], system: str | None = None
    ) -> Prompt:
        """The prompt of the last step."""
        system = self.default_system if system is None else system
        builder = PromptBuilder(tokenizer)
        if system is not None:
            chatml_turn(builder, "system", system)
        chatml_turn(builder, "user", self._request(question))
        builder.token("<|im_start|>")
        builder.end_question()
        if not steps:
            builder.text("assistant\n")
            return builder.build()
        for text in (f"assistant\n{_current(steps)}{MATH}", CONSISTENCY):
            builder.text(text)
            builder.read()
            builder.token(self.slot)
        builder.end_step()
        return builder.build()

    @property
    def prompt_per_step(self) -> bool:
        """Every step has its own prompt."""
        return True

    def combine(self, prompt: Prompt, values: Tensor) -> list[StepValue]:
        """The lower of the two verdicts."""
        return [StepValue(float(values.min()))] if prompt.ends else []

    def _request(self, question: str) -> str:
        return f"{self.instruction}\n\n Question: {question}"


def _current(steps: Sequence[str]) -> str:
    """The earlier steps and the last one, which is the one to judge."""
    return "\n\n".join([*steps[:-1], f"Current Step: {steps[-1]}"])
