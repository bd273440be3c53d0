"""EurusPRM-Stage1 and -Stage2, ImplicitPRM_DPO and _CE and other implicit PRMs: the likelihood ratio of two models.

Both models read the same conversation, and for every token of the solution the difference of its two log-probabilities
is taken. The reward of a step is a coefficient times the sum of these differences over all steps up to its end (`sum`,
as published) or over the step alone (`increment`). It is a log-ratio, not a probability. A step ends with the blank
line after it, the last one with the end of the turn.

The authors have two scripts. The one for EurusPRM (ChatML) ends a step in the first tokens of the next one; here the
reward of a step does not depend on what follows it, so only the last step's reward is theirs. The one for the Llama 3
models ends steps as described above, starts with the last two tokens of the assistant's header, and strips the steps;
all of this is done here for that chat format. It also writes the word `Step` inside a step in lower case, which is not.
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
from surefoot.families.chat import (
    add_turn,
    check_chat_format,
    end_of_turn,
    llama_header,
    numbered,
    open_assistant_turn,
    template_system,
)
from surefoot.families.heads import log_probabilities
from surefoot.families.label_words import output_layer
from surefoot.families.qwen import SYSTEM
from surefoot.tokenization.settings import Message, TokenizerSettings
from surefoot.tokenization.tokenizer import PromptTokenizer

if TYPE_CHECKING:
    from torch import Tensor

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
    """What the chat template puts in the system turn by itself; None for no system turn. A given system message
    replaces it in ChatML and follows it in the Llama 3 format, as in the template of Llama 3.1."""
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

    def options_from(self, settings: TokenizerSettings) -> dict[str, Any]:
        """The system turn is that of the chat template."""
        return template_system(settings, self.chat, "default_system")

    def chat_messages(self, question: str, steps: Sequence[str]) -> list[Message]:
        """The question and the whole solution."""
        solution = "\n\n".join(self._step_texts(steps))
        return [{"role": "user", "content": question}, {"role": "assistant", "content": solution}]

    def head_shapes(self, config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """The whole output layer, because a log-probability needs all logits."""
        return output_layer(config)

    def render(
        self, tokenizer: PromptTokenizer, question: str, steps: Sequence[str], system: str | None = None
    ) -> Prompt:
        """System, user and assistant turn; blank lines separate the steps."""
        llama = self.chat == "llama3"
        builder = PromptBuilder(tokenizer, bos="<|begin_of_text|>" if llama else None)
        if self.default_system is not None or system is not None:
            self._add_system_turn(builder, system)
        add_turn(builder, self.chat, "user", question)
        if llama:
            builder.token("<|start_header_id|>")
            builder.text("assistant")
            builder.end_question()
            builder.token("<|end_header_id|>", logprobs=True)
            builder.text("\n\n", logprobs=True)
        else:
            open_assistant_turn(builder, self.chat)
            builder.end_question()
        for number, text in enumerate(self._step_texts(steps), start=1):
            if number < len(steps):
                builder.text(f"{text}\n\n", logprobs=True)
            else:
                builder.text(text, logprobs=True)
                builder.token(end_of_turn(self.chat), logprobs=True)
            builder.end_step()
        return builder.build()

    def _step_texts(self, steps: Sequence[str]) -> list[str]:
        texts = [step.strip() for step in steps] if self.chat == "llama3" else list(steps)
        return [numbered(number, text) for number, text in enumerate(texts, start=1)] if self.number_steps else texts

    def _add_system_turn(self, builder: PromptBuilder, system: str | None) -> None:
        default = self.default_system or ""
        if self.chat == "llama3":
            llama_header(builder, "system")
            builder.text("\n\n" + default + (system or "").strip())
            builder.token("<|eot_id|>")
        else:
            add_turn(builder, self.chat, "system", default if system is None else system)

    def read(self, head: Mapping[str, Tensor], hidden: Tensor) -> Tensor:
        """Not used: every read has a target token."""
        raise NotImplementedError("every read of an implicit PRM has a target token")

    def read_targets(self, head: Mapping[str, Tensor], hidden: Tensor, targets: Tensor) -> Tensor:
        """The log-probability of each target."""
        (rows,) = head.values()
        return log_probabilities(rows, hidden, targets)

    def combine(self, prompt: Prompt, values: Tensor) -> list[StepValue]:
        """Sum the differences, up to each step's end or over the step alone."""
        ratios = (values.double()[:, 0] - values.double()[:, 1]).tolist() if prompt.ends else []
        rewards = [self.coefficient * sum(ratios[start:end]) for start, end in pairwise((0, *prompt.ends))]
        if self.reading == "sum":
            rewards = [sum(rewards[: number + 1]) for number in range(len(rewards))]
        return [StepValue(reward) for reward in rewards]
