"""Chat formats that several families share.

A turn is delimited by special tokens. The text between them is encoded as one piece, which for ordinary text gives the
same ids as tokenizing the whole conversation at once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from surefoot.core.prompt import Prompt
from surefoot.errors import CheckpointError, OptionError
from surefoot.families.builder import PromptBuilder
from surefoot.tokenization.settings import Message, TokenizerSettings
from surefoot.tokenization.tokenizer import PromptTokenizer

STEP_LABEL = re.compile(r"[\s*]*Step\s+\d+\s*[:.]", re.IGNORECASE)
CHAT_FORMATS = ("llama3", "chatml")


def check_chat_format(chat: str) -> None:
    """Raise `OptionError` unless this is a known chat format."""
    if chat not in CHAT_FORMATS:
        raise OptionError(f"chat={chat!r} is not supported. Choose one of: {', '.join(CHAT_FORMATS)}.")


def add_turn(builder: PromptBuilder, chat: str, role: str, text: str, question: str | None = None) -> None:
    """Append a complete turn in one of the chat formats. For `question` see `PromptBuilder.text`."""
    (llama_turn if chat == "llama3" else chatml_turn)(builder, role, text, question)


def open_assistant_turn(builder: PromptBuilder, chat: str) -> None:
    """Append the beginning of an assistant turn, up to where its text starts."""
    if chat == "llama3":
        llama_header(builder, "assistant")
        builder.text("\n\n")
    else:
        builder.token("<|im_start|>")
        builder.text("assistant\n")


def end_of_turn(chat: str) -> str:
    """The special token that ends a turn."""
    return "<|eot_id|>" if chat == "llama3" else "<|im_end|>"


def chatml_turn(builder: PromptBuilder, role: str, text: str, question: str | None = None) -> None:
    """Append `<|im_start|>role`, a line break, the text, `<|im_end|>` and a line break."""
    builder.token("<|im_start|>")
    builder.text(f"{role}\n{text}", question=None if question is None else f"{role}\n{question}")
    builder.token("<|im_end|>")
    builder.text("\n")


def llama_turn(builder: PromptBuilder, role: str, text: str, question: str | None = None) -> None:
    """Append the role between its header tokens, a blank line, the stripped text and `<|eot_id|>`."""
    llama_header(builder, role)
    builder.text(f"\n\n{text.strip()}", question=None if question is None else f"\n\n{question.strip()}")
    builder.token("<|eot_id|>")


def llama_header(builder: PromptBuilder, role: str) -> None:
    """Append the header that starts a turn."""
    builder.token("<|start_header_id|>")
    builder.text(role)
    builder.token("<|end_header_id|>")


def chatml_with_markers(
    tokenizer: PromptTokenizer, system: str | None, question: str, steps: Sequence[str], marker: str
) -> Prompt:
    """Build a conversation whose last turn contains the steps, each followed by the marker, where it is read."""
    builder = PromptBuilder(tokenizer)
    if system is not None:
        chatml_turn(builder, "system", system)
    chatml_turn(builder, "user", question)
    builder.token("<|im_start|>")
    builder.end_question()
    # The role line is encoded together with what follows it: leading white space may merge with its line break.
    first, *rest = steps or ("",)
    for number, text in enumerate([f"assistant\n{first}", *rest]):
        builder.text(text)
        if number < len(steps):
            builder.token(marker)
            builder.read()
    builder.token("<|im_end|>")
    builder.text("\n")
    return builder.build()


def marked_messages(system: str | None, question: str, steps: Sequence[str], marker: str) -> list[Message]:
    """The messages of `chatml_with_markers`, for a chat template."""
    turns = [("user", question), ("assistant", "".join(f"{step}{marker}" for step in steps))]
    if system is not None:
        turns.insert(0, ("system", system))
    return [{"role": role, "content": content} for role, content in turns]


SYSTEM_TURNS = {
    "llama3": re.compile(r"<\|start_header_id\|>system<\|end_header_id\|>\n\n(.*?)<\|eot_id\|>", re.DOTALL),
    "chatml": re.compile(r"<\|im_start\|>system\n(.*?)<\|im_end\|>\n", re.DOTALL),
}


def template_system(settings: TokenizerSettings, chat: str, option: str) -> dict[str, str | None]:
    """The option that holds what the checkpoint's chat template puts in the system turn by itself.

    Empty if there is no template, or if it fails: the comparison at load reports that.
    """
    if settings.chat_template is None:
        return {}
    try:
        text = settings.render_chat([{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}])
    except CheckpointError:
        return {}
    turn = SYSTEM_TURNS[chat].search(text)
    return {option: turn[1] if turn else None}


def numbered(number: int, step: str) -> str:
    """Prefix the step with `Step 1: `, unless it has such a label already."""
    return step if STEP_LABEL.match(step) else f"Step {number}: {step}"
