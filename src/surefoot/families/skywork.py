"""Skywork-o1-Open-PRM-Qwen-2.5-1.5B and -7B.

The rule: the problem and the solution line by line, every line tokenised on its own and closed by a line break; a value
is read at the line break that ends a step, and its sigmoid is the score. Blank lines are left out: they are no steps,
and where the authors' code keeps them it gives each a score of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from surefoot.core.prompt import Prompt
from surefoot.families.base import Family, config_int
from surefoot.families.builder import PromptBuilder
from surefoot.families.tokenizer import PromptTokenizer

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Skywork(Family):
    """Plain text, a value head at line breaks."""

    name = "skywork"
    readout = "value head, sigmoid at the line break"
    architectures = ("Qwen2ForPrmModel",)
    unused_tensors = ("lm_head.",)

    opening: str | None = "<|endoftext|>"
    """The structure token that opens the text."""

    def head_shapes(self, config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """One linear layer to one value."""
        return {"v_head.summary.weight": (1, config_int(config, "hidden_size")), "v_head.summary.bias": (1,)}

    def render(
        self, tokenizer: PromptTokenizer, question: str, steps: Sequence[str], system: str | None = None
    ) -> Prompt:
        """No chat and no system message."""
        self.refuse_system(system)
        newline = tokenizer.word("\n")
        builder = PromptBuilder(tokenizer)
        if self.opening is not None:
            builder.token(self.opening)
        builder.text(f"{question}\n", opens=True)
        builder.question_ends()
        for step in steps:
            for line in step.replace("\r\n", "\n").split("\n"):
                if line.strip():
                    builder.text(line)
                    builder.token(newline)
            builder.read()
        return builder.prompt()

    def read(self, head: Mapping[str, Tensor], hidden: Tensor) -> Tensor:
        """The sigmoid of the value."""
        return (hidden @ head["v_head.summary.weight"].T + head["v_head.summary.bias"]).sigmoid()[:, 0]
