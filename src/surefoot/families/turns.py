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
from surefoot.families.builder import Sketch
from surefoot.families.chat import chatml_turn, llama_header, llama_turn
from surefoot.families.label_words import TwoWords
from surefoot.families.tokenizer import TextEncoder

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

    def render(self, encoder: TextEncoder, question: str, steps: Sequence[str], system: str | None = None) -> Prompt:
        """One turn of the user and one of the assistant for every step."""
        sketch = Sketch(encoder)
        llama = self.chat == "llama3"
        turn = llama_turn if llama else chatml_turn
        if llama:
            sketch.token("<|begin_of_text|>")
        if llama and not (self.preamble is None and system is None):
            llama_header(sketch, "system")
            sketch.text("\n\n" + (self.preamble or "") + (system or "").strip())
            sketch.token("<|eot_id|>")
        elif not llama and (system is not None or self.preamble is not None):
            chatml_turn(sketch, "system", self.preamble or "" if system is None else system)
        for number, step in enumerate(steps):
            if number:
                turn(sketch, "user", step.strip())
            else:
                turn(sketch, "user", self.first_turn(question, step.strip()), self.first_turn(question, ""))
            if llama:
                llama_header(sketch, "assistant")
                sketch.text("\n\n")
            else:
                sketch.token("<|im_start|>")
                sketch.text("assistant\n")
            sketch.read()
            sketch.text(self.good)
            sketch.token("<|eot_id|>" if llama else "<|im_end|>")
            if not llama:
                sketch.text("\n")
        return sketch.prompt()
