"""Read-out through two tokens of the vocabulary: a word for right and a word for wrong.

Only the rows of these two tokens are kept of the output layer; the score is the softmax over their two logits. If the
model ties its output layer to its embeddings, the rows come from the embeddings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from surefoot.errors import CheckpointError
from surefoot.families.base import Family, config_int
from surefoot.tokenization.tokenizer import PromptTokenizer

if TYPE_CHECKING:
    from torch import Tensor


def output_layer(config: Mapping[str, Any], logits_scaling: float = 1.0) -> dict[str, tuple[int, ...]]:
    """The name and shape of the output layer over the vocabulary, of a model that divides logits by `logits_scaling`.

    A model that divides them by another number, as Granite does, would give wrong probabilities and is rejected.
    """
    if (stated := config.get("logits_scaling", 1.0)) != logits_scaling:
        raise CheckpointError(
            f"config.json sets 'logits_scaling' to {stated}, but this family divides logits by {logits_scaling}. Check "
            "the family and its options."
        )
    name = "model.embed_tokens.weight" if config.get("tie_word_embeddings") else "lm_head.weight"
    return {name: (config_int(config, "vocab_size"), config_int(config, "hidden_size"))}


@dataclass(frozen=True)
class LabelWordFamily(Family):
    """A family that compares the logits of two label words. Subclasses define the prompt."""

    unused_tensors = ("lm_head.",)

    good: str = "+"
    bad: str = "-"

    def head_shapes(self, config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """The output layer, of which two rows are kept."""
        return output_layer(config)

    def reduce_head(self, tokenizer: PromptTokenizer, name: str, tensor: Tensor) -> Tensor:
        """Keep the rows of the good and the bad word."""
        return tensor[[tokenizer.single_token(self.good), tokenizer.single_token(self.bad)]]

    def read(self, head: Mapping[str, Tensor], hidden: Tensor) -> Tensor:
        """The probability of the good word among the two."""
        (rows,) = head.values()
        return (hidden @ rows.T).softmax(-1)[:, 0]
