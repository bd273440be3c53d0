"""ActPRM and ActPRM-X: 32 small heads that vote.

The rule: a ChatML conversation in which the marker closes every step, as Qwen's, with a system message of its own; at
each marker 32 MLPs give a probability each. The score is their mean, the spread their standard deviation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from surefoot.core.prompt import Prompt
from surefoot.families.base import Family, StepValue, config_int
from surefoot.families.chat import chatml_marked
from surefoot.families.qwen import MARKER
from surefoot.families.tokenizer import PromptTokenizer

if TYPE_CHECKING:
    from torch import Tensor

SYSTEM = (
    "You are a helpful and harmless assistant. You should think step-by-step and put your final answer within "
    "\\boxed{}."
)
INNER = 128


@dataclass(frozen=True)
class ActPRM(Family):
    """Qwen's conversation, an ensemble as the head."""

    name = "actprm"
    readout = "32 MLPs at the marker, mean and spread"
    architectures = ("Qwen2ForEnsemblePRM",)
    unused_tensors = ("lm_head.", "score.reg_model.")
    width = 2

    default_system: str | None = SYSTEM
    marker: str = MARKER

    def head_shapes(self, config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """Three layers for each of the heads."""
        heads = config_int(config, "num_ensemble")
        sizes = {"nn1": (config_int(config, "hidden_size"), INNER), "nn2": (INNER, INNER), "nn_out": (INNER, 1)}
        weights = {f"score.model.{name}.weight": (heads, *size) for name, size in sizes.items()}
        return weights | {f"score.model.{name}.bias": (heads, size[1]) for name, size in sizes.items()}

    def render(
        self, tokenizer: PromptTokenizer, question: str, steps: Sequence[str], system: str | None = None
    ) -> Prompt:
        """The assistant's turn stays open; steps have no white space around them."""
        system = self.default_system if system is None else system
        return chatml_marked(tokenizer, system, question, [step.strip() for step in steps], self.marker, closed=False)

    def read(self, head: Mapping[str, Tensor], hidden: Tensor) -> Tensor:
        """Mean and standard deviation over the heads."""
        import torch

        inner = hidden
        for name in ("nn1", "nn2", "nn_out"):
            inner = inner @ head[f"score.model.{name}.weight"] + head[f"score.model.{name}.bias"][:, None]
            if name != "nn_out":
                inner = inner.relu()
        votes = inner[..., 0].sigmoid()
        return torch.stack([votes.mean(0), votes.std(0)], -1)

    def combine(self, prompt: Prompt, values: Tensor) -> list[StepValue]:
        """The mean is the score."""
        return [StepValue(mean, spread) for mean, spread in values.tolist()]
