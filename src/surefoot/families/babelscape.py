"""Babelscape's Llama-3.1-8B-PRM800k-r and -PDDL-r.

The prompt is `Problem: ...`, `Steps:`, then each step as `Step 1: ...` followed by `ки` on a line of its own, where a
scalar is read. The name of the scalar's layer and whether a sigmoid follows it are not published; both are options.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from surefoot.core.prompt import Prompt
from surefoot.families.base import Family
from surefoot.families.builder import PromptBuilder
from surefoot.families.chat import numbered
from surefoot.families.heads import linear, linear_shapes
from surefoot.tokenization.settings import TokenizerSettings
from surefoot.tokenization.tokenizer import PromptTokenizer

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Babelscape(Family):
    """Plain text with a tag on a line of its own after every step."""

    name = "babelscape"
    readout = "scalar at the tag"
    unused_tensors = ("lm_head.",)

    tag: str = "ки"
    head: str = "score"
    """The prefix of the tensor names of the scalar's layer."""
    bias: bool = True
    """Whether that layer has a bias."""
    sigmoid: bool = True
    """Apply a sigmoid to the scalar. Without it, the scalar must already be a probability."""
    opening: str | None = "<|begin_of_text|>"
    """The special token at the start of the text (BOS)."""

    @property
    def text_markers(self) -> tuple[str, ...]:
        """The tag."""
        return (self.tag,)

    def options_from(self, settings: TokenizerSettings) -> dict[str, Any]:
        """The BOS token, if the tokenizer puts it in front of a text."""
        return settings.added_opening

    def head_shapes(self, config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """One linear layer to one value."""
        return linear_shapes(config, self.head, 1, bias=self.bias)

    def render(
        self, tokenizer: PromptTokenizer, question: str, steps: Sequence[str], system: str | None = None
    ) -> Prompt:
        """No chat format and no system message."""
        self.reject_system(system)
        tag = tokenizer.single_token(self.tag)
        start = f"Problem: {question}\nSteps:"
        builder = PromptBuilder(tokenizer, bos=self.opening)
        if not steps:
            builder.text(start, starts_text=True)
        for number, step in enumerate(steps, start=1):
            text = f"\n{numbered(number, step)}\n"
            if number == 1:
                builder.text(start + text, starts_text=True, question=start)
            else:
                builder.text(text)
            builder.token(tag)
            builder.read()
        return builder.build()

    def read(self, head: Mapping[str, Tensor], hidden: Tensor) -> Tensor:
        """The scalar, with or without a sigmoid."""
        value = linear(head, self.head, hidden)[:, 0]
        return value.sigmoid() if self.sigmoid else value
