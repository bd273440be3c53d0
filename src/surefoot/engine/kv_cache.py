"""A cache of keys and values for search, where prompts grow step by step and share most of what they hold.

The rule: a token is computed once as long as a prompt that holds it is remembered. A slot holds the keys and values of
one token of the trie; prompts that share a prefix share its slots. Before more slots are used than the limit allows,
the prompts used longest ago are forgotten, and the slots that were theirs alone are free again.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from surefoot.core.prompt import Prompt
from surefoot.engine.runner import Runner
from surefoot.engine.trie import Indices, Pack, Trie, as_asks, build_trie, from_asks

NONE = np.empty(0, np.int64)


class TreeCache:
    """Scores prompts like `Runner.scores`, and remembers their keys and values within `max_bytes`.

    The prompts of one call are kept at least until it ends, whatever they need.
    """

    def __init__(self, runner: Runner, max_bytes: int) -> None:
        self.computed = 0
        """Tokens that had to be computed so far."""
        self._runner = runner
        self._capacity = max(1, max_bytes // runner.token_bytes)
        self._store = runner.new_buffer(0)
        # By slot and target, as one number.
        self._scores: dict[int, Tensor] = {}
        # Remembered prompts, the one used longest ago first, with the slot of each of their tokens.
        self._slots: dict[tuple[int, ...], Indices] = {}

    @property
    def slots_used(self) -> int:
        """How many tokens are remembered."""
        return len(self._used())

    @torch.inference_mode()
    def scores(self, prompts: Sequence[Prompt]) -> list[Tensor]:
        """For each prompt the scores at its reads, on the CPU in float32."""
        with self._runner.lock:
            remembered = list(self._slots)
            everything = [*remembered, *(prompt.ids for prompt in prompts)]
            # Every token of every prompt is asked for: the answer is the prompt's path through the trie.
            trie = build_trie([Prompt(ids, tuple(range(len(ids))), 0) for ids in everything], budget=1 << 62)
            slot_of = np.full(len(trie.ids), -1, np.int64)
            for ids, path in zip(remembered, trie.reads, strict=False):
                slot_of[path] = self._slots[ids]
            paths = trie.reads[len(remembered) :]
            wanted = [
                as_asks(path[list(prompt.reads)], np.array(prompt.targets or [-1] * len(prompt.reads), np.int64))
                for prompt, path in zip(prompts, paths, strict=True)
            ]
            self._compute(trie, paths, np.unique(np.concatenate([NONE, *wanted])), slot_of)
            found = [self._gather(self._keys(asks, slot_of)) for asks in wanted]
            self._remember({prompt.ids: slot_of[path] for prompt, path in zip(prompts, paths, strict=True)})
            if any(not row.isfinite().all() for row in found):
                # What is not finite spreads to its neighbours in the store; the runner tells them apart.
                self._slots, self._scores = {}, {}
                return self._runner.scores(prompts)
            return found

    def _gather(self, keys: Indices) -> Tensor:
        return torch.stack([self._scores[key] for key in keys.tolist()]) if len(keys) else torch.empty(0)

    @staticmethod
    def _keys(asks: Indices, slot_of: Indices) -> Indices:
        tokens, targets = from_asks(asks)
        return as_asks(slot_of[tokens], targets)

    def _compute(self, trie: Trie, paths: list[Indices], wanted: Indices, slot_of: Indices) -> None:
        """Computes the tokens that have no slot yet, and gives them slots.

        A token that has one is computed again where something is wanted of it that was not read the first time.
        """
        asked = np.unique(np.concatenate([NONE, *paths]))
        places, targets = from_asks(wanted)
        unread = [key not in self._scores for key in self._keys(wanted, slot_of).tolist()]
        tokens = np.union1d(asked[slot_of[asked] < 0], places[np.array(unread, bool)])
        self._make_room(int((slot_of[tokens] < 0).sum()), slot_of[asked])
        while len(tokens):
            # Equal shares: a full pack with a tiny one behind it would take longer.
            queries = tokens[: -(-len(tokens) // -(-len(tokens) // self._runner.budget))]
            near = np.unique(np.concatenate([path for path in paths if np.isin(queries, path).any()]))
            # An ancestor of a query either is a query itself or has its slot already, for it comes first.
            inherited = np.setdiff1d(near[slot_of[near] >= 0], queries, assume_unique=True)
            keys = np.concatenate([inherited, queries])
            own_asks = np.isin(places, queries)
            pack = Pack(
                ids=trie.ids[queries],
                positions=trie.positions[queries],
                keys=keys,
                ends=trie.ends[keys],
                inherited=len(inherited),
                keep=np.arange(len(inherited), len(keys)),
                reads=places[own_asks],
                targets=targets[own_asks],
            )
            ran = self._runner.run(pack, self._store[:, :, :, self._index(slot_of[inherited])])
            if ran is None:
                continue
            scores, own = ran
            new = queries[slot_of[queries] < 0]
            slot_of[new] = self._free_slots(slot_of[asked])[: len(new)]
            self._store[:, :, :, self._index(slot_of[queries])] = own
            self._scores |= dict(zip(self._keys(wanted[own_asks], slot_of).tolist(), scores, strict=True))
            self.computed += len(queries)
            tokens = tokens[len(queries) :]

    def _index(self, slots: Indices) -> Tensor:
        return torch.from_numpy(slots).to(self._runner.device)

    def _make_room(self, count: int, needed: Indices) -> None:
        """Sees to `count` free slots: forgets prompts beyond the capacity, makes the store larger up to it.

        `needed` are slots of the prompts being scored, which stay.
        """
        while self._slots and len(self._taken(needed)) + count > self._capacity:
            del self._slots[next(iter(self._slots))]
        # A slot that is free may go to another token: what was read there must not be taken for that token's.
        slots, _ = from_asks(np.fromiter(self._scores, dtype=np.int64, count=len(self._scores)))
        kept = np.isin(slots, self._taken(needed))
        self._scores = {key: score for (key, score), stays in zip(self._scores.items(), kept, strict=True) if stays}
        size, need = self._store.shape[3], len(self._taken(needed)) + count
        if need > size:
            larger = self._runner.new_buffer(max(need, min(max(256, 2 * size), self._capacity)))
            larger[:, :, :, :size] = self._store
            self._store = larger

    def _free_slots(self, needed: Indices) -> Indices:
        return np.setdiff1d(np.arange(self._store.shape[3]), self._taken(needed), assume_unique=True)

    def _taken(self, needed: Indices) -> Indices:
        return np.union1d(self._used(), needed[needed >= 0])

    def _used(self) -> Indices:
        return np.unique(np.concatenate([NONE, *self._slots.values()]))

    def _remember(self, fresh: dict[tuple[int, ...], Indices]) -> None:
        for ids, slots in fresh.items():
            self._slots.pop(ids, None)
            self._slots[ids] = slots
        # A prompt that another one continues needs no entry of its own; the other one counts as used in its place.
        recent = set(fresh)
        for ids, longer in pairwise(sorted(self._slots)):
            if longer[: len(ids)] == ids:
                del self._slots[ids]
                if ids in recent:
                    recent.add(longer)
                    self._slots[longer] = self._slots.pop(longer)
        while len(self._slots) > 1 and len(self._used()) > self._capacity:
            del self._slots[next(iter(self._slots))]
        used = set(self._used().tolist())
        self._scores = {key: score for key, score in self._scores.items() if key >> 32 in used}
