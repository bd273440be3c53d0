"""Chat formats that several families share.

The rule: a turn is opened and closed by structure tokens; its text stands between them, encoded as one piece, which is
what tokenising the whole conversation does with ordinary text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from surefoot.core.prompt import Prompt
from surefoot.families.builder import PromptBuilder
from surefoot.families.tokenizer import PromptTokenizer

LABEL = re.compile(r"[\s*]*Step\s+\d+\s*[:.]", re.IGNORECASE)


def chatml_turn(builder: PromptBuilder, role: str, text: str, question: str | None = None) -> None:
    """`<|im_start|>role`, a line break, the text, `<|im_end|>`, a line break. `question`: see `PromptBuilder.text`."""
    builder.token("<|im_start|>")
    builder.text(f"{role}\n{text}", question=None if question is None else f"{role}\n{question}")
    builder.token("<|im_end|>")
    builder.text("\n")


def llama_turn(builder: PromptBuilder, role: str, text: str, question: str | None = None) -> None:
    """The role between its header tokens, a blank line, the text without white space around it, `<|eot_id|>`."""
    llama_header(builder, role)
    builder.text(f"\n\n{text.strip()}", question=None if question is None else f"\n\n{question.strip()}")
    builder.token("<|eot_id|>")


def llama_header(builder: PromptBuilder, role: str) -> None:
    """What opens a turn."""
    builder.token("<|start_header_id|>")
    builder.text(role)
    builder.token("<|end_header_id|>")


def chatml_marked(
    tokenizer: PromptTokenizer,
    system: str | None,
    question: str,
    steps: Sequence[str],
    marker: str,
    *,
    closed: bool = True,
) -> Prompt:
    """A conversation whose last turn holds the steps, each followed by the marker, where it is read."""
    builder = PromptBuilder(tokenizer)
    if system is not None:
        chatml_turn(builder, "system", system)
    chatml_turn(builder, "user", question)
    builder.token("<|im_start|>")
    builder.question_ends()
    # The role line is encoded together with what follows it: a text that opens with white space may merge with it.
    first, *rest = steps or ("",)
    for number, text in enumerate([f"assistant\n{first}", *rest]):
        builder.text(text)
        if number < len(steps):
            builder.token(marker)
            builder.read()
    if closed:
        builder.token("<|im_end|>")
        builder.text("\n")
    return builder.prompt()


def numbered(number: int, step: str) -> str:
    """The step with `Step 1: ` in front, unless it says so itself."""
    return step if LABEL.match(step) else f"Step {number}: {step}"
