"""What generators take and return: a question and the exact beginning of a solution in, continuations out.

Invariant: a continuation says how it ended. Only one that ended with `answer` is a finished solution; one that was cut
off or failed is never taken for one.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from surefoot.errors import OptionError

EndState = Literal["step", "answer", "cut_off", "error"]
"""How a continuation ended: with the text that ends a step, with the model's end-of-turn token, at the limit of tokens,
or because of an error."""

SEEDS = 1 << 31


@dataclass(frozen=True)
class Sampling:
    """How continuations are sampled. Every request sends all of these, because servers have different defaults.

    >>> surefoot.Sampling(temperature=0.6, top_p=0.95).greedy
    False
    """

    temperature: float = 0.8
    """0 is greedy decoding."""
    top_p: float = 1.0
    top_k: int = 0
    """0 is no limit."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and 0 <= self.temperature <= 5):
            raise OptionError(f"temperature={self.temperature}: pass a number from 0 (greedy) to 5.")
        if not 0 < self.top_p <= 1:
            raise OptionError(f"top_p={self.top_p}: pass a number above 0 and up to 1.")
        if self.top_k < 0:
            raise OptionError(f"top_k={self.top_k}: pass 0 for no limit, or a number above 0.")

    @property
    def greedy(self) -> bool:
        """Whether the most probable token is always taken."""
        return self.temperature == 0


DEFAULT_SAMPLING = Sampling()
GREEDY = Sampling(temperature=0.0)


@dataclass(frozen=True)
class GenerationRequest:
    """A question, the exact beginning of a solution, and how to continue it."""

    question: str
    prefix: str = ""
    """The text so far, exactly as it was generated, with the delimiters between its steps."""
    n: int = 1
    """How many continuations. That with index i has the seed `seed + i`."""
    step_end: str | tuple[str, ...] | None = None
    """The text that ends a step, such as a blank line, or several of them. Without it, continuations run to the end of
    the answer."""
    max_tokens: int = 1024
    """The most tokens of each continuation."""
    sampling: Sampling = DEFAULT_SAMPLING
    seed: int = 0
    prompt_ids: tuple[int, ...] | None = None
    """The prompt as token ids, instead of the question in the generator's own chat template."""
    labels: tuple[str, ...] = ()
    """Instead of continuing, read the log-probability of each of these texts as the next token."""

    def __post_init__(self) -> None:
        for name in ("step_end", "prompt_ids", "labels"):
            if isinstance(value := getattr(self, name), list):  # read from JSON
                object.__setattr__(self, name, tuple(value))
        if self.n < 1 or self.max_tokens < 1:
            raise OptionError(f"n={self.n}, max_tokens={self.max_tokens}: pass numbers above 0.")
        if "" in self.step_ends:
            raise OptionError("`step_end` is empty. Pass the text that ends a step, or None for whole answers.")
        if self.labels and self.n != 1:
            raise OptionError(f"n={self.n}: labels are read once.")

    @property
    def step_ends(self) -> tuple[str, ...]:
        """All texts that end a step."""
        if self.step_end is None:
            return ()
        return (self.step_end,) if isinstance(self.step_end, str) else self.step_end

    def seed_of(self, index: int) -> int:
        """The seed of one continuation."""
        return (self.seed + index) % SEEDS


@dataclass(frozen=True)
class Continuation:
    """How a solution goes on."""

    text: str
    """The new text, exactly. If it ended with a step, it includes the text that ends it."""
    end: EndState
    tokens: int
    """Generated tokens."""
    seed: int
    reason: str | None = None
    """Why it failed."""
    label_logprobs: tuple[float, ...] = ()
    """The log-probabilities of the request's labels, among all tokens."""


@dataclass(frozen=True)
class Generation:
    """The continuations of one request, and what they cost."""

    continuations: tuple[Continuation, ...]
    prompt_tokens: int = 0
    """Tokens of the prompts that were sent, whether or not the server had them cached."""
    calls: int = 1
    """Requests to the server, or sequences in a batch of a model in this process."""

    @property
    def tokens(self) -> int:
        """Generated tokens."""
        return sum(each.tokens for each in self.continuations)


class Generator(Protocol):
    """Anything that continues solutions: a server, a model in this process, or recorded rollouts.

    >>> from surefoot.core.generation import GenerationRequest
    >>> async def first_step(generator: surefoot.Generator, question: str) -> str:
    ...     generation = await generator.generate(GenerationRequest(question, step_end="\\n"))
    ...     return generation.continuations[0].text
    >>> asyncio.run(first_step(surefoot.load_generator("samples.jsonl"), "What is 2 + 3?"))
    '2 + 3 = 5.\\n'
    """

    @property
    def name(self) -> str:
        """The model's name, as results and reports show it."""

    @property
    def fingerprint(self) -> str:
        """A hash of what decides the text: model, prompt and dialect. A resumed job needs the same one."""

    @property
    def continues(self) -> bool:
        """Whether it continues a partial solution. Without that, only whole answers can be sampled."""

    async def check(self) -> None:
        """Raise a `SurefootError` that says what to do if requests cannot succeed. Generates no tokens."""

    async def generate(self, request: GenerationRequest) -> Generation:
        """Continue a solution. A failure becomes a continuation that ended with `error`; it does not raise."""

    async def close(self) -> None:
        """Release connections and threads."""


def failed(request: GenerationRequest, reason: str) -> Generation:
    """The generation of a request that failed as a whole."""
    each = tuple(Continuation("", "error", 0, request.seed_of(index), reason) for index in range(request.n))
    return Generation(each, 0, 0)


def derived_seed(*parts: object) -> int:
    """A seed that depends on all parts, such as the seed of a job, a question and a position in its tree."""
    text = "\x1f".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode(errors="surrogatepass")).digest()[:8], "big") % SEEDS


def end_at(text: str, step_ends: Sequence[str]) -> str | None:
    """The text up to and including the first end of a step; None if there is none.

    >>> end_at("First.\\n\\nSecond.", ["\\n\\n"])
    'First.\\n\\n'
    """
    ends = [at + len(each) for each in step_ends if (at := text.find(each)) >= 0]
    return text[: min(ends)] if ends else None
