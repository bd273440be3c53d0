"""ReasonEval-7B and -34B.

The prompt is the question and the steps as plain text, one after the other. The last token of each step is classified
as negative, neutral or positive. The score is the probability of neutral or positive, that is, of a valid step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from surefoot.core.prompt import Prompt
from surefoot.families.base import Family
from surefoot.families.builder import PromptBuilder
from surefoot.families.heads import linear, linear_shapes
from surefoot.families.tokenizer import PromptTokenizer

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ReasonEval(Family):
    """Plain text with three classes at the end of each step."""

    name = "reasoneval"
    readout = "three classes at the step's last token"

    opening: str | None = "<s>"
    """The special token at the start of the text (BOS)."""
    steps_open: bool = True
    """Encode every step as the start of a text. In the authors' code a special token separates the steps during
    tokenization and is removed afterwards."""

    def head_shapes(self, config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """One linear layer to three classes, with a bias if config.json says so."""
        return linear_shapes(config, "score_head", 3, bias=bool(config.get("use_bias", config.get("bias"))))

    def render(
        self, tokenizer: PromptTokenizer, question: str, steps: Sequence[str], system: str | None = None
    ) -> Prompt:
        """No chat format, and nothing between the steps."""
        self.reject_system(system)
        builder = PromptBuilder(tokenizer, bos=self.opening)
        builder.text(f"Question:\n{question}\nAnswer:\nLet's think step by step.\n", starts_text=True)
        builder.end_question()
        for step in steps:
            builder.text(step, starts_text=self.steps_open)
            builder.read()
        return builder.build()

    def read(self, head: Mapping[str, Tensor], hidden: Tensor) -> Tensor:
        """The probability of neutral or positive."""
        return linear(head, "score_head", hidden).softmax(-1)[:, 1:].sum(-1)
