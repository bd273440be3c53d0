"""SPARE's PRMs on Llama 3 and Qwen2.5.

The prompt is a conversation with the makers' task description as system message. The assistant's turn opens with
`Let's think step by step.`; then every step stands on a line of its own, followed by the tag ` ки`. The words `+` and
`-` are compared at the last token of each tag. A tag inside a question or a step is treated as text: it is not read,
and the result carries a warning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from surefoot.core.prompt import Prompt
from surefoot.families.builder import PromptBuilder
from surefoot.families.chat import add_turn, check_chat_format, llama_header
from surefoot.families.label_words import LabelWordFamily
from surefoot.tokenization.settings import Message
from surefoot.tokenization.tokenizer import PromptTokenizer

TAG = " ки"
SYSTEM = (
    "You are an expert at solving challenging math problems spanning across various categories and difficulties such "
    "as Algebra, Number Theory, Geometry, Counting and Probability, Precalculus etc. For a given math problem, your "
    "task is to generate a step-by-step reasoning-based solution providing an answer to the question. Identify the "
    "correct concepts, formulas and heuristics that needs to be applied and then derive the contents of the reasoning "
    "steps from the given contexts and accurate calculations from the previous reasoning steps."
)


@dataclass(frozen=True)
class Spare(LabelWordFamily):
    """A conversation with a tag after every step."""

    name = "spare"
    readout = "two word logits at the tag"

    chat: str = "llama3"
    """The chat format: llama3 or chatml."""
    default_system: str | None = SYSTEM
    """The system message unless another one is given; None for no system turn."""
    lead: str = "Let's think step by step.\n"
    """The text before the first step."""

    def __post_init__(self) -> None:
        check_chat_format(self.chat)

    @property
    def text_markers(self) -> tuple[str, ...]:
        """The tag."""
        return (TAG.strip(),)

    def chat_messages(self, question: str, steps: Sequence[str]) -> list[Message]:
        """The task, the question and the tagged steps."""
        solution = self.lead + "".join(f"{step}{TAG}\n" for step in steps)
        turns = [("system", self.default_system), ("user", question), ("assistant", solution)]
        return [{"role": role, "content": text} for role, text in turns if text is not None]

    def render(
        self, tokenizer: PromptTokenizer, question: str, steps: Sequence[str], system: str | None = None
    ) -> Prompt:
        """System, user and assistant turn; the assistant's turn contains the steps, each followed by the tag."""
        llama = self.chat == "llama3"
        system = self.default_system if system is None else system
        (tag,) = tokenizer.encode_continuation(TAG)
        builder = PromptBuilder(tokenizer, bos="<|begin_of_text|>" if llama else None)
        if system is not None:
            add_turn(builder, self.chat, "system", system)
        add_turn(builder, self.chat, "user", question)
        if llama:
            llama_header(builder, "assistant")
        else:
            builder.token("<|im_start|>")
        # What precedes the first step is encoded together with it: leading white space may merge with its line break.
        opening = ("\n\n" if llama else "assistant\n") + self.lead
        first, *rest = steps or ("",)
        builder.text(opening + first, question=opening)
        for number, step in enumerate([None, *rest]):
            if step is not None:
                builder.text(f"\n{step}")
            if number < len(steps):
                for token in tag:
                    builder.token(token)
                builder.read()
        return builder.build()
