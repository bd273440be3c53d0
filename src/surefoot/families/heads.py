"""The head that several families share: two classes, wrong and right, read at a marker by a small MLP.

The rule: Linear, ReLU, Linear on the hidden state of the marker; the score is the probability of the class `right`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from surefoot.families.base import Family, config_int

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class TwoClassFamily(Family):
    """A family with that head. What is left to say is how it is asked."""

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
        """Two numbers a row: for `wrong` and for `right`."""
        from torch.nn.functional import linear, relu

        inner = relu(linear(hidden, head["score.0.weight"], head["score.0.bias"]))
        return linear(inner, head["score.2.weight"], head["score.2.bias"])

    def read(self, head: Mapping[str, Tensor], hidden: Tensor) -> Tensor:
        """The probability of the second class, `right`."""
        return self.logits(head, hidden).softmax(-1)[:, 1]
