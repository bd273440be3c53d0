"""Decode a batch of sequences with a KV cache.

Invariant: a sequence does not depend on the others. Prompts are padded on the left, padding is masked, every token has
its own position, and every sequence has its own random numbers. Sequences with the same prompt share its computation.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from torch import Tensor, nn

from surefoot.core.generation import Continuation, EndState, GenerationRequest
from surefoot.generate.local_attention import without_copies
from surefoot.generate.local_sampling import next_tokens
from surefoot.generate.local_text import TextStream

COMPACT_BELOW = 0.75
"""Finished sequences are removed from the cache if at most this part of the batch is left: removing copies it."""
CLOSED = "The generator was closed before the continuation was complete."
NOT_FINITE = "The model's logits are not finite numbers. Load it with dtype='float32', or check its weights."


@dataclass(frozen=True)
class SequenceRequest:
    """One sequence: the prompt's tokens, and which continuation of which request it is."""

    prompt: tuple[int, ...]
    request: GenerationRequest
    index: int
    owner: int = 0
    """The position of the request among those of its batch."""


@dataclass(frozen=True)
class Decoder:
    """A model and what its tokens mean."""

    model: nn.Module
    device: torch.device
    stream: Callable[[str | None], TextStream]
    """Returns an empty text, given the text that ends a step."""
    ends: frozenset[int]
    """The tokens that end the model's turn."""
    hidden: frozenset[int]
    """The special tokens: they have no text."""
    context: int | None
    """The most tokens of prompt and continuation; None if there is no limit."""

    def room(self, prompt: Sequence[int]) -> int | None:
        """How many tokens may follow a prompt; None if there is no limit."""
        return None if self.context is None else max(0, self.context - len(prompt))


class _Sequence:
    """The state of one sequence."""

    def __init__(self, decoder: Decoder, wanted: SequenceRequest) -> None:
        request, room = wanted.request, decoder.room(wanted.prompt)
        self.sampling = request.sampling
        self.owner, self.seed = wanted.owner, request.seed_of(wanted.index)
        self.random = Random(self.seed)
        self.prompt_tokens, self.tokens = len(wanted.prompt), 0
        self.last = 0
        self.end: EndState | None = None
        self._reason: str | None = None
        self._step: str | None = None
        self._limit = request.max_tokens if room is None else min(room, request.max_tokens)
        self._decoder, self._stream = decoder, decoder.stream(request.step_end)

    @property
    def position(self) -> int:
        """The position of the last token."""
        return self.prompt_tokens + self.tokens - 1

    def add(self, token: int | None) -> None:
        if token is None:
            return self.fail(NOT_FINITE)
        self.tokens += 1
        self.last = token
        if token in self._decoder.ends:
            return self._finish("answer")
        if token not in self._decoder.hidden:
            self._stream.add(token)
        self._step = self._stream.step()
        if self._step is not None:
            self.end = "step"
        elif self.tokens >= self._limit:
            self._finish("cut_off")
        return None

    def fail(self, reason: str) -> None:
        self.end, self._reason = "error", reason

    def _finish(self, end: EndState) -> None:
        self._stream.finish()
        self._step = self._stream.step()  # in front of an incomplete character
        self.end = end if self._step is None else "step"

    def continuation(self) -> Continuation:
        assert self.end is not None
        text = self._stream.text if self._step is None else self._step
        return Continuation(text, self.end, self.tokens, self.seed, self._reason)


@torch.inference_mode()
def decode_batch(
    decoder: Decoder, wanted: Sequence[SequenceRequest], is_over: Callable[[int], bool] = lambda _: False
) -> list[Continuation]:
    """Continue all sequences whose owners are not over. Every prompt must leave room for a token."""
    sequences = [_Sequence(decoder, each) for each in wanted]
    rows = {prompt: row for row, prompt in enumerate(dict.fromkeys(each.prompt for each in wanted))}
    width = max(map(len, rows))
    ids = _tensor([[0] * (width - len(prompt)) + list(prompt) for prompt in rows], decoder)
    mask = _tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in rows], decoder)
    positions = (mask.cumsum(dim=-1) - 1).clamp(min=0)
    logits, cache = _forward(decoder, ids, mask, positions, None)
    expanded = _tensor([rows[each.prompt] for each in wanted], decoder)
    logits, mask = logits[expanded], mask[expanded]
    cache.reorder_cache(expanded)
    cache = without_copies(cache)
    batch = sequences
    while True:
        tokens = next_tokens(logits, [each.sampling for each in batch], [each.random for each in batch])
        for sequence, token in zip(batch, tokens, strict=True):
            if sequence.end is None:
                sequence.add(token)
        for sequence in batch:
            if sequence.end is None and is_over(sequence.owner):
                sequence.fail(CLOSED)
        left = [at for at, sequence in enumerate(batch) if sequence.end is None]
        if not left:
            return [sequence.continuation() for sequence in sequences]
        if len(left) <= COMPACT_BELOW * len(batch):
            kept = _tensor(left, decoder)
            cache.reorder_cache(kept)
            mask, batch = mask[kept], [batch[at] for at in left]
        mask = torch.cat((mask, mask.new_ones(len(batch), 1)), dim=-1)
        ids = _tensor([[each.last] for each in batch], decoder)
        logits, cache = _forward(decoder, ids, mask, _tensor([[each.position] for each in batch], decoder), cache)


def _forward(decoder: Decoder, ids: Tensor, mask: Tensor, positions: Tensor, cache: Any) -> tuple[Tensor, Any]:
    """The logits after the last token of each row, and the KV cache."""
    accepted = inspect.signature(decoder.model.forward).parameters
    optional = {"position_ids": positions, "logits_to_keep": 1}
    output = decoder.model(
        input_ids=ids,
        attention_mask=mask,
        past_key_values=cache,
        use_cache=True,
        return_dict=True,
        **{name: value for name, value in optional.items() if name in accepted},
    )
    return output.logits[:, -1], output.past_key_values


def _tensor(values: Sequence[Any], decoder: Decoder) -> Tensor:
    return torch.tensor(values, dtype=torch.long, device=decoder.device)
