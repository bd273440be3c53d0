"""Skywork-o1-Open-PRM-Qwen-2.5-1.5B and -7B.

The prompt is the problem and the solution line by line; every line is tokenized on its own and ends with a line break.
A value is read at the line break that ends a step, and its sigmoid is the score. The makers' code gives every line a
score, blank ones included; here a step has the score of its last line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from surefoot.core.prompt import Prompt
from surefoot.families.base import Family
from surefoot.families.builder import PromptBuilder
from surefoot.families.heads import linear, linear_shapes
from surefoot.tokenization.settings import TokenizerSettings
from surefoot.tokenization.tokenizer import PromptTokenizer

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Skywork(Family):
    """Plain text with a value head at line breaks."""

    name = "skywork"
    readout = "value head, sigmoid at the line break"
    architectures = ("Qwen2ForPrmModel",)
    unused_tensors = ("lm_head.",)

    opening: str | None = "<|im_start|>"
    """The special token at the start of the text: the BOS token in the tokenizer's files, not that in config.json."""

    def options_from(self, settings: TokenizerSettings) -> dict[str, Any]:
        """The BOS token."""
        return settings.opening

    def head_shapes(self, config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """One linear layer to one value."""
        return linear_shapes(config, "v_head.summary", 1)

    def render(
        self, tokenizer: PromptTokenizer, question: str, steps: Sequence[str], system: str | None = None
    ) -> Prompt:
        """No chat format and no system message."""
        self.reject_system(system)
        newline = tokenizer.single_token("\n")
        builder = PromptBuilder(tokenizer, bos=self.opening)
        builder.text(f"{question}\n", starts_text=True)
        builder.end_question()
        for step in steps:
            for line in step.split("\n"):
                builder.text(line)
                builder.token(newline)
            builder.read()
        return builder.build()

    def read(self, head: Mapping[str, Tensor], hidden: Tensor) -> Tensor:
        """The sigmoid of the value."""
        return linear(head, "v_head.summary", hidden).sigmoid()[:, 0]
