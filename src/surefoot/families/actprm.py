"""ActPRM and ActPRM-X: an ensemble of 32 small heads.

The prompt is that of Qwen, with a marker of its own. At each marker, each of the 32 MLPs gives a probability. The score
is their mean, the spread their standard deviation. The makers' example, whose scores are published, has Qwen's system
message, which is also the default of the chat template used in training. Their ProcessBench script, the source of the
published F1, has another one, `PROCESSBENCH_SYSTEM`, and strips the steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from surefoot.core.prompt import Prompt
from surefoot.families.base import Family, StepValue, config_int
from surefoot.families.chat import chatml_with_markers, marked_messages
from surefoot.families.qwen import MARKER, SYSTEM
from surefoot.tokenization.settings import Message
from surefoot.tokenization.tokenizer import PromptTokenizer

if TYPE_CHECKING:
    from torch import Tensor

PROCESSBENCH_SYSTEM = (
    "You are a helpful and harmless assistant. You should think step-by-step and put your final answer within "
    "\\boxed{}."
)
INNER = 128


@dataclass(frozen=True)
class ActPRM(Family):
    """Qwen's prompt with an ensemble head."""

    name = "actprm"
    readout = "32 MLPs at the marker, mean and spread"
    architectures = ("Qwen2ForEnsemblePRM",)
    unused_tensors = ("lm_head.", "score.reg_model.")
    values_per_read = 2

    default_system: str | None = SYSTEM
    marker: str = MARKER
    strip: bool = False
    """Remove white space around the steps, as the makers' ProcessBench script does."""

    def chat_messages(self, question: str, steps: Sequence[str]) -> list[Message]:
        """System, user and assistant turn."""
        return marked_messages(self.default_system, question, steps, self.marker)

    def head_shapes(self, config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """Three layers per head."""
        heads = config_int(config, "num_ensemble")
        sizes = {"nn1": (config_int(config, "hidden_size"), INNER), "nn2": (INNER, INNER), "nn_out": (INNER, 1)}
        weights = {f"score.model.{name}.weight": (heads, *size) for name, size in sizes.items()}
        return weights | {f"score.model.{name}.bias": (heads, size[1]) for name, size in sizes.items()}

    def render(
        self, tokenizer: PromptTokenizer, question: str, steps: Sequence[str], system: str | None = None
    ) -> Prompt:
        """The prompt of Qwen's PRMs."""
        system = self.default_system if system is None else system
        texts = [step.strip() for step in steps] if self.strip else steps
        return chatml_with_markers(tokenizer, system, question, texts, self.marker)

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
        """The mean is the score, the standard deviation the spread."""
        return [StepValue(mean, spread) for mean, spread in values.tolist()]
