"""ReasonFlux-PRM-1.5B, which scores a whole text (ReasonFlux-PRM-7B belongs to the family `qwen`).

The text is the question and the solution with nothing in between. The makers' code gives one score per text: the
sigmoid of a value at the last token, from a head in a file of its own, `reward_head.pt`. Here it is applied to every
prefix of the solution, so the score of the last step is the makers' score of the solution. A blank line separates the
steps, as in the makers' advice on splitting.
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
class ReasonFlux(Family):
    """Plain text with a value head at the end of each prefix."""

    name = "reasonflux"
    readout = "value head, sigmoid at the end of each prefix"
    unused_tensors = ("lm_head.",)

    opening: str | None = None
    """The special token at the start of the text (BOS), if the tokenizer adds one."""

    def options_from(self, settings: TokenizerSettings) -> dict[str, Any]:
        """The tokenizer decides whether the text starts with a BOS token."""
        return settings.added_opening

    def head_shapes(self, config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """One linear layer to one value."""
        return linear_shapes(config, "reward_head", 1)

    def render(
        self, tokenizer: PromptTokenizer, question: str, steps: Sequence[str], system: str | None = None
    ) -> Prompt:
        """The prompt of the last step: all steps, read once at the end."""
        self.reject_system(system)
        builder = PromptBuilder(tokenizer, bos=self.opening)
        builder.text(question + "\n\n".join(steps), starts_text=True, question=question)
        if steps:
            builder.read()
        return builder.build()

    @property
    def prompt_per_step(self) -> bool:
        """Every step has its own prompt."""
        return True

    def read(self, head: Mapping[str, Tensor], hidden: Tensor) -> Tensor:
        """The sigmoid of the value."""
        return linear(head, "reward_head", hidden).sigmoid()[:, 0]
