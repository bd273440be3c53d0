"""Surefoot's own small models: plain text, no chat, made by `surefoot train` from any decoder.

The rule: the question, the token `<|solution|>`, then the steps, each closed by `<|step|>`; the two-class head is read
there. Both tokens are added to the base's vocabulary, so every tokenizer will do.
"""

from __future__ import annotations

from collections.abc import Sequence

from surefoot.errors import OptionError
from surefoot.family.encoder import TextEncoder
from surefoot.family.head import TwoClassFamily
from surefoot.prompt import Prompt

SOLUTION = "<|solution|>"
STEP = "<|step|>"


class Mini(TwoClassFamily):
    """Question and steps as they are, parted by two tokens of our own."""

    name = "mini"
    architectures = ("SurefootMiniForProcessRewardModel",)
    own_tokens = (SOLUTION, STEP)

    def render(self, encoder: TextEncoder, question: str, steps: Sequence[str], system: str | None = None) -> Prompt:
        """No system message: these models never saw one."""
        if system is not None:
            raise OptionError("This model has no system message. Leave `system` out.")
        solution, step = encoder.token(SOLUTION), encoder.token(STEP)
        question_ids, *step_ids = encoder.encode(question, *steps)
        ids = [*question_ids, solution]
        prefix = len(ids)
        reads = []
        for piece in step_ids:
            ids += [*piece, step]
            reads.append(len(ids) - 1)
        return Prompt(tuple(ids), tuple(reads), prefix)
