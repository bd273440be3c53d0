"""The Llemma PRMs of the easy-to-hard project.

The prompt is `# Question`, the question, `# Solution`, then the steps, each followed by a blank line; the score is read
at the first line break of that blank line. The value is stored as an output layer whose rows are all equal, so its mean
row is the whole head.
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
from surefoot.tokenization.settings import TokenizerSettings
from surefoot.tokenization.tokenizer import PromptTokenizer

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Llemma(Family):
    """Plain text with headings."""

    name = "llemma"
    readout = "mean of all logits, sigmoid at the blank line"
    unused_tensors = ("lm_head.",)

    opening: str | None = "<s>"
    """The special token at the start of the text (BOS)."""
    constant_head: bool = True
    """Reject an output layer whose rows differ, which is that of an ordinary language model."""

    def options_from(self, settings: TokenizerSettings) -> dict[str, Any]:
        """The BOS token, if the tokenizer puts it in front of a text."""
        return settings.added_opening

    def head_shapes(self, config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """The output layer, of which the mean row is kept."""
        return output_layer(config)

    def reduce_head(self, tokenizer: PromptTokenizer, name: str, tensor: Tensor) -> Tensor:
        """Keep the mean row: its product with the hidden state is the mean of all logits."""
        import torch

        mean = tensor.mean(0, dtype=torch.float32)
        low, high = tensor.amin(0).float(), tensor.amax(0).float()
        if self.constant_head and (high - low).max() > 1e-2 * torch.maximum(high.abs(), low.abs()).max():
            raise CheckpointError(
                f"The rows of {name} differ, so this looks like a language model and not like a Llemma PRM. If it is "
                'a Llemma PRM after all, pass family_options={"constant_head": False}.'
            )
        return mean

    def render(
        self, tokenizer: PromptTokenizer, question: str, steps: Sequence[str], system: str | None = None
    ) -> Prompt:
        """Blank lines inside a step become single line breaks, because they would look like its end."""
        self.reject_system(system)
        newline = tokenizer.single_token("\n")
        start = f"# Question\n\n{question}\n\n# Solution\n\n"
        builder = PromptBuilder(tokenizer, bos=self.opening)
        texts = [re.sub(r"\n{2,}", "\n", step.strip("\n")) for step in steps]
        first, *rest = texts or [""]
        for number, text in enumerate([start + first, *rest]):
            builder.text(text, starts_text=number == 0, question=None if number else start)
            if number < len(steps):
                builder.token(newline)
                builder.read()
                builder.token(newline)
        return builder.build()

    def read(self, head: Mapping[str, Tensor], hidden: Tensor) -> Tensor:
        """The sigmoid of the mean logit."""
        (row,) = head.values()
        return (hidden @ row).sigmoid()
