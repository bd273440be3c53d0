"""The trie of many prompts, cut into packs that take one forward pass each.

A token that several prompts share is computed once. The trie's tokens are in depth-first order, so the subtree of a
token is the range from the token to its `end`, and token q attends to token k exactly if `k <= q < end[k]`. That
inequality is the whole attention mask. A pack holds the tokens from `start` to `stop`; of the earlier tokens it needs
only the ancestors of its first token, whose keys and values it inherits from the packs before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from surefoot.core.prompt import Prompt

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Trie:
    """Prompts merged by their common prefixes. Arrays are indexed by token, in depth-first order."""

    ids: Indices
    positions: Indices
    """Depth, which is the token's position in every prompt that contains it."""
    ends: Indices
    """One past the last token of the subtree."""
    reads: list[Indices]
    """The tokens to read, per prompt in the order given."""
    targets: list[Indices]
    """For each read, the vocabulary id whose log-probability it asks for, or -1."""
    cuts: list[tuple[int, Indices]]
    """The first token of each pack, and the ancestors of that token."""

    @cached_property
    def read_keys(self) -> list[Indices]:
        """The reads of each prompt as sortable numbers: see `encode_reads`."""
        return [encode_reads(tokens, targets) for tokens, targets in zip(self.reads, self.targets, strict=True)]

    def packs(self) -> Iterator[Pack]:
        """The packs, in the order in which they must run."""
        wanted, targets = decode_reads(np.unique(np.concatenate([*self.read_keys, np.empty(0, np.int64)])))
        starts = [start for start, _ in self.cuts] + [len(self.ids)]
        paths = [path for _, path in self.cuts] + [np.empty(0, np.int64)]
        for start, stop, path, next_path in zip(starts, starts[1:], paths, paths[1:], strict=False):
            first, last = np.searchsorted(wanted, (start, stop))
            keys = np.concatenate([path, np.arange(start, stop)])
            yield Pack(
                ids=self.ids[start:stop],
                positions=self.positions[start:stop],
                keys=keys,
                ends=self.ends[keys],
                inherited=len(path),
                kept=np.searchsorted(keys, next_path),
                reads=wanted[first:last],
                targets=targets[first:last],
            )


@dataclass(frozen=True)
class Pack:
    """The tokens of one forward pass."""

    ids: Indices
    positions: Indices
    keys: Indices
    """The trie indices of the tokens that are attended to: the inherited ones, then the pack's own."""
    ends: Indices
    """One past the last token that attends to each key."""
    inherited: int
    """How many of the keys come from earlier packs."""
    kept: Indices
    """Which of the keys are needed later, namely those that the next pack inherits."""
    reads: Indices
    """The trie indices of the pack's tokens to read. A token occurs once per target."""
    targets: Indices
    """For each read, the vocabulary id whose log-probability it asks for, or -1."""

    @property
    def queries(self) -> Indices:
        """The trie indices of the pack's own tokens."""
        return self.keys[self.inherited :]

    def mask(self) -> NDArray[np.bool_]:
        """Which keys (columns) each of the pack's own tokens (rows) attends to."""
        queries = self.queries[:, None]
        visible: NDArray[np.bool_] = (self.keys <= queries) & (queries < self.ends)
        return visible


def encode_reads(tokens: Indices, targets: Indices) -> Indices:
    """Encode each read and its target as one number that sorts by token.

    Prompts that diverge after a shared token read that token with different targets.
    """
    keys: Indices = (tokens << 32) | (targets + 1)
    return keys


def decode_reads(keys: Indices) -> tuple[Indices, Indices]:
    """The inverse of `encode_reads`: tokens and targets."""
    return keys >> 32, (keys & 0xFFFFFFFF) - 1


def read_targets(prompt: Prompt) -> Indices:
    """The target of each read of a prompt, -1 if it has none."""
    return np.array(prompt.targets or [-1] * len(prompt.reads), np.int64)


def build_trie(prompts: Sequence[Prompt], budget: int, *, fixed_size: bool = False) -> Trie:
    """Merge prompts and cut the trie into packs of at most `budget` tokens.

    A pack ends where a prompt ends; only a prompt with more new tokens than the budget is cut inside. With
    `fixed_size`, every pack but the last holds exactly `budget` tokens, wherever that cuts: for compiled kernels, which
    want one fixed shape.
    """
    order, arrays, shared = _sorted(prompts)
    lengths = np.array([len(array) for array in arrays], np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths - shared)])
    ids = np.empty(starts[-1], np.int64)
    positions = np.empty(starts[-1], np.int64)
    ends = np.full(starts[-1], starts[-1], np.int64)
    reads: list[Indices] = [np.empty(0, np.int64)] * len(prompts)
    cuts: list[tuple[int, Indices]] = []
    path = np.empty(lengths.max(initial=0), np.int64)
    depth, room = 0, 0
    for number, array, common, start, stop in zip(order, arrays, shared, starts, starts[1:], strict=False):
        ends[path[common:depth]] = start
        depth, new = len(array), stop - start
        ids[start:stop] = array[common:]
        positions[start:stop] = np.arange(common, depth)
        path[common:depth] = np.arange(start, stop)
        reads[number] = path[list(prompts[number].reads)]
        if new > room:
            for at in range(start + room if fixed_size else start, stop, budget):
                cuts.append((int(at), path[: common + at - start].copy()))
            room = cuts[-1][0] + budget - stop
        else:
            room -= new
    return Trie(ids, positions, ends, reads, [read_targets(prompt) for prompt in prompts], cuts)


def _sorted(prompts: Sequence[Prompt]) -> tuple[list[int], list[NDArray[np.uint32]], Indices]:
    """The prompts in lexicographic order, and how many leading tokens each shares with its predecessor."""
    # Big-endian bytes sort like the numbers, and comparing bytes is the fastest comparison in Python.
    keys = [np.array(prompt.ids, dtype=">u4").tobytes() for prompt in prompts]
    order = sorted(range(len(prompts)), key=keys.__getitem__)
    arrays = [np.frombuffer(keys[number], dtype=">u4").astype(np.uint32) for number in order]
    shared = np.zeros(len(prompts), np.int64)
    for index in range(1, len(arrays)):
        before, array = arrays[index - 1], arrays[index]
        length = min(len(before), len(array))
        differs = before[:length] != array[:length]
        shared[index] = differs.argmax() if differs.any() else length
    return order, arrays, shared
