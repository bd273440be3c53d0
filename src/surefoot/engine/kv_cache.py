"""A KV cache for search, where prompts grow step by step and share most of their tokens.

A token is computed once, as long as a cached prompt contains it. A slot holds the keys and values of one token of the
trie; prompts with a common prefix share its slots. When the cache is full, the least recently used prompts are evicted,
and the slots that only they used become free.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from surefoot.core.prompt import Prompt
from surefoot.engine.runner import Runner
from surefoot.engine.trie import Indices, Pack, Trie, build_trie, decode_reads, encode_reads, read_targets

NONE = np.empty(0, np.int64)


class TreeCache:
    """Scores prompts like `Runner.scores` and caches their keys and values within `max_bytes`.

    The prompts of one call stay cached until it ends, even if they exceed the limit.
    """

    def __init__(self, runner: Runner, max_bytes: int) -> None:
        runner.check_process()
        self.computed = 0
        """How many tokens have been computed so far."""
        self.capacity = max(1, max_bytes // runner.token_bytes)
        """How many tokens fit into `max_bytes`."""
        self._runner = runner
        self._store = runner.new_buffer(0)
        # The keys encode slot and target: see `encode_reads`.
        self._scores: dict[int, Tensor] = {}
        # The cached prompts, least recently used first, with the slot of each of their tokens.
        self._slots: dict[tuple[int, ...], Indices] = {}

    @property
    def slots_used(self) -> int:
        """How many tokens are cached."""
        return len(self._used())

    @property
    def slots_allocated(self) -> int:
        """How many tokens the allocated memory can hold."""
        return self._store.shape[3]

    @torch.inference_mode()
    def scores(self, prompts: Sequence[Prompt]) -> list[Tensor]:
        """Compute the scores at each prompt's reads, on the CPU in float32."""
        self._runner.check_process()
        with self._runner.lock:
            cached = list(self._slots)
            everything = [*cached, *(prompt.ids for prompt in prompts)]
            # Reading every token of every prompt gives each prompt's path through the trie.
            trie = build_trie([Prompt(ids, tuple(range(len(ids))), 0) for ids in everything], budget=1 << 62)
            slot_of = np.full(len(trie.ids), -1, np.int64)
            for ids, path in zip(cached, trie.reads, strict=False):
                slot_of[path] = self._slots[ids]
            paths = trie.reads[len(cached) :]
            wanted = [
                encode_reads(path[list(prompt.reads)], read_targets(prompt))
                for prompt, path in zip(prompts, paths, strict=True)
            ]
            self._compute(trie, paths, np.unique(np.concatenate([NONE, *wanted])), slot_of)
            found = [self._gather(self._slot_keys(keys, slot_of)) for keys in wanted]
            self._insert({prompt.ids: slot_of[path] for prompt, path in zip(prompts, paths, strict=True)})
            if any(not row.isfinite().all() for row in found):
                # A non-finite value spreads to its neighbours in the store; the runner isolates it.
                self._slots, self._scores = {}, {}
                return self._runner.scores(prompts)
            return found

    def _gather(self, keys: Indices) -> Tensor:
        return torch.stack([self._scores[key] for key in keys.tolist()]) if len(keys) else torch.empty(0)

    @staticmethod
    def _slot_keys(read_keys: Indices, slot_of: Indices) -> Indices:
        """Read keys of trie tokens, as read keys of their slots."""
        tokens, targets = decode_reads(read_keys)
        return encode_reads(slot_of[tokens], targets)

    def _compute(self, trie: Trie, paths: list[Indices], wanted: Indices, slot_of: Indices) -> None:
        """Compute the tokens that have no slot yet, and assign slots to them.

        A token with a slot is computed again if it has to be read with a target for which it was not read before.
        """
        requested = np.unique(np.concatenate([NONE, *paths]))
        read_tokens, targets = decode_reads(wanted)
        unread = [key not in self._scores for key in self._slot_keys(wanted, slot_of).tolist()]
        tokens = np.union1d(requested[slot_of[requested] < 0], read_tokens[np.array(unread, bool)])
        self._make_room(int((slot_of[tokens] < 0).sum()), slot_of[requested])
        while len(tokens):
            # Equal shares: a full pack followed by a tiny one would take longer.
            queries = tokens[: -(-len(tokens) // -(-len(tokens) // self._runner.budget))]
            nearby = np.unique(np.concatenate([path for path in paths if np.isin(queries, path).any()]))
            # An ancestor of a query is a query itself or already has a slot, because it comes first.
            inherited = np.setdiff1d(nearby[slot_of[nearby] >= 0], queries, assume_unique=True)
            keys = np.concatenate([inherited, queries])
            in_pack = np.isin(read_tokens, queries)
            pack = Pack(
                ids=trie.ids[queries],
                positions=trie.positions[queries],
                keys=keys,
                ends=trie.ends[keys],
                inherited=len(inherited),
                kept=np.arange(len(inherited), len(keys)),
                reads=read_tokens[in_pack],
                targets=targets[in_pack],
            )
            result = self._runner.run(pack, self._store[:, :, :, self._index(slot_of[inherited])])
            if result is None:
                continue
            scores, own = result
            new = queries[slot_of[queries] < 0]
            slot_of[new] = self._free_slots(slot_of[requested])[: len(new)]
            self._store[:, :, :, self._index(slot_of[queries])] = own
            self._scores |= dict(zip(self._slot_keys(wanted[in_pack], slot_of).tolist(), scores, strict=True))
            self.computed += len(queries)
            tokens = tokens[len(queries) :]

    def _index(self, slots: Indices) -> Tensor:
        return torch.from_numpy(slots).to(self._runner.device)

    def _make_room(self, count: int, needed: Indices) -> None:
        """Provide `count` free slots: evict prompts beyond the capacity, then enlarge the store.

        `needed` are the slots of the prompts being scored, which are not freed.
        """
        while self._slots and len(self._occupied(needed)) + count > self.capacity:
            del self._slots[next(iter(self._slots))]
        # A freed slot may be assigned to another token, which must not inherit its scores.
        slots, _ = decode_reads(np.fromiter(self._scores, dtype=np.int64, count=len(self._scores)))
        kept = np.isin(slots, self._occupied(needed))
        self._scores = {key: score for (key, score), keep in zip(self._scores.items(), kept, strict=True) if keep}
        size, need = self.slots_allocated, len(self._occupied(needed)) + count
        if need > size:
            larger = self._runner.new_buffer(max(need, min(max(256, 2 * size), self.capacity)))
            larger[:, :, :, :size] = self._store
            self._store = larger

    def _free_slots(self, needed: Indices) -> Indices:
        return np.setdiff1d(np.arange(self.slots_allocated), self._occupied(needed), assume_unique=True)

    def _occupied(self, needed: Indices) -> Indices:
        return np.union1d(self._used(), needed[needed >= 0])

    def _used(self) -> Indices:
        return np.unique(np.concatenate([NONE, *self._slots.values()]))

    def _insert(self, fresh: dict[tuple[int, ...], Indices]) -> None:
        for ids, slots in fresh.items():
            self._slots.pop(ids, None)
            self._slots[ids] = slots
        # A prompt that another one continues needs no entry of its own; the longer one counts as used instead.
        recent = set(fresh)
        for ids, longer in pairwise(sorted(self._slots)):
            if longer[: len(ids)] == ids:
                del self._slots[ids]
                if ids in recent:
                    recent.add(longer)
                    self._slots[longer] = self._slots.pop(longer)
        while len(self._slots) > 1 and self.slots_used > self.capacity:
            del self._slots[next(iter(self._slots))]
        used = set(self._used().tolist())
        self._scores = {key: score for key, score in self._scores.items() if key >> 32 in used}
