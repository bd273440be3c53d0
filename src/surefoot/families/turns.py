"""Families whose prompt is a conversation with one user turn per step and a label word as the assistant's reply.

The two label words are compared at the token before the label, which sees the step but not the label. Earlier steps are
always labelled with the good word, whatever the model thinks of them, as in training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from surefoot.core.prompt import Prompt
from surefoot.families.builder import PromptBuilder
from surefoot.families.chat import (
    add_turn,
    chatml_turn,
    check_chat_format,
    end_of_turn,
    llama_header,
    open_assistant_turn,
    template_system,
)
from surefoot.families.label_words import LabelWordFamily
from surefoot.tokenization.settings import Message, TokenizerSettings
from surefoot.tokenization.tokenizer import PromptTokenizer

LLAMA_SYSTEM = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"
"""What the stock chat template of Llama 3.1 puts in the system turn, before a system message if there is one."""


@dataclass(frozen=True)
class TurnFamily(LabelWordFamily):
    """A family with one turn per step."""

    readout: ClassVar[str] = "two word logits, one token before the label"
    strips_steps: ClassVar[bool] = True
    """Whether the makers' code removes white space around the steps. The Llama template does so in any case."""

    chat: str = "llama3"
    """The chat format: llama3 or chatml."""
    preamble: str | None = LLAMA_SYSTEM
    """What the chat template puts in the system turn by itself; None for no system turn."""

    def __post_init__(self) -> None:
        check_chat_format(self.chat)

    def options_from(self, settings: TokenizerSettings) -> dict[str, Any]:
        """What the chat template puts in the system turn by itself."""
        return template_system(settings, self.chat, "preamble")

    def chat_messages(self, question: str, steps: Sequence[str]) -> list[Message]:
        """One user turn and one assistant turn per step."""
        turns = [self.first_turn(question, steps[0]), *steps[1:]]
        labels = [{"role": "assistant", "content": self.good}] * len(turns)
        users = [{"role": "user", "content": turn} for turn in turns]
        return [message for pair in zip(users, labels, strict=True) for message in pair]

    def first_turn(self, question: str, step: str) -> str:
        """The text of the first user turn: the question and the first step."""
        return f"{question} {step}"

    def render(
        self, tokenizer: PromptTokenizer, question: str, steps: Sequence[str], system: str | None = None
    ) -> Prompt:
        """One user turn and one assistant turn per step."""
        llama = self.chat == "llama3"
        builder = PromptBuilder(tokenizer, bos="<|begin_of_text|>" if llama else None)
        if self.preamble is not None or system is not None:
            self._add_system_turn(builder, system)
        for number, step in enumerate(step.strip() if self.strips_steps else step for step in steps):
            if number:
                add_turn(builder, self.chat, "user", step)
            else:
                text, shared = self.first_turn(question, step), self.first_turn(question, "")
                add_turn(builder, self.chat, "user", text, question=shared)
            open_assistant_turn(builder, self.chat)
            builder.read()
            builder.text(self.good)
            builder.token(end_of_turn(self.chat))
            if not llama:
                builder.text("\n")
        return builder.build()

    def _add_system_turn(self, builder: PromptBuilder, system: str | None) -> None:
        preamble = self.preamble or ""
        if self.chat == "llama3":
            # The template keeps the preamble even if there is a system message.
            llama_header(builder, "system")
            builder.text("\n\n" + preamble + (system or "").strip())
            builder.token("<|eot_id|>")
        else:
            chatml_turn(builder, "system", preamble if system is None else system)
