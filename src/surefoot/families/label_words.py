"""Two words of the vocabulary as the two classes: what a language model would say next, right or wrong.

The rule: of the output layer only the rows of these two words are kept and multiplied; the score is the softmax over
the two. Where the model ties its output layer to its embeddings, the rows come from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from surefoot.families.base import Family, config_int
from surefoot.families.tokenizer import PromptTokenizer

if TYPE_CHECKING:
    from torch import Tensor


def output_layer(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The name and shape of the output layer over the vocabulary."""
    name = "model.embed_tokens.weight" if config.get("tie_word_embeddings") else "lm_head.weight"
    return {name: (config_int(config, "vocab_size"), config_int(config, "hidden_size"))}


@dataclass(frozen=True)
class TwoWords(Family):
    """A family that is read so. What is left to say is how it is asked."""

    unused_tensors = ("lm_head.",)

    good: str = "+"
    bad: str = "-"

    def head_shapes(self, config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """The output layer, of which two rows are kept."""
        return output_layer(config)

    def reduce_head(self, tokenizer: PromptTokenizer, name: str, tensor: Tensor) -> Tensor:
        """The rows of the good word and of the bad one."""
        return tensor[[tokenizer.word(self.good), tokenizer.word(self.bad)]]

    def read(self, head: Mapping[str, Tensor], hidden: Tensor) -> Tensor:
        """The probability of the good word, were there only the two."""
        (rows,) = head.values()
        return (hidden @ rows.T).softmax(-1)[:, 0]
