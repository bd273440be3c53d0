"""Babelscape's Llama-3.1-8B-PRM800k-r and -PDDL-r.

The rule: `Problem: ...`, `Steps:`, then `Step 1: ...` and `ки` on a line of its own behind every step, where a scalar
is read. What the scalar's layer is called and whether it goes through a sigmoid is not published; both are options.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from surefoot.core.prompt import Prompt
from surefoot.families.base import Family, config_int
from surefoot.families.builder import PromptBuilder
from surefoot.families.chat import numbered
from surefoot.families.tokenizer import PromptTokenizer

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Babelscape(Family):
    """Plain text, a tag on a line of its own."""

    name = "babelscape"
    readout = "scalar at the tag"
    unused_tensors = ("lm_head.",)

    tag: str = "ки"
    head: str = "score"
    """What the tensor names of the scalar's layer start with."""
    bias: bool = True
    """Whether that layer has a bias."""
    sigmoid: bool = True
    """Whether the scalar goes through a sigmoid; without it, it has to be a probability as it is."""
    opening: str | None = "<|begin_of_text|>"
    """The structure token that opens the text."""

    @property
    def lookalikes(self) -> tuple[str, ...]:
        """The tag."""
        return (self.tag,)

    def head_shapes(self, config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """One linear layer to one value."""
        shapes: dict[str, tuple[int, ...]] = {f"{self.head}.weight": (1, config_int(config, "hidden_size"))}
        if self.bias:
            shapes[f"{self.head}.bias"] = (1,)
        return shapes

    def render(
        self, tokenizer: PromptTokenizer, question: str, steps: Sequence[str], system: str | None = None
    ) -> Prompt:
        """No chat and no system message."""
        self.refuse_system(system)
        tag = tokenizer.word(self.tag)
        start = f"Problem: {question}\nSteps:"
        builder = PromptBuilder(tokenizer)
        if self.opening is not None:
            builder.token(self.opening)
        if not steps:
            builder.text(start, opens=True)
        for number, step in enumerate(steps, start=1):
            text = f"\n{numbered(number, step)}\n"
            if number == 1:
                builder.text(start + text, opens=True, question=start)
            else:
                builder.text(text)
            builder.token(tag)
            builder.read()
        return builder.prompt()

    def read(self, head: Mapping[str, Tensor], hidden: Tensor) -> Tensor:
        """The scalar."""
        value = hidden @ head[f"{self.head}.weight"][0]
        if self.bias:
            value = value + head[f"{self.head}.bias"]
        return value.sigmoid() if self.sigmoid else value
