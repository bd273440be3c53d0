"""EurusPRM-Stage1 and -Stage2 and other implicit PRMs: the likelihood ratio of two models.

Both models read the same conversation, and for every token of the solution the difference of its two log-probabilities
is taken. The reward of a step is a coefficient times the sum of these differences over all steps up to its end (`sum`,
as published) or over the step alone (`increment`). It is a log-ratio, not a probability. A step ends with the blank
line after it, the last one with the end of the turn. In the authors' own code, the end of a step extends into the first
tokens of the next one; here the reward of a step does not depend on what follows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from surefoot.core.prompt import Prompt
from surefoot.core.result import Scale
from surefoot.errors import OptionError
from surefoot.families.base import Family, StepValue
from surefoot.families.builder import PromptBuilder
from surefoot.families.chat import add_turn, check_chat_format, end_of_turn, numbered, open_assistant_turn
from surefoot.families.label_words import output_layer
from surefoot.families.qwen import SYSTEM
from surefoot.families.tokenizer import PromptTokenizer

if TYPE_CHECKING:
    from torch import Tensor

ROWS, BLOCK = 1024, 8192
"""The logits of this many positions and vocabulary entries are in memory at a time."""
READINGS = ("sum", "increment")


@dataclass(frozen=True)
class Implicit(Family):
    """Two language models that read the same conversation."""

    name = "implicit"
    readout = "log-ratio of two models over a step's tokens"
    unused_tensors = ("lm_head.",)
    values_per_read = 2
    head_in_model_dtype = True

    reference: str = "Qwen/Qwen2.5-Math-7B-Instruct"
    """The model to compare with: a hub id or a folder."""
    coefficient: float = 0.001
    reading: str = "sum"
    """`sum` over all steps so far, or `increment` for the step alone."""
    default_system: str | None = SYSTEM
    """The system message of the chat template; None for no system turn."""
    chat: str = "chatml"
    """The chat format: llama3 or chatml."""
    number_steps: bool = True

    def __post_init__(self) -> None:
        check_chat_format(self.chat)
        if self.reading not in READINGS:
            raise OptionError(f"reading={self.reading!r} is not supported. Choose one of: {', '.join(READINGS)}.")

    @property
    def scale(self) -> Scale:
        """A log-ratio, not a probability."""
        return "log_ratio"

    @property
    def reference_model(self) -> str:
        """The model to compare with."""
        return self.reference

    def head_shapes(self, config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """The whole output layer, because a log-probability needs all logits."""
        return output_layer(config)

    def render(
        self, tokenizer: PromptTokenizer, question: str, steps: Sequence[str], system: str | None = None
    ) -> Prompt:
        """System, user and assistant turn; blank lines separate the steps."""
        system = self.default_system if system is None else system
        builder = PromptBuilder(tokenizer, bos="<|begin_of_text|>" if self.chat == "llama3" else None)
        if system is not None:
            add_turn(builder, self.chat, "system", system)
        add_turn(builder, self.chat, "user", question)
        open_assistant_turn(builder, self.chat)
        builder.end_question()
        for number, step in enumerate(steps, start=1):
            text = numbered(number, step) if self.number_steps else step
            if number < len(steps):
                builder.text(f"{text}\n\n", logprobs=True)
            else:
                builder.text(text, logprobs=True)
                builder.token(end_of_turn(self.chat), logprobs=True)
            builder.end_step()
        return builder.build()

    def read(self, head: Mapping[str, Tensor], hidden: Tensor) -> Tensor:
        """Not used: every read has a target token."""
        raise NotImplementedError("every read of an implicit PRM has a target token")

    def read_targets(self, head: Mapping[str, Tensor], hidden: Tensor, targets: Tensor) -> Tensor:
        """The log-probability of each target."""
        import torch

        (rows,) = head.values()
        parts = range(0, len(hidden), ROWS)
        return torch.cat([_log_probabilities(rows, hidden[at : at + ROWS], targets[at : at + ROWS]) for at in parts])

    def combine(self, prompt: Prompt, values: Tensor) -> list[StepValue]:
        """Sum the differences, up to each step's end or over the step alone."""
        ratios = (values.double()[:, 0] - values.double()[:, 1]).tolist() if prompt.ends else []
        rewards = [self.coefficient * sum(ratios[start:end]) for start, end in pairwise((0, *prompt.ends))]
        if self.reading == "sum":
            rewards = [sum(rewards[: number + 1]) for number in range(len(rewards))]
        return [StepValue(reward) for reward in rewards]


def _log_probabilities(rows: Tensor, hidden: Tensor, targets: Tensor) -> Tensor:
    """Log-probabilities in float32, whatever the dtype of the output layer, one block of the vocabulary at a time."""
    import torch

    total = hidden.new_full((len(hidden),), float("-inf"))
    wanted = torch.empty_like(total)
    for start in range(0, len(rows), BLOCK):
        logits = hidden @ rows[start : start + BLOCK].float().T
        total = torch.logaddexp(total, logits.logsumexp(1))
        inside = (targets >= start) & (targets < start + BLOCK)
        wanted[inside] = logits[inside].gather(1, (targets[inside] - start)[:, None])[:, 0]
    return wanted - total
