"""The Llemma PRMs of the easy-to-hard project.

The rule: `# Question`, the question, `# Solution`, then the steps, a blank line behind each; read at the first line
break of it. The value is stored as an output layer whose rows are all alike, so its mean row is the whole head.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from surefoot.core.prompt import Prompt
from surefoot.errors import CheckpointError
from surefoot.families.base import Family
from surefoot.families.builder import PromptBuilder
from surefoot.families.label_words import output_layer
from surefoot.families.tokenizer import PromptTokenizer

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Llemma(Family):
    """Plain text with headings."""

    name = "llemma"
    readout = "mean of all logits, sigmoid at the blank line"
    unused_tensors = ("lm_head.",)

    opening: str | None = "<s>"
    """The structure token that opens the text."""
    constant_head: bool = True
    """Refuse an output layer whose rows differ: that of an ordinary language model."""

    def head_shapes(self, config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """The output layer, of which the mean row is kept."""
        return output_layer(config)

    def reduce_head(self, tokenizer: PromptTokenizer, name: str, tensor: Tensor) -> Tensor:
        """The mean row: the mean of all logits is its product with the hidden state."""
        import torch

        mean = tensor.mean(0, dtype=torch.float32)
        low, high = tensor.amin(0).float(), tensor.amax(0).float()
        if self.constant_head and (high - low).max() > 1e-2 * torch.maximum(high.abs(), low.abs()).max():
            raise CheckpointError(
                f"The rows of {name} differ, so this looks like a language model and not like a Llemma PRM. If it is "
                'one all the same, say so: family_options={"constant_head": False}.'
            )
        return mean

    def render(
        self, tokenizer: PromptTokenizer, question: str, steps: Sequence[str], system: str | None = None
    ) -> Prompt:
        """Blank lines inside a step become line breaks: they would look like its end."""
        self.refuse_system(system)
        newline = tokenizer.word("\n")
        opening = f"# Question\n\n{question}\n\n# Solution\n\n"
        builder = PromptBuilder(tokenizer)
        if self.opening is not None:
            builder.token(self.opening)
        texts = [re.sub(r"\n{2,}", "\n", step.strip("\n")) for step in steps]
        first, *rest = texts or [""]
        for number, text in enumerate([opening + first, *rest]):
            builder.text(text, opens=number == 0, question=None if number else opening)
            if number < len(steps):
                builder.token(newline)
                builder.read()
                builder.token(newline)
        return builder.prompt()

    def read(self, head: Mapping[str, Tensor], hidden: Tensor) -> Tensor:
        """The sigmoid of the mean logit."""
        (row,) = head.values()
        return (hidden @ row).sigmoid()
