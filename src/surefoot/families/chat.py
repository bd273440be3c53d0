"""Chat formats that several families share.

The rule: a turn is opened and closed by structure tokens; its text stands between them, encoded as one piece, which is
what tokenising the whole conversation does with ordinary text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from surefoot.core.prompt import Prompt
from surefoot.families.builder import Sketch
from surefoot.families.tokenizer import TextEncoder

LABEL = re.compile(r"[\s*]*Step\s+\d+\s*[:.]", re.IGNORECASE)


def chatml_turn(sketch: Sketch, role: str, text: str, question: str | None = None) -> None:
    """`<|im_start|>role`, a line break, the text, `<|im_end|>`, a line break. For `question` see `Sketch.text`."""
    sketch.token("<|im_start|>")
    sketch.text(f"{role}\n{text}", question=None if question is None else f"{role}\n{question}")
    sketch.token("<|im_end|>")
    sketch.text("\n")


def llama_turn(sketch: Sketch, role: str, text: str, question: str | None = None) -> None:
    """The role between its header tokens, a blank line, the text without white space around it, `<|eot_id|>`."""
    llama_header(sketch, role)
    sketch.text(f"\n\n{text.strip()}", question=None if question is None else f"\n\n{question.strip()}")
    sketch.token("<|eot_id|>")


def llama_header(sketch: Sketch, role: str) -> None:
    """What opens a turn."""
    sketch.token("<|start_header_id|>")
    sketch.text(role)
    sketch.token("<|end_header_id|>")


def chatml_marked(
    encoder: TextEncoder, system: str | None, question: str, steps: Sequence[str], marker: str, *, closed: bool = True
) -> Prompt:
    """A conversation whose last turn holds the steps, each followed by the marker, where it is read."""
    sketch = Sketch(encoder)
    if system is not None:
        chatml_turn(sketch, "system", system)
    chatml_turn(sketch, "user", question)
    sketch.token("<|im_start|>")
    sketch.question_ends()
    # The role line is encoded together with what follows it: a text that opens with white space may merge with it.
    first, *rest = steps or ("",)
    for number, text in enumerate([f"assistant\n{first}", *rest]):
        sketch.text(text)
        if number < len(steps):
            sketch.token(marker)
            sketch.read()
    if closed:
        sketch.token("<|im_end|>")
        sketch.text("\n")
    return sketch.prompt()


def numbered(number: int, step: str) -> str:
    """The step with `Step 1: ` in front, unless it says so itself."""
    return step if LABEL.match(step) else f"Step {number}: {step}"
