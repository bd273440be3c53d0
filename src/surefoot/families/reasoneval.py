"""ReasonEval-7B and -34B.

The prompt is the question and the steps as plain text, one after the other. A token at the end of each step is
classified as negative, neutral or positive. The score is the probability of neutral or positive, that is, of a valid
step. The makers read the 34B at the step's last token and the 7B, whose separator is the BOS token, one token earlier;
their published numbers come from that code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from surefoot.core.prompt import Prompt
from surefoot.errors import OptionError
from surefoot.families.base import Family
from surefoot.families.builder import PromptBuilder
from surefoot.families.heads import linear, linear_shapes
from surefoot.tokenization.settings import TokenizerSettings
from surefoot.tokenization.tokenizer import PromptTokenizer

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ReasonEval(Family):
    """Plain text with three classes at the end of each step."""

    name = "reasoneval"
    readout = "three classes at the end of the step"

    opening: str | None = "<s>"
    """The special token at the start of the text (BOS)."""
    steps_open: bool = True
    """Encode every step as the start of a text. In the authors' code a special token separates the steps during
    tokenization and is removed afterwards."""
    tokens_back: int = 0
    """How many tokens before the step's last one to read: 1 for the 7B."""

    def __post_init__(self) -> None:
        if self.tokens_back < 0:
            raise OptionError(f"tokens_back={self.tokens_back} would read after the step. Pass 0 or more.")

    def options_from(self, settings: TokenizerSettings) -> dict[str, Any]:
        """The BOS token, if the tokenizer puts it in front of a text."""
        return settings.added_opening

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
            builder.read(tokens_back=self.tokens_back)
        return builder.build()

    def read(self, head: Mapping[str, Tensor], hidden: Tensor) -> Tensor:
        """The probability of neutral or positive."""
        return linear(head, "score_head", hidden).softmax(-1)[:, 1:].sum(-1)
