"""Surefoot's own small models: plain text without a chat format, made by `surefoot train` from any decoder.

The prompt is the question, the token `<|solution|>`, then the steps. After each step come a calculator's notes on it,
which are special tokens too (see `calculator.py`), and the token `<|step|>`, where the two-class head is read. All
these tokens are added to the base vocabulary, so any tokenizer works.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from surefoot.core.prompt import Prompt
from surefoot.families.heads import TwoClassFamily
from surefoot.families.mini.calculator import NOTES, notes_on
from surefoot.tokenization.tokenizer import PromptTokenizer

SOLUTION = "<|solution|>"
STEP = "<|step|>"


@dataclass(frozen=True)
class Mini(TwoClassFamily):
    """Question and steps unchanged, separated by special tokens."""

    name = "mini"
    architectures = ("SurefootMiniForProcessRewardModel",)
    added_tokens = (SOLUTION, STEP, *NOTES)

    def step_marker(self) -> str:
        """The special token after every step."""
        return STEP

    def render(
        self, tokenizer: PromptTokenizer, question: str, steps: Sequence[str], system: str | None = None
    ) -> Prompt:
        """No system message: these models were trained without one."""
        self.reject_system(system)
        solution, step = tokenizer.token(SOLUTION), tokenizer.token(STEP)
        question_ids, *step_ids = tokenizer.encode(question, *steps)
        ids = [*question_ids, solution]
        prefix = len(ids)
        known = tokenizer.special_tokens  # older models lack the newer notes
        reads = []
        for piece, notes in zip(step_ids, notes_on(question, steps), strict=True):
            ids += [*piece, *(known[note] for note in notes if note in known), step]
            reads.append(len(ids) - 1)
        return Prompt(tuple(ids), tuple(reads), prefix)
