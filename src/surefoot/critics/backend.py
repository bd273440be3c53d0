"""What critics ask a generator for: text that continues a prompt, and the probabilities of two labels.

Invariant: a verdict is read from what the model writes or computes after the prompt, never from the prompt.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from surefoot.core.generation import GREEDY, Continuation, GenerationRequest, Generator, Sampling
from surefoot.critics.prompt import ChatMessage, CriticPrompt, TokenPrompt
from surefoot.critics.verdict import Vote, failed
from surefoot.errors import OptionError
from surefoot.tokenization.tokenizer import PromptTokenizer

VERDICT_TOKENS = 8
"""The most tokens of a verdict that is generated because the server reports no probabilities of labels."""
CUT_OFF = "The critic's analysis was cut off at {limit} tokens. Raise `max_tokens`."
NO_VERDICT = "The critic gave no verdict that can be read."
LOW_MASS = "The labels {labels} have only {mass:.2%} of the probability together, so this is not a verdict."
NEEDS_TOKENIZER = (
    "This critic needs the model's tokenizer, to send prompts as token ids. Pass its folder or hub id: tokenizer=..."
)


@dataclass(frozen=True)
class Labels:
    """The texts that stand for right and wrong. Each is one token."""

    right: str
    wrong: str

    def without_space(self) -> tuple[str, str]:
        """The labels as they stand in a text."""
        return self.right.strip(), self.wrong.strip()


class CriticBackend:
    """A generator as critics use it for one solution. It counts tokens and calls."""

    def __init__(self, generator: Generator, tokenizer: PromptTokenizer | None = None) -> None:
        self._generator, self._tokenizer = generator, tokenizer
        self.prompt_tokens = 0
        self.generated_tokens = 0
        self.calls = 0

    @property
    def reads_labels(self) -> bool:
        """Whether the generator reports the probabilities of given tokens."""
        return bool(getattr(self._generator, "reads_labels", False))

    @property
    def continues(self) -> bool:
        """Whether the generator continues a reply that has begun."""
        return self._generator.continues

    async def write(
        self,
        prompt: CriticPrompt,
        *,
        max_tokens: int,
        sampling: Sampling = GREEDY,
        seed: int = 0,
        stops: Sequence[str] = (),
    ) -> Continuation:
        """Continue a prompt. The text includes the stop string that ended it."""
        return await self._ask(self._request(prompt, max_tokens, sampling, seed, tuple(stops)))

    async def read(self, prompt: CriticPrompt, labels: Labels, min_mass: float) -> Vote:
        """The probability that the label for right follows, against the one for wrong.

        Without probabilities of labels, a verdict is generated, and it counts as certain.
        """
        if not self.reads_labels:
            return await self._written(prompt, labels)
        request = self._request(prompt, 1, GREEDY, 0, (), (labels.right, labels.wrong))
        answer = await self._ask(request)
        if answer.end == "error":
            return failed("generator_error", answer.reason or NO_VERDICT)
        right, wrong = (math.exp(each) for each in answer.label_logprobs)
        mass = min(1.0, right + wrong)
        if mass < min_mass or mass == 0:
            shown = " and ".join(map(repr, (labels.right, labels.wrong)))
            return failed("low_mass", LOW_MASS.format(labels=shown, mass=mass), mass)
        return Vote(right / (right + wrong), mass=mass)

    async def _written(self, prompt: CriticPrompt, labels: Labels) -> Vote:
        answer = await self.write(prompt, max_tokens=VERDICT_TOKENS)
        if answer.end == "error":
            return failed("generator_error", answer.reason or NO_VERDICT)
        right, wrong = map(re.escape, labels.without_space())
        found = re.match(rf"\W{{0,4}}?({right}|{wrong})(?!\w)", answer.text)
        if found is None:
            return failed("no_verdict", NO_VERDICT)
        return Vote(1.0 if found.group(1) == labels.without_space()[0] else 0.0)

    def _request(
        self,
        prompt: CriticPrompt,
        max_tokens: int,
        sampling: Sampling,
        seed: int,
        stops: tuple[str, ...],
        labels: tuple[str, ...] = (),
    ) -> GenerationRequest:
        chat = prompt if isinstance(prompt, ChatMessage) else ChatMessage("")
        return GenerationRequest(
            chat.message,
            chat.reply,
            step_end=stops or None,
            max_tokens=max_tokens,
            sampling=sampling,
            seed=seed,
            prompt_ids=self._encode(prompt) if isinstance(prompt, TokenPrompt) else None,
            labels=labels,
        )

    def _encode(self, prompt: TokenPrompt) -> tuple[int, ...]:
        if self._tokenizer is None:
            raise OptionError(NEEDS_TOKENIZER)
        return prompt.encode(self._tokenizer)

    async def _ask(self, request: GenerationRequest) -> Continuation:
        generation = await self._generator.generate(request)
        self.prompt_tokens += generation.prompt_tokens
        self.generated_tokens += generation.tokens
        self.calls += generation.calls
        return generation.continuations[0]


def incomplete(answer: Continuation, max_tokens: int) -> Vote | None:
    """Why an analysis cannot be used, or None if it is complete."""
    if answer.end == "error":
        return failed("generator_error", answer.reason or NO_VERDICT)
    return failed("cut_off", CUT_OFF.format(limit=max_tokens)) if answer.end == "cut_off" else None
