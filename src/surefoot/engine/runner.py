"""Forward passes: prompts in, hidden states at their read positions out.

The rule: what else is in the call does not change a prompt's hidden states beyond rounding. One forward pass a pack;
between packs only the keys and values live on that the next one inherits; no logits over the vocabulary are made.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from surefoot.engine import attention
from surefoot.engine.pack import Pack, build_trie
from surefoot.errors import SurefootError
from surefoot.prompt import Prompt

logger = logging.getLogger("surefoot")

SMALLEST_BUDGET = 16
CPU_BUDGET = 512


class Runner:
    """A backbone that runs packs of at most `budget` tokens, fewer where memory does not suffice."""

    def __init__(
        self,
        backbone: nn.Module,
        *,
        device: torch.device,
        dtype: torch.dtype,
        attention_name: str,
        budget: int | None = None,
    ) -> None:
        self.device = device
        self.dtype = dtype
        self.backbone = backbone
        self.attention = attention_name
        self.budget = budget or _budget(backbone, device, dtype)
        self._embedding = backbone.get_submodule("embed_tokens")
        self._buffer = self.new_buffer(0)

    @torch.inference_mode()
    def hidden(self, prompts: Sequence[Prompt], done: Callable[[int], None] | None = None) -> list[Tensor]:
        """For each prompt the final hidden states at its reads, one row each, in float32.

        `done` is told, after every pack, for how many more prompts all reads are there.
        """
        rows: list[Tensor | None] = [None] * len(prompts)
        waiting = [number for number, prompt in enumerate(prompts) if prompt.reads]
        while waiting:
            found = self._run_trie([prompts[number] for number in waiting], done or (lambda count: None))
            for number, states in zip(waiting, found, strict=True):
                rows[number] = states
            waiting = [number for number in waiting if rows[number] is None]
        nothing = torch.empty(0, self.hidden_size, device=self.device)
        return [nothing if row is None else row for row in rows]

    def _run_trie(self, prompts: Sequence[Prompt], done: Callable[[int], None]) -> list[Tensor | None]:
        """The rows of every prompt, or of those that were finished when memory ran out."""
        trie = build_trie(prompts, self.budget)
        read = np.unique(np.concatenate(trie.reads))
        last_reads = np.sort([reads.max() for reads in trie.reads])
        states = torch.empty(len(read), self.hidden_size, device=self.device)
        inherited: Tensor | None = None
        finished = 0
        computed = 0
        for pack in trie.packs():
            try:
                own, keys_values = self.run(pack, inherited)
            except torch.OutOfMemoryError as error:
                self.shrink(len(pack.ids), error)
                break
            first = int(np.searchsorted(read, computed))
            states[first : first + len(own)] = own
            inherited = keys_values[:, :, :, torch.from_numpy(pack.keep).to(self.device)]
            computed = int(pack.keys[-1]) + 1
            before, finished = finished, int(np.searchsorted(last_reads, computed))
            done(finished - before)
        return [
            states[torch.from_numpy(np.searchsorted(read, reads))] if reads.max() < computed else None
            for reads in trie.reads
        ]

    @torch.inference_mode()
    def run(self, pack: Pack, inherited: Tensor | None) -> tuple[Tensor, Tensor]:
        """One forward pass.

        Gives the hidden states at the pack's reads in float32, and the keys and values of all its keys, inherited ones
        first: [layer, key or value, head, token, size]. The latter is a view that the next pass overwrites.
        """
        tokens, columns = len(pack.ids), pack.inherited
        keys_values = self._room(columns + tokens)
        if inherited is not None and columns:
            keys_values[:, :, :, :columns] = inherited
        embedded = self._embedding(torch.from_numpy(pack.ids).to(self.device))[None].to(self.dtype)
        states = self.backbone(
            inputs_embeds=embedded,
            position_ids=torch.from_numpy(pack.positions).to(self.device)[None],
            use_cache=False,
            keys_values=keys_values,
            **self._mask(pack, tokens, columns),
        ).last_hidden_state[0]
        places = torch.from_numpy(np.searchsorted(pack.queries, pack.reads)).to(self.device)
        return states[places].float(), keys_values

    def _mask(self, pack: Pack, rows: int, columns: int) -> dict[str, Any]:
        if self.attention in ("sdpa", "eager"):
            return {"attention_mask": attention.dense_mask(pack, rows, columns, self.dtype, self.device)}
        starts = attention.sequence_starts(pack) if self.attention == "flash_attention_2" else None
        if starts is not None:
            return {"sequence_starts": starts.to(self.device)}
        return {"attention_mask": attention.block_mask(pack, rows, columns, self.device)}

    @property
    def hidden_size(self) -> int:
        """How many numbers a hidden state has."""
        return int(self._config.hidden_size)

    @property
    def token_bytes(self) -> int:
        """Memory that the keys and values of one token take."""
        one = self.new_buffer(1)
        return one.numel() * one.element_size()

    @property
    def _config(self) -> Any:
        return self.backbone.config

    def _room(self, tokens: int) -> Tensor:
        """The buffer of keys and values, cut to this many tokens."""
        if self._buffer.shape[3] < tokens:
            self._buffer = self.new_buffer(0)  # the old one is given back first
            self._buffer = self.new_buffer(-(-tokens // 256) * 256)
        return self._buffer[:, :, :, :tokens]

    def new_buffer(self, tokens: int) -> Tensor:
        """Room for the keys and values of so many tokens: [layer, key or value, head, token, size]."""
        config = self._config
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        shape = (config.num_hidden_layers, 2, config.num_key_value_heads, tokens, size)
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    def shrink(self, tokens: int, error: Exception) -> None:
        """Halves the budget after a pack did not fit, for all that is still to come."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        if self.budget <= SMALLEST_BUDGET:
            raise SurefootError(
                f"Not even {tokens} tokens at a time fit into memory. Lower max_tokens, load the model with "
                'quantize="nf4", or free memory on the device.'
            ) from error
        self.budget = max(SMALLEST_BUDGET, self.budget // 2)
        logger.warning("Out of memory with %d tokens in a pack; going on with at most %d.", tokens, self.budget)


def _budget(backbone: nn.Module, device: torch.device, dtype: torch.dtype) -> int:
    """How many tokens a pack may hold.

    On the CPU products are fastest at a few hundred rows, and a dense mask grows with the square. On CUDA a quarter of
    the free memory is given to a pack's activations and its keys and values.
    """
    if device.type != "cuda":
        return CPU_BUDGET
    config: Any = backbone.config
    free, _ = torch.cuda.mem_get_info(device)
    cached = 4 * config.num_hidden_layers * config.hidden_size
    per_token = dtype.itemsize * (8 * config.hidden_size + 3 * config.intermediate_size + cached)
    return int(min(16384, max(1024, free // 4 // per_token)))
