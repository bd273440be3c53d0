"""Models of the family `mini` that also read how likely the tokens of a step are to their own language model.

A step that uses the wrong quantity or the wrong operation surprises a language model, given the question and the steps
before. Each token adds to the logit of its step: its log-probability times a weight, plus a constant. Digits, which say
most, have their own weight and constant. These are part of the head; the embeddings are the output layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from surefoot.core.prompt import Prompt
from surefoot.families.base import StepValue, config_int
from surefoot.families.heads import log_probabilities
from surefoot.families.mini.family import SOLUTION, STEP, Mini
from surefoot.tokenization.tokenizer import PromptTokenizer

if TYPE_CHECKING:
    from torch import Tensor

EMBEDDINGS = "model.embed_tokens.weight"
SURPRISE = "surprise.weight"
"""Two rows, for digits and for all other tokens: the constant and the weight."""
INTERCEPT = "surprise.intercept"
"""What is added to the logit of every step. With it, the log-probabilities can judge alone."""
DIGITS = "surprise.digits"
"""For every token of the vocabulary 1 if it is a digit, else 0."""
FLOOR = -16.0
"""Log-probabilities below it count as this one, so that one strange token does not decide everything."""


@dataclass(frozen=True)
class MiniLM(Mini):
    """The prompt of `mini`, read at every token of a step as well."""

    name = "mini-lm"
    readout = "two-class MLP at the marker, and the log-probabilities of the step's tokens"
    architectures = ("SurefootMiniLMForProcessRewardModel",)

    def render(
        self, tokenizer: PromptTokenizer, question: str, steps: Sequence[str], system: str | None = None
    ) -> Prompt:
        """The tokens are those of `mini`."""
        prompt = super().render(tokenizer, question, steps, system)
        return self.place_reads(tokenizer, prompt.ids, prompt.prefix)

    def place_reads(self, tokenizer: PromptTokenizer, ids: Sequence[int], prefix: int) -> Prompt:
        """Read every token of the steps, and the marker after each step.

        The first token of a step is left out, because it often numbers the step, and so are the calculator's notes.
        """
        marker, solution = tokenizer.token(STEP), tokenizer.token(SOLUTION)
        notes = {tokenizer.special_tokens[name] for name in self.added_tokens if name in tokenizer.special_tokens}
        prefix = ids.index(solution) + 1 if solution in ids else prefix
        reads: list[int] = []
        targets: list[int] = []
        ends: list[int] = []
        start = prefix
        for end in (at for at in range(prefix, len(ids)) if ids[at] == marker):
            places = [at for at in range(start + 1, end) if ids[at] not in notes]
            reads += [*(place - 1 for place in places), end]
            targets += [*(ids[place] for place in places), -1]
            ends.append(len(reads))
            start = end + 1
        return Prompt(tuple(ids), tuple(reads), prefix, tuple(targets), tuple(ends))

    def head_shapes(self, config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """The MLP, the weights of log-probabilities, their intercept, which tokens are digits, and the output layer."""
        vocabulary, hidden = config_int(config, "vocab_size"), config_int(config, "hidden_size")
        own = {SURPRISE: (2, 2), INTERCEPT: (1,), DIGITS: (vocabulary,), EMBEDDINGS: (vocabulary, hidden)}
        return super().head_shapes(config) | own

    def read(self, head: Mapping[str, Tensor], hidden: Tensor) -> Tensor:
        """The logit of the MLP, right minus wrong, and the intercept."""
        wrong, right = self.logits(head, hidden).unbind(-1)
        return right - wrong + head[INTERCEPT]

    def read_targets(self, head: Mapping[str, Tensor], hidden: Tensor, targets: Tensor) -> Tensor:
        """The logit of the MLP and the intercept at markers; what a token adds to them elsewhere."""
        token = targets >= 0
        found = hidden.new_empty(len(hidden))
        found[~token] = self.read(head, hidden[~token])
        logprobs = log_probabilities(head[EMBEDDINGS], hidden[token], targets[token])
        weights = head[SURPRISE][kinds(head[DIGITS], targets[token])]
        found[token] = (token_features(logprobs) * weights).sum(-1)
        return found

    def combine(self, prompt: Prompt, values: Tensor) -> list[StepValue]:
        """The probability of each step: the sigmoid of the sum of its values."""
        sums = [values[start:end].double().sum() for start, end in pairwise((0, *prompt.ends))]
        return [StepValue(float(each.sigmoid())) for each in sums]


def kinds(digits: Tensor, tokens: Tensor) -> Tensor:
    """The row of the weights for each token: 0 for digits, 1 for all others."""
    return 1 - digits[tokens].long()


def token_features(logprobs: Tensor) -> Tensor:
    """What the weights of a token are multiplied by: 1 and its log-probability."""
    import torch

    return torch.stack([torch.ones_like(logprobs), logprobs.clamp(min=FLOOR)], -1)


def digit_tokens(tokenizer: PromptTokenizer) -> list[int]:
    """The tokens of single digits. Tokens of several digits, which some vocabularies have, count as other tokens."""
    return [ids[0] for ids in tokenizer.encode_continuation(*"0123456789") if len(ids) == 1]
