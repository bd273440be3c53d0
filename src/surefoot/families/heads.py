"""Heads: the one that several families share, and a family's read-out bound to a model's tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from surefoot.families.base import Family, config_int

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class BoundHead:
    """A family's read-out together with one model's head tensors.

    This is what the engine calls on hidden states, so it needs to know neither the family nor the tensors:

        head = BoundHead(family, weights.head)
        scores = head(hidden)
    """

    family: Family
    tensors: Mapping[str, Tensor]

    def __call__(self, hidden: Tensor, targets: Tensor | None = None) -> Tensor:
        """Read float32 hidden states, one per row; `targets` are the token ids whose log-probabilities are read."""
        if targets is None:
            return self.family.read(self.tensors, hidden)
        return self.family.read_targets(self.tensors, hidden, targets)


@dataclass(frozen=True)
class TwoClassFamily(Family):
    """A family with a two-class MLP head: Linear, ReLU, Linear on the marker's hidden state.

    The score is the probability of the second class, "right". Subclasses define the prompt.
    """

    readout = "two-class MLP at the marker"

    def head_shapes(self, config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """Linear, ReLU, Linear to two classes."""
        hidden_size = config_int(config, "hidden_size")
        return {
            "score.0.weight": (hidden_size, hidden_size),
            "score.0.bias": (hidden_size,),
            "score.2.weight": (2, hidden_size),
            "score.2.bias": (2,),
        }

    def logits(self, head: Mapping[str, Tensor], hidden: Tensor) -> Tensor:
        """Two logits per row: wrong and right."""
        from torch.nn.functional import linear, relu

        inner = relu(linear(hidden, head["score.0.weight"], head["score.0.bias"]))
        return linear(inner, head["score.2.weight"], head["score.2.bias"])

    def read(self, head: Mapping[str, Tensor], hidden: Tensor) -> Tensor:
        """The probability of the second class, "right"."""
        return self.logits(head, hidden).softmax(-1)[:, 1]
