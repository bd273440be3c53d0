"""PRMs trained with TRL (or axolotl) as token classifiers, and PURE-PRM-7B.

The rule: the ids of the question, then for each step its ids and those of the separator, each piece tokenised on its
own, as the trainer does; two classes, wrong and right, are read by one linear layer at the last token of each
separator. PURE takes the difference of the two probabilities as its score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from surefoot.core.prompt import Prompt
from surefoot.core.result import Scale
from surefoot.errors import OptionError
from surefoot.families.base import Family, config_int
from surefoot.families.builder import PromptBuilder
from surefoot.families.tokenizer import PromptTokenizer

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class TokenClassifier(Family):
    """Plain text, a separator behind every step."""

    name = "trl"
    readout = "linear two-class head at the separator"
    architectures = ("Qwen2ForTokenClassification", "LlamaForTokenClassification", "MistralForTokenClassification")
    unused_tensors = ("lm_head.",)  # of the base, under LoRA weights

    separator: str = "\n"
    margin: bool = False
    """Score by the difference of the two probabilities, from -1 to 1, instead of that of `right`."""
    opening: str | None = None
    """The structure token that opens the text, where the vocabulary has a token for that."""

    def __post_init__(self) -> None:
        if not self.separator:
            raise OptionError("The separator is empty, so there is no place to read. Give the one of the training.")

    @property
    def scale(self) -> Scale:
        """A probability, or the difference of two."""
        return "margin" if self.margin else "probability"

    @property
    def lookalikes(self) -> tuple[str, ...]:
        """The separator."""
        return (self.separator,)

    def head_shapes(self, config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """One linear layer to two classes."""
        return {"score.weight": (2, config_int(config, "hidden_size")), "score.bias": (2,)}

    def render(
        self, tokenizer: PromptTokenizer, question: str, steps: Sequence[str], system: str | None = None
    ) -> Prompt:
        """No chat, no system message, nothing between question and first step."""
        self.refuse_system(system)
        builder = PromptBuilder(tokenizer)
        if self.opening is not None:
            builder.token(self.opening)
        builder.text(question, opens=True)
        builder.question_ends()
        for step in steps:
            builder.text(step, opens=True)
            builder.text(self.separator, opens=True)
            builder.read()
        return builder.prompt()

    def read(self, head: Mapping[str, Tensor], hidden: Tensor) -> Tensor:
        """The probability of the second class, `right`; or that less the first."""
        wrong, right = (hidden @ head["score.weight"].T + head["score.bias"]).softmax(-1).unbind(-1)
        return right - wrong if self.margin else right
