"""EurusPRM-Stage1 and -Stage2 and other implicit PRMs: how much likelier a solution is to one model than to another.

The rule: both models read the same conversation, and for every token of the solution the difference of its two
log-probabilities is taken. A step's reward is a coefficient times their sum over all steps up to its end (`sum`, as
published) or over the step alone (`increment`). It is a log-ratio and no probability. A step ends with the blank line
behind it, the last one with the end of the turn. The authors' own arithmetic for the ends of steps reaches into the
first tokens of the next one; here a step's reward depends on nothing that follows it.
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
from surefoot.families.chat import chatml_turn, llama_header, llama_turn, numbered
from surefoot.families.label_words import output_layer
from surefoot.families.qwen import SYSTEM
from surefoot.families.tokenizer import PromptTokenizer
from surefoot.families.turns import CHATS

if TYPE_CHECKING:
    from torch import Tensor

ROWS, BLOCK = 1024, 8192
"""So many tokens and so many words of the vocabulary have their logits in memory together."""
READINGS = ("sum", "increment")


@dataclass(frozen=True)
class Implicit(Family):
    """Two language models, one conversation."""

    name = "implicit"
    readout = "log-ratio of two models over a step's tokens"
    unused_tensors = ("lm_head.",)
    width = 2
    head_in_model_dtype = True

    reference: str = "Qwen/Qwen2.5-Math-7B-Instruct"
    """The model that the first one is compared with: a hub id or a folder."""
    coefficient: float = 0.001
    reading: str = "sum"
    """`sum` over all steps so far, or `increment`: the step alone."""
    default_system: str | None = SYSTEM
    """The system message of the chat template; None for no system turn."""
    chat: str = "chatml"
    """The chat format: llama3 or chatml."""
    number_steps: bool = True

    def __post_init__(self) -> None:
        for name, choices in (("reading", READINGS), ("chat", CHATS)):
            if getattr(self, name) not in choices:
                raise OptionError(f"{name}={getattr(self, name)!r} is not offered. Choose: {', '.join(choices)}.")

    @property
    def scale(self) -> Scale:
        """No probability."""
        return "log_ratio"

    @property
    def second_model(self) -> str:
        """The reference."""
        return self.reference

    def head_shapes(self, config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """The whole output layer: a log-probability needs all of it."""
        return output_layer(config)

    def render(
        self, tokenizer: PromptTokenizer, question: str, steps: Sequence[str], system: str | None = None
    ) -> Prompt:
        """System, user and assistant turn; the steps are parted by blank lines."""
        system = self.default_system if system is None else system
        builder = PromptBuilder(tokenizer)
        turn, end = (llama_turn, "<|eot_id|>") if self.chat == "llama3" else (chatml_turn, "<|im_end|>")
        if self.chat == "llama3":
            builder.token("<|begin_of_text|>")
        if system is not None:
            turn(builder, "system", system)
        turn(builder, "user", question)
        if self.chat == "llama3":
            llama_header(builder, "assistant")
            builder.text("\n\n")
        else:
            builder.token("<|im_start|>")
            builder.text("assistant\n")
        builder.question_ends()
        for number, step in enumerate(steps, start=1):
            text = numbered(number, step) if self.number_steps else step
            if number < len(steps):
                builder.text(f"{text}\n\n", asked=True)
            else:
                builder.text(text, asked=True)
                builder.token(end, asked=True)
            builder.step_ends()
        return builder.prompt()

    def read(self, head: Mapping[str, Tensor], hidden: Tensor) -> Tensor:
        """Every read asks for a token."""
        raise NotImplementedError("an implicit PRM is asked for tokens")

    def read_targets(self, head: Mapping[str, Tensor], hidden: Tensor, targets: Tensor) -> Tensor:
        """The log-probability of each target."""
        import torch

        (rows,) = head.values()
        parts = range(0, len(hidden), ROWS)
        return torch.cat([_log_probabilities(rows, hidden[at : at + ROWS], targets[at : at + ROWS]) for at in parts])

    def combine(self, prompt: Prompt, values: Tensor) -> list[StepValue]:
        """Sums of the differences, up to each step's end or over the step alone."""
        ratios = (values.double()[:, 0] - values.double()[:, 1]).tolist() if prompt.ends else []
        rewards = [self.coefficient * sum(ratios[start:end]) for start, end in pairwise((0, *prompt.ends))]
        if self.reading == "sum":
            rewards = [sum(rewards[: number + 1]) for number in range(len(rewards))]
        return [StepValue(reward) for reward in rewards]


def _log_probabilities(rows: Tensor, hidden: Tensor, targets: Tensor) -> Tensor:
    """In float32 whatever the output layer is stored in, a block of the vocabulary at a time."""
    import torch

    total = hidden.new_full((len(hidden),), float("-inf"))
    wanted = torch.empty_like(total)
    for start in range(0, len(rows), BLOCK):
        logits = hidden @ rows[start : start + BLOCK].float().T
        total = torch.logaddexp(total, logits.logsumexp(1))
        inside = (targets >= start) & (targets < start + BLOCK)
        wanted[inside] = logits[inside].gather(1, (targets[inside] - start)[:, None])[:, 0]
    return wanted - total
