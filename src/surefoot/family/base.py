"""What a PRM family is: how it is asked, which tensors it has, and how its answer is read.

The rule: a family knows text, token ids and its head; it knows nothing of batches, devices or files.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from surefoot.family.encoder import TextEncoder
from surefoot.prompt import Prompt

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Golden:
    """Published scores of one example: what `surefoot check` compares with."""

    models: tuple[str, ...]
    """Lower-case endings of the model names that the scores belong to."""
    question: str
    steps: tuple[str, ...]
    scores: tuple[float, ...]
    tolerance: float
    source: str


class Family(ABC):
    """The contract that each file in this folder fulfils."""

    name: ClassVar[str]
    architectures: ClassVar[tuple[str, ...]]
    """`architectures` entries of config.json that mean this family."""
    backbone_prefix: ClassVar[str] = "model."
    """What the backbone's tensor names start with in the checkpoint."""
    unused_tensors: ClassVar[tuple[str, ...]] = ()
    """Prefixes of tensors that a checkpoint may hold and nobody needs."""
    own_tokens: ClassVar[tuple[str, ...]] = ()
    """Structure tokens that the vocabulary of a base model lacks, and that training adds."""
    marker: ClassVar[str | None] = None
    """The structure token at which every score is read, in families that have one."""
    goldens: ClassVar[tuple[Golden, ...]] = ()

    @abstractmethod
    def head_shapes(self, hidden_size: int) -> dict[str, tuple[int, ...]]:
        """The head's tensors by name, with their shapes."""

    @abstractmethod
    def render(self, encoder: TextEncoder, question: str, steps: Sequence[str], system: str | None = None) -> Prompt:
        """The exact ids that the model was trained to read. `system` replaces the family's own system message."""

    @abstractmethod
    def read(self, head: Mapping[str, Tensor], hidden: Tensor) -> Tensor:
        """From float32 hidden states at the read positions, one row each, to one score each."""
