"""Windy0822/PQM, a ranking model of Q-values on DeepSeekMath-7B.

The prompt is `[INST] question  [/INST]` and the steps on lines of their own, each followed by a space and the special
token `[PRM]`, where a value is read. The two spaces are those of training: the question of a Math-Shepherd row ends
with one. There is no sigmoid. The ranking loss compares the values with 0, which stands for the question alone:
correct steps are pushed above it, wrong ones below. So the score is unbounded, with the natural threshold 0.

The repository holds bare weights, without config.json and tokenizer: docs/families.md says how to complete them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from surefoot.core.prompt import Prompt
from surefoot.core.result import Scale
from surefoot.families.base import Family
from surefoot.families.builder import PromptBuilder
from surefoot.families.chat import numbered
from surefoot.families.heads import linear, linear_shapes
from surefoot.tokenization.tokenizer import PromptTokenizer

if TYPE_CHECKING:
    from torch import Tensor

MARKER = "[PRM]"


@dataclass(frozen=True)
class PQM(Family):
    """Plain text with a special token after every step, read by a value head."""

    name = "pqm"
    readout = "value head at the marker, no sigmoid"
    backbone_prefix = "pretrained_model.model."
    unused_tensors = ("pretrained_model.lm_head.",)
    added_tokens = (MARKER,)

    lead: str = "[INST] "
    """The text before the question."""
    tail: str = "  [/INST]\n"
    """The text between the question and the first step."""

    @property
    def scale(self) -> Scale:
        """An unbounded value that is compared with 0, not a probability."""
        return "log_ratio"

    def step_marker(self) -> str:
        """The special token after every step."""
        return MARKER

    def head_shapes(self, config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """One linear layer to one value."""
        return linear_shapes(config, "v_head.summary", 1)

    def render(
        self, tokenizer: PromptTokenizer, question: str, steps: Sequence[str], system: str | None = None
    ) -> Prompt:
        """No BOS, no system message; steps are numbered unless they have labels."""
        self.reject_system(system)
        shared = f"{self.lead}{question}{self.tail}"
        first, *rest = [f"{numbered(at, step.strip())} " for at, step in enumerate(steps, start=1)] or [""]
        builder = PromptBuilder(tokenizer)
        builder.text(shared + first, starts_text=True, question=shared)
        for number, text in enumerate([None, *rest]):
            if text is not None:
                builder.text(f"\n{text}")
            if number < len(steps):
                builder.token(MARKER)
                builder.read()
        return builder.build()

    def read(self, head: Mapping[str, Tensor], hidden: Tensor) -> Tensor:
        """The value itself."""
        return linear(head, "v_head.summary", hidden)[:, 0]
