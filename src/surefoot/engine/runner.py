"""Forward passes: prompts in, hidden states at their read positions out.

The rule: what else is in the call does not change a prompt's hidden states beyond rounding. Prompts of like length are
padded on the right and run together; with causal attention nothing that is read can see the padding.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

from surefoot.errors import SurefootError
from surefoot.prompt import Prompt

logger = logging.getLogger("surefoot")


class Runner:
    """A backbone that runs prompts in batches of at most `budget` tokens, fewer where memory does not suffice."""

    def __init__(self, backbone: nn.Module, *, device: torch.device, dtype: torch.dtype, budget: int = 4096) -> None:
        self.budget = budget
        self._backbone = backbone
        self._embedding = backbone.get_submodule("embed_tokens")
        self._device = device
        self._dtype = dtype

    @torch.inference_mode()
    def hidden(self, prompts: Sequence[Prompt], done: Callable[[int], None] | None = None) -> list[Tensor]:
        """For each prompt the final hidden states at its reads, one row each, in float32.

        `done` is told how many prompts each finished batch held.
        """
        rows: list[Tensor | None] = [None] * len(prompts)
        waiting = sorted(range(len(prompts)), key=lambda index: len(prompts[index].ids), reverse=True)
        while waiting:
            batch = waiting[: self._batch_size(len(prompts[waiting[0]].ids))]
            try:
                states = self._forward([prompts[index] for index in batch])
            except torch.OutOfMemoryError as error:
                self._shrink(sum(len(prompts[index].ids) for index in batch), alone=len(batch) == 1, error=error)
                continue
            for index, state in zip(batch, states, strict=True):
                rows[index] = state
            del waiting[: len(batch)]
            if done is not None:
                done(len(batch))
        return [row for row in rows if row is not None]

    def _batch_size(self, longest: int) -> int:
        return max(1, self.budget // max(1, longest))

    def _forward(self, batch: Sequence[Prompt]) -> Iterator[Tensor]:
        width = len(batch[0].ids)
        ids = torch.zeros(len(batch), width, dtype=torch.long)
        for row, prompt in zip(ids, batch, strict=True):
            row[: len(prompt.ids)] = torch.tensor(prompt.ids)
        embedded = self._embedding(ids.to(self._device)).to(self._dtype)
        states = self._backbone(inputs_embeds=embedded, use_cache=False).last_hidden_state
        return iter([row[list(prompt.reads)].float() for row, prompt in zip(states, batch, strict=True)])

    def _shrink(self, tokens: int, *, alone: bool, error: Exception) -> None:
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        if alone:
            raise SurefootError(
                f"A single solution of {tokens} tokens does not fit into memory. Lower max_tokens, load the model with "
                'quantize="nf4", or free memory on the device.'
            ) from error
        self.budget = max(1, self.budget // 2)
        logger.warning("Out of memory with %d tokens in a batch; going on with at most %d.", tokens, self.budget)
