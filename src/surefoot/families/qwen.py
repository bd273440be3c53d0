"""Qwen2.5-Math-PRM-7B and -72B, Qwen2.5-Math-7B-PRM800K, and models with the same layout.

The prompt is a ChatML conversation with the marker `<extra_0>` after every step. A small MLP classifies each marker as
wrong or right. Pieces between special tokens are encoded one by one, which for ordinary text gives the same ids as
tokenizing the whole conversation at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from surefoot.core.prompt import Prompt
from surefoot.families.chat import chatml_with_markers, marked_messages, template_system
from surefoot.families.heads import TwoClassFamily
from surefoot.tokenization.settings import Message, TokenizerSettings
from surefoot.tokenization.tokenizer import PromptTokenizer

SYSTEM = "Please reason step by step, and put your final answer within \\boxed{}."
MARKER = "<extra_0>"


@dataclass(frozen=True)
class Qwen(TwoClassFamily):
    """A marker after every step, read by a two-class MLP."""

    name = "qwen"
    architectures = ("Qwen2ForProcessRewardModel",)
    unused_tensors = ("lm_head.",)
    added_tokens = (MARKER,)

    default_system: str | None = SYSTEM
    """The system message unless another one is given; None for no system turn."""
    marker: str = MARKER
    system_from_template: bool = False
    """Take the system message from the checkpoint's chat template, for makers whose code passes none."""

    def options_from(self, settings: TokenizerSettings) -> dict[str, Any]:
        """The system message that the chat template writes by itself, if the makers rely on it."""
        return template_system(settings, "chatml", "default_system") if self.system_from_template else {}

    def chat_messages(self, question: str, steps: Sequence[str]) -> list[Message]:
        """System, user and assistant turn."""
        system = None if self.system_from_template else self.default_system
        return marked_messages(system, question, steps, self.marker)

    def step_marker(self) -> str:
        """The special token after every step."""
        return self.marker

    def render(
        self, tokenizer: PromptTokenizer, question: str, steps: Sequence[str], system: str | None = None
    ) -> Prompt:
        """System, user and assistant turn; the assistant's turn contains the steps, each followed by the marker."""
        system = self.default_system if system is None else system
        return chatml_with_markers(tokenizer, system, question, steps, self.marker)
