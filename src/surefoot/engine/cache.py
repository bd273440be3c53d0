"""A cache of keys and values for search, where prompts grow step by step and share most of what they hold.

The rule: a token is computed once as long as a prompt that holds it is remembered. A slot holds the keys and values of
one token of the trie; prompts that share a prefix share its slots. When more slots are used than the limit allows, the
prompts used longest ago are forgotten, and the slots that were theirs alone are free again.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from surefoot.engine.pack import Indices, Pack, Trie, build_trie
from surefoot.engine.runner import Runner
from surefoot.prompt import Prompt


class TreeCache:
    """Scores prompts like `Runner.hidden`, and remembers their keys and values within `max_bytes`."""

    def __init__(self, runner: Runner, max_bytes: int) -> None:
        self.computed = 0
        """Tokens that had to be computed so far."""
        self._runner = runner
        self._store = runner.new_buffer(0)
        self._capacity = max(1, max_bytes // runner.token_bytes)
        self._rows: dict[int, Tensor] = {}
        # Remembered prompts, the one used longest ago first, with the slot of each of their tokens.
        self._slots: dict[tuple[int, ...], Indices] = {}

    @property
    def slots_used(self) -> int:
        """How many tokens are remembered."""
        return len(self._used())

    @torch.inference_mode()
    def hidden(self, prompts: Sequence[Prompt]) -> list[Tensor]:
        """For each prompt the final hidden states at its reads, one row each, in float32."""
        remembered = list(self._slots)
        everything = [*remembered, *(prompt.ids for prompt in prompts)]
        # Every token of every prompt is asked for: the answer is the prompt's path through the trie.
        trie = build_trie([Prompt(ids, tuple(range(len(ids))), 0) for ids in everything], budget=1 << 62)
        paths = trie.reads[len(remembered) :]
        slot_of = np.full(len(trie.ids), -1, np.int64)
        for ids, path in zip(remembered, trie.reads, strict=False):
            slot_of[path] = self._slots[ids]
        wanted = [path[list(prompt.reads)] for prompt, path in zip(prompts, paths, strict=True)]
        self._compute(trie, paths, np.unique(np.concatenate([*wanted, np.empty(0, np.int64)])), slot_of)
        rows = [[self._rows[slot] for slot in slot_of[tokens].tolist()] for tokens in wanted]
        nothing = torch.empty(0, self._runner.hidden_size, device=self._runner.device)
        states = [torch.stack(row) if row else nothing for row in rows]
        self._remember({prompt.ids: slot_of[path] for prompt, path in zip(prompts, paths, strict=True)})
        return states

    def _compute(self, trie: Trie, paths: list[Indices], wanted: Indices, slot_of: Indices) -> None:
        """Computes the tokens without a slot, and those to be read that never were, and gives them slots."""
        unread = [token for token in wanted.tolist() if slot_of[token] not in self._rows]
        tokens = np.union1d(np.unique(np.concatenate([*paths, np.empty(0, np.int64)])), unread).astype(np.int64)
        tokens = tokens[(slot_of[tokens] < 0) | np.isin(tokens, unread)]
        while len(tokens):
            queries = tokens[: self._runner.budget]
            path = np.unique(np.concatenate([path for path in paths if np.isin(queries, path).any()]))
            inherited = np.setdiff1d(path[path < queries[-1]], queries)
            # Of the tokens before the last query, only those that already have a slot can be ancestors of one.
            inherited = inherited[slot_of[inherited] >= 0]
            keys = np.concatenate([inherited, queries])
            pack = Pack(
                ids=trie.ids[queries],
                positions=trie.positions[queries],
                keys=keys,
                ends=trie.ends[keys],
                inherited=len(inherited),
                keep=np.empty(0, np.int64),
                reads=np.intersect1d(queries, wanted),
            )
            try:
                states, keys_values = self._runner.run(pack, self._store[:, :, :, self._index(slot_of[inherited])])
            except torch.OutOfMemoryError as error:
                self._runner.shrink(len(queries), error)
                continue
            slot_of[queries] = self._new_slots(len(queries), slot_of)
            self._store[:, :, :, self._index(slot_of[queries])] = keys_values[:, :, :, len(inherited) :]
            self._rows |= dict(zip(slot_of[pack.reads].tolist(), states, strict=True))
            self.computed += len(queries)
            tokens = tokens[len(queries) :]

    def _index(self, slots: Indices) -> Tensor:
        return torch.from_numpy(slots).to(self._runner.device)

    def _new_slots(self, count: int, slot_of: Indices) -> Indices:
        """Free slots, making the store larger where there are too few."""
        taken = np.union1d(self._used(), slot_of[slot_of >= 0])
        size = self._store.shape[3]
        free = np.setdiff1d(np.arange(size), taken, assume_unique=True)
        if len(free) < count:
            larger = self._runner.new_buffer(max(256, 2 * size, len(taken) + count))
            larger[:, :, :, :size] = self._store
            self._store = larger
            free = np.concatenate([free, np.arange(size, larger.shape[3])])
        return free[:count]

    def _remember(self, fresh: dict[tuple[int, ...], Indices]) -> None:
        for ids, slots in fresh.items():
            self._slots.pop(ids, None)
            self._slots[ids] = slots
        # A prompt that another one continues needs no entry of its own.
        ordered = sorted(self._slots)
        for ids, longer in pairwise(ordered):
            if longer[: len(ids)] == ids:
                del self._slots[ids]
        while len(self._slots) > 1 and len(self._used()) > self._capacity:
            del self._slots[next(iter(self._slots))]
        used = set(self._used().tolist())
        self._rows = {slot: row for slot, row in self._rows.items() if slot in used}

    def _used(self) -> Indices:
        return np.unique(np.concatenate([*self._slots.values(), np.empty(0, np.int64)]))
