"""PRMs trained with TRL (or axolotl) as token classifiers, and PURE-PRM-7B.

The prompt is the ids of the question, then for each step its ids and those of the separator, each piece tokenized on
its own, as the trainer does. A linear layer classifies the last token of each separator as wrong or right. PURE's score
is the difference of the two probabilities.

TRL's documentation and the evaluation behind the published numbers of the HuggingFaceH4 models tokenize the joined text
instead, with a separator after the question, once per step (`joint`). A full stop and a line break then become one
token, which did not occur in training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from surefoot.core.prompt import Prompt
from surefoot.core.result import Scale
from surefoot.errors import OptionError
from surefoot.families.base import Family
from surefoot.families.builder import PromptBuilder
from surefoot.families.heads import linear, linear_shapes
from surefoot.tokenization.settings import TokenizerSettings
from surefoot.tokenization.tokenizer import PromptTokenizer

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class TokenClassifier(Family):
    """Plain text with a separator after every step."""

    name = "trl"
    readout = "linear two-class head at the separator"
    architectures = ("Qwen2ForTokenClassification", "LlamaForTokenClassification", "MistralForTokenClassification")
    unused_tensors = ("lm_head.",)  # part of the base model of LoRA weights

    separator: str = "\n"
    margin: bool = False
    """Score with the difference of the two probabilities, from -1 to 1, instead of the probability of "right"."""
    opening: str | None = None
    """The special token at the start of the text (BOS), if the vocabulary has one."""
    joint: bool = False
    """Tokenize the question and the steps as one text, as TRL's documentation does for inference."""

    def __post_init__(self) -> None:
        if not self.separator:
            raise OptionError("The separator is empty, so there is nothing to read at. Pass the one used in training.")

    def options_from(self, settings: TokenizerSettings) -> dict[str, Any]:
        """The BOS token: the trainer adds it itself; for joint text, the tokenizer may."""
        return settings.added_opening if self.joint else settings.opening

    @property
    def scale(self) -> Scale:
        """A probability, or the difference of two."""
        return "margin" if self.margin else "probability"

    @property
    def text_markers(self) -> tuple[str, ...]:
        """The separator."""
        return (self.separator,)

    def head_shapes(self, config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """One linear layer to two classes."""
        return linear_shapes(config, "score", 2)

    def render(
        self, tokenizer: PromptTokenizer, question: str, steps: Sequence[str], system: str | None = None
    ) -> Prompt:
        """No chat format, no system message, nothing between the question and the first step.

        For joint text, this is the prompt of the last step.
        """
        self.reject_system(system)
        builder = PromptBuilder(tokenizer, bos=self.opening)
        if self.joint:
            text = self.separator.join((question, *steps)) + self.separator
            builder.text(text, starts_text=True, question=question)
            if steps:
                builder.read()
            return builder.build()
        builder.text(question, starts_text=True)
        builder.end_question()
        for step in steps:
            builder.text(step, starts_text=True)
            builder.text(self.separator, starts_text=True)
            builder.read()
        return builder.build()

    @property
    def prompt_per_step(self) -> bool:
        """For joint text only."""
        return self.joint

    def read(self, head: Mapping[str, Tensor], hidden: Tensor) -> Tensor:
        """The probability of the second class, "right", or its difference to that of the first."""
        wrong, right = linear(head, "score", hidden).softmax(-1).unbind(-1)
        return right - wrong if self.margin else right
