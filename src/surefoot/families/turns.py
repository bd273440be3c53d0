"""A conversation in which every step is a turn of the user, and a word of the assistant is its label.

The rule: the two words are compared at the token in front of the label, which sees the step and not the label. Labels
of earlier steps are always the good word, whatever the model thinks of them: so it was in training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from surefoot.core.prompt import Prompt
from surefoot.errors import OptionError
from surefoot.families.builder import PromptBuilder
from surefoot.families.chat import chatml_turn, llama_header, llama_turn
from surefoot.families.label_words import TwoWords
from surefoot.families.tokenizer import PromptTokenizer

LLAMA_SYSTEM = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"
"""What the stock chat template of Llama 3.1 says in the system turn, in front of a system message if there is one."""
QWEN_SYSTEM = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
CHATS = ("llama3", "chatml")


@dataclass(frozen=True)
class Turns(TwoWords):
    """A family that is asked so."""

    readout: ClassVar[str] = "two word logits, one token before the label"

    chat: str = "llama3"
    """The chat format: llama3 or chatml."""
    preamble: str | None = LLAMA_SYSTEM
    """What stands in the system turn without anybody asking; None for no such turn."""

    def __post_init__(self) -> None:
        if self.chat not in CHATS:
            raise OptionError(f"chat={self.chat!r} is not offered. Choose one of: {', '.join(CHATS)}.")

    def first_turn(self, question: str, step: str) -> str:
        """What the user says first: the question, and the first step."""
        return f"{question} {step}"

    def render(
        self, tokenizer: PromptTokenizer, question: str, steps: Sequence[str], system: str | None = None
    ) -> Prompt:
        """One turn of the user and one of the assistant for every step."""
        builder = PromptBuilder(tokenizer)
        llama = self.chat == "llama3"
        turn = llama_turn if llama else chatml_turn
        if llama:
            builder.token("<|begin_of_text|>")
        if llama and not (self.preamble is None and system is None):
            llama_header(builder, "system")
            builder.text("\n\n" + (self.preamble or "") + (system or "").strip())
            builder.token("<|eot_id|>")
        elif not llama and (system is not None or self.preamble is not None):
            chatml_turn(builder, "system", self.preamble or "" if system is None else system)
        for number, step in enumerate(steps):
            if number:
                turn(builder, "user", step.strip())
            else:
                turn(builder, "user", self.first_turn(question, step.strip()), self.first_turn(question, ""))
            if llama:
                llama_header(builder, "assistant")
                builder.text("\n\n")
            else:
                builder.token("<|im_start|>")
                builder.text("assistant\n")
            builder.read()
            builder.text(self.good)
            builder.token("<|eot_id|>" if llama else "<|im_end|>")
            if not llama:
                builder.text("\n")
        return builder.prompt()
