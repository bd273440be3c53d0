"""IBM's granite-3.3-8b-lora-math-prm (LoRA weights on granite-3.3-8b-instruct) and granite-3.3-8b-math-prm-v2.

The user's first turn contains the question, the first step and a request for a verdict, each further turn one step and
that request. Every assistant turn is `Y`, and the score is its probability among all tokens, not only against `N`. The
default system message contains a date, which is pinned: scores never change with the calendar.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from surefoot.core.prompt import Prompt
from surefoot.families.base import Family
from surefoot.families.builder import PromptBuilder
from surefoot.families.heads import log_probabilities
from surefoot.families.label_words import output_layer
from surefoot.tokenization.settings import Message
from surefoot.tokenization.tokenizer import PromptTokenizer

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Granite(Family):
    """One turn per step, answered `Y`."""

    name = "granite"
    readout = "probability of the word `Y`, one token before it"
    unused_tensors = ("lm_head.",)
    head_in_model_dtype = True

    good: str = "Y"
    request: str = "Is this response correct so far (Y/N)?"
    date: str = "April 1, 2025"
    """The date in the default system message: the one with which the makers recorded the scores in their tests."""
    logits_scaling: float = 16.0
    """What the model divides its logits by."""

    def chat_messages(self, question: str, steps: Sequence[str]) -> list[Message]:
        """The makers' conversation, with the default system message, because the template's own contains the date."""
        turns = [{"role": "system", "content": self._default_system()}]
        for text in self._user_turns(question, steps):
            turns += [{"role": "user", "content": text}, {"role": "assistant", "content": self.good}]
        return list(turns)

    def head_shapes(self, config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """The whole output layer, because the probability is among all tokens."""
        return output_layer(config, self.logits_scaling)

    def render(
        self, tokenizer: PromptTokenizer, question: str, steps: Sequence[str], system: str | None = None
    ) -> Prompt:
        """One user turn and one assistant turn per step."""
        builder = PromptBuilder(tokenizer)
        _add_turn(builder, "system", self._default_system() if system is None else system)
        good = tokenizer.single_token(self.good)
        for number, text in enumerate(self._user_turns(question, steps)):
            _add_turn(builder, "user", text, None if number else f"{question} ")
            _add_role(builder, "assistant")
            builder.token(good, logprobs=True)
            _end_turn(builder)
        return builder.build()

    def read(self, head: Mapping[str, Tensor], hidden: Tensor) -> Tensor:
        """Not used: every read has a target token."""
        raise NotImplementedError("every read of a Granite PRM has a target token")

    def read_targets(self, head: Mapping[str, Tensor], hidden: Tensor, targets: Tensor) -> Tensor:
        """The probability of the target among all tokens."""
        (rows,) = head.values()
        return log_probabilities(rows, hidden / self.logits_scaling, targets).exp()

    def _default_system(self) -> str:
        return (
            f"Knowledge Cutoff Date: April 2024.\nToday's Date: {self.date}.\n"
            "You are Granite, developed by IBM. You are a helpful AI assistant."
        )

    def _user_turns(self, question: str, steps: Sequence[str]) -> Iterator[str]:
        for number, step in enumerate(steps):
            yield f"{step} {self.request}" if number else f"{question} {step} {self.request}"


def _add_turn(builder: PromptBuilder, role: str, text: str, question: str | None = None) -> None:
    _add_role(builder, role)
    builder.text(text, question=question)
    _end_turn(builder)


def _add_role(builder: PromptBuilder, role: str) -> None:
    builder.token("<|start_of_role|>")
    builder.text(role)
    builder.token("<|end_of_role|>")


def _end_turn(builder: PromptBuilder) -> None:
    builder.token("<|end_of_text|>")
    builder.text("\n")
