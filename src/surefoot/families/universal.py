"""Universal-PRM-7B.

Every step is scored at the end of a prompt that contains the steps up to it and nothing after. The prompts of one
solution differ only at their end, and their common prefix is computed once. The question may contain a reference
answer, as in training; if it does not, the prompt says that there is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from surefoot.core.prompt import Prompt
from surefoot.families.base import Family
from surefoot.families.builder import PromptBuilder
from surefoot.families.chat import chatml_turn, open_assistant_turn
from surefoot.families.heads import mlp, mlp_shapes
from surefoot.tokenization.settings import Message
from surefoot.tokenization.tokenizer import PromptTokenizer

if TYPE_CHECKING:
    from torch import Tensor

REFERENCE = "\n\n###\n\nThe reference answer is: "
NO_REFERENCE = "There is no reference answer for this question."


@dataclass(frozen=True)
class Universal(Family):
    """One prompt per step."""

    name = "universal"
    readout = "value MLP, sigmoid at the end of each prefix"
    unused_tensors = ("lm_head.",)

    default_system: str | None = "You are a helpful assistant."
    end: str = "<|im_end|>"
    """The special token that ends the text, where it is read."""

    def chat_messages(self, question: str, steps: Sequence[str]) -> list[Message]:
        """System, user and assistant turn; the latter with all steps."""
        turns = [("user", self._with_reference(question)), ("assistant", "\n\n".join(steps) + "\n\n")]
        if self.default_system is not None:
            turns.insert(0, ("system", self.default_system))
        return [{"role": role, "content": content} for role, content in turns]

    def head_shapes(self, config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """Linear, ReLU, Linear to one value."""
        return mlp_shapes(config, 1)

    def render(
        self, tokenizer: PromptTokenizer, question: str, steps: Sequence[str], system: str | None = None
    ) -> Prompt:
        """The prompt of the last step: all steps, read once at the end."""
        system = self.default_system if system is None else system
        builder = PromptBuilder(tokenizer)
        if system is not None:
            chatml_turn(builder, "system", system)
        chatml_turn(builder, "user", self._with_reference(question))
        open_assistant_turn(builder, "chatml")
        builder.end_question()
        if steps:
            builder.text("\n\n".join(steps) + "\n\n")
            builder.token(self.end)
            builder.read()
        return builder.build()

    def _with_reference(self, question: str) -> str:
        return question if REFERENCE in question else question + REFERENCE + NO_REFERENCE

    @property
    def prompt_per_step(self) -> bool:
        """Every step has its own prompt."""
        return True

    def read(self, head: Mapping[str, Tensor], hidden: Tensor) -> Tensor:
        """The sigmoid of the value."""
        return mlp(head, hidden).sigmoid()[:, 0]
