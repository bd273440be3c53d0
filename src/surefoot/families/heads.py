"""Heads that several families share, and a family's read-out bound to a model's tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from surefoot.families.base import Family, config_int

if TYPE_CHECKING:
    from torch import Tensor

ROWS, BLOCK = 1024, 8192
"""The logits of this many positions and vocabulary entries are in memory at a time."""


@dataclass(frozen=True, eq=False)
class BoundHead:
    """A family's read-out together with one model's head tensors.

    This is what the engine calls on hidden states, so it needs to know neither the family nor the tensors.

    head = BoundHead(family, weights.head)
    scores = head(hidden)
    """

    family: Family
    tensors: Mapping[str, Tensor]

    def __call__(self, hidden: Tensor, targets: Tensor | None = None) -> Tensor:
        """Read float32 hidden states, one per row. `targets` are the token ids whose log-probabilities are read."""
        if targets is None:
            return self.family.read(self.tensors, hidden)
        return self.family.read_targets(self.tensors, hidden, targets)


def linear_shapes(
    config: Mapping[str, Any], name: str, outputs: int, *, bias: bool = True
) -> dict[str, tuple[int, ...]]:
    """The tensors of a linear layer on the hidden state."""
    weight: dict[str, tuple[int, ...]] = {f"{name}.weight": (outputs, config_int(config, "hidden_size"))}
    return weight | ({f"{name}.bias": (outputs,)} if bias else {})


def linear(head: Mapping[str, Tensor], name: str, hidden: Tensor) -> Tensor:
    """Apply a linear layer, with its bias if it has one."""
    from torch.nn import functional

    return functional.linear(hidden, head[f"{name}.weight"], head.get(f"{name}.bias"))


def mlp_shapes(config: Mapping[str, Any], outputs: int) -> dict[str, tuple[int, ...]]:
    """The tensors of a two-layer MLP: Linear, ReLU, Linear."""
    return linear_shapes(config, "score.0", config_int(config, "hidden_size")) | linear_shapes(
        config, "score.2", outputs
    )


def mlp(head: Mapping[str, Tensor], hidden: Tensor) -> Tensor:
    """Apply a two-layer MLP: Linear, ReLU, Linear."""
    return linear(head, "score.2", linear(head, "score.0", hidden).relu())


@dataclass(frozen=True)
class TwoClassFamily(Family):
    """A family with a two-class MLP head on the marker's hidden state.

    The score is the probability of the second class, "right". Subclasses define the prompt.
    """

    readout = "two-class MLP at the marker"

    def head_shapes(self, config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """Linear, ReLU, Linear to two classes."""
        return mlp_shapes(config, 2)

    def logits(self, head: Mapping[str, Tensor], hidden: Tensor) -> Tensor:
        """Two logits per row: wrong and right."""
        return mlp(head, hidden)

    def read(self, head: Mapping[str, Tensor], hidden: Tensor) -> Tensor:
        """The probability of the second class, "right"."""
        return self.logits(head, hidden).softmax(-1)[:, 1]


def log_probabilities(rows: Tensor, hidden: Tensor, targets: Tensor) -> Tensor:
    """The log-probability of each target among all tokens, whose output layer is `rows`.

    They are computed in float32, whatever the dtype of the output layer.
    """
    import torch

    parts = range(0, len(hidden), ROWS)
    return torch.cat([_log_probabilities(rows, hidden[at : at + ROWS], targets[at : at + ROWS]) for at in parts])


def _log_probabilities(rows: Tensor, hidden: Tensor, targets: Tensor) -> Tensor:
    """The same for a few positions, one block of the vocabulary at a time."""
    import torch

    total = hidden.new_full((len(hidden),), float("-inf"))
    wanted = torch.empty_like(total)
    for start in range(0, len(rows), BLOCK):
        logits = hidden @ rows[start : start + BLOCK].float().T
        total = torch.logaddexp(total, logits.logsumexp(1))
        inside = (targets >= start) & (targets < start + BLOCK)
        wanted[inside] = logits[inside].gather(1, (targets[inside] - start)[:, None])[:, 0]
    return wanted - total
