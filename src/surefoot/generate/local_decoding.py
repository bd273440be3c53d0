"""Decode sequences together, with a KV cache: continuous batching.

Invariant: a sequence does not depend on the others. Prompts are padded on the left, padding is masked, every token has
its own position, and every sequence has its own random numbers. Sequences with the same prompt share its computation.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from random import Random
from typing import Any

import torch
from torch import Tensor, nn

from surefoot.core.generation import Continuation, EndState, GenerationRequest
from surefoot.generate.local_attention import can_join, joined, joined_masks, without_copies, without_padding
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
    """The number of the request."""
    label_ids: tuple[int, ...] = ()
    """The tokens of the request's labels."""


@dataclass(frozen=True)
class Decoder:
    """A model and what its tokens mean."""

    model: nn.Module
    device: torch.device
    stream: Callable[[Sequence[str]], TextStream]
    """Returns an empty text, given the texts that end a step."""
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
        self.wanted, self.sampling = wanted, request.sampling
        self.seed = request.seed_of(wanted.index)
        self.random = Random(self.seed)
        self.prompt_tokens, self.tokens = len(wanted.prompt), 0
        self.last = 0
        self.end: EndState | None = None
        self._reason: str | None = None
        self._step: str | None = None
        self._label_logprobs: tuple[float, ...] = ()
        self._limit = request.max_tokens if room is None else min(room, request.max_tokens)
        self._decoder, self._stream = decoder, decoder.stream(request.step_ends)

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

    def read_labels(self, logits: Tensor) -> None:
        """Read the labels from the logits after the prompt, and end the sequence."""
        logprobs = logits.float().log_softmax(dim=-1)[list(self.wanted.label_ids)].tolist()
        if not all(map(isfinite, logprobs)):
            return self.fail(NOT_FINITE)
        self._label_logprobs, self.end = tuple(logprobs), "answer"
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
        return Continuation(text, self.end, self.tokens, self.seed, self._reason, self._label_logprobs)


class RunningBatch:
    """Sequences that are decoded together. Others may join at any time, unless a layer of the cache forgets tokens.

        batch = RunningBatch(decoder)
        batch.add(wanted)
        while batch:
            batch.step()
            finished = batch.collect()

    After a method raised, only `abandon` and `collect` may be called.
    """

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._rows: list[_Sequence] = []
        """The rows of the cache, also those that are finished and not removed yet."""
        self._mask = torch.empty(0, 0, dtype=torch.long, device=decoder.device)
        self._cache: Any = None
        self._finished: list[_Sequence] = []

    def __len__(self) -> int:
        return sum(row.end is None for row in self._rows)

    @property
    def is_open(self) -> bool:
        """Whether sequences may join."""
        return not len(self) or can_join(self._cache)

    @torch.inference_mode()
    def add(self, wanted: Sequence[SequenceRequest]) -> None:
        """Compute the prompts and the first tokens of these sequences. Every prompt must leave room for a token."""
        decoder, new = self._decoder, [_Sequence(self._decoder, each) for each in wanted]
        prompts = {prompt: row for row, prompt in enumerate(dict.fromkeys(each.prompt for each in wanted))}
        width = max(map(len, prompts))
        ids = _tensor([[0] * (width - len(prompt)) + list(prompt) for prompt in prompts], decoder)
        mask = _tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts], decoder)
        positions = (mask.cumsum(dim=-1) - 1).clamp(min=0)
        logits, cache = _forward(decoder, ids, mask, positions, None)
        _choose(new, logits[_tensor([prompts[each.prompt] for each in wanted], decoder)])
        left = [(prompts[each.prompt], row) for each, row in zip(wanted, new, strict=True) if row.end is None]
        if left:
            kept = _tensor([prompt for prompt, _ in left], decoder)
            cache.reorder_cache(kept)
            cache, mask = without_copies(cache), mask[kept]
            self._remove_finished(always=True)
            if self._rows:
                cache, mask = joined(self._cache, cache), joined_masks(self._mask, mask)
            self._cache, self._mask, self._rows = cache, mask, [*self._rows, *(row for _, row in left)]
        self._finished += [row for row in new if row.end is not None]

    @torch.inference_mode()
    def step(self) -> None:
        """Compute one more token of every sequence."""
        self._remove_finished()
        if not self._rows:
            return
        mask = torch.cat((self._mask, self._mask.new_ones(len(self._rows), 1)), dim=-1)
        ids = _tensor([[row.last] for row in self._rows], self._decoder)
        positions = _tensor([[row.position] for row in self._rows], self._decoder)
        logits, self._cache = _forward(self._decoder, ids, mask, positions, self._cache)
        self._mask = mask
        running = [row for row in self._rows if row.end is None]
        try:
            _choose(self._rows, logits)
        finally:  # also those that ended before another one failed
            self._finished += [row for row in running if row.end is not None]

    def stop(self, is_over: Callable[[int], bool]) -> None:
        """End the sequences whose owners are over."""
        for row in self._rows:
            if row.end is None and is_over(row.wanted.owner):
                row.fail(CLOSED)
                self._finished.append(row)

    def collect(self) -> list[tuple[SequenceRequest, Continuation]]:
        """Return the sequences that finished after the last call."""
        finished, self._finished = self._finished, []
        return [(row.wanted, row.continuation()) for row in finished]

    def abandon(self) -> list[SequenceRequest]:
        """Remove all sequences. Return those that are not finished; they have to start again."""
        rows, self._rows, self._cache = self._rows, [], None
        return [row.wanted for row in rows if row.end is None]

    def _remove_finished(self, *, always: bool = False) -> None:
        """Remove finished rows from the cache, if they are many: removing copies the others."""
        left = [at for at, row in enumerate(self._rows) if row.end is None]
        if not left:
            self._rows, self._cache = [], None
        elif len(left) <= COMPACT_BELOW * len(self._rows) or (always and len(left) < len(self._rows)):
            kept = _tensor(left, self._decoder)
            self._cache.reorder_cache(kept)
            self._mask, self._rows = self._mask[kept], [self._rows[at] for at in left]
            self._mask = without_padding(self._cache, self._mask)


def _choose(rows: Sequence[_Sequence], logits: Tensor) -> None:
    """Add the next token to every row that is not finished, or read its labels."""
    for at, row in enumerate(rows):
        if row.end is None and row.wanted.label_ids:
            row.read_labels(logits[at])
    tokens = next_tokens(logits, [row.sampling for row in rows], [row.random for row in rows])
    for row, token in zip(rows, tokens, strict=True):
        if row.end is None:
            row.add(token)


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
