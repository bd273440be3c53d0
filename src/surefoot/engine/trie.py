"""The trie of many prompts, cut into packs that one forward pass each can take.

The rule: a token that several prompts share is computed once. The trie's tokens stand in depth-first order, so that the
subtree of a token is the range from it to its `end`: token q sees token k exactly when `k <= q < end[k]`. That one
inequality is the whole attention mask. A pack holds the trie's tokens from `start` to `stop`; of the earlier ones it
needs only the ancestors of its first token, whose keys and values are inherited from the packs before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surefoot.core.prompt import Prompt

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Trie:
    """All prompts merged. Arrays are over the trie's tokens in depth-first order."""

    ids: Indices
    positions: Indices
    """Depth, which is the token's position in every prompt that holds it."""
    ends: Indices
    """One past the last token of the subtree."""
    reads: list[Indices]
    """For each prompt, in the order given, the tokens to read."""
    targets: list[Indices]
    """For each of those reads the vocabulary id that it asks for, -1 where it asks for none."""
    cuts: list[tuple[int, Indices]]
    """Where packs start, and the ancestors of the token there."""

    @property
    def asks(self) -> list[Indices]:
        """For each prompt what it asks for, as numbers that can be compared: see `as_asks`."""
        return [as_asks(tokens, targets) for tokens, targets in zip(self.reads, self.targets, strict=True)]

    def packs(self) -> Iterator[Pack]:
        """The packs, in the order in which they have to run."""
        wanted, targets = from_asks(np.unique(np.concatenate([*self.asks, np.empty(0, np.int64)])))
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
                keep=np.searchsorted(keys, next_path),
                reads=wanted[first:last],
                targets=targets[first:last],
            )


@dataclass(frozen=True)
class Pack:
    """What one forward pass computes."""

    ids: Indices
    positions: Indices
    keys: Indices
    """The tokens that are attended to, as places in the trie: first the inherited ones, then the pack's own."""
    ends: Indices
    """One past the last token that sees each key."""
    inherited: int
    keep: Indices
    """Which of the keys are needed later: those that the next pack inherits."""
    reads: Indices
    """The pack's tokens to read, as places in the trie; a token stands here once for every target."""
    targets: Indices
    """For each read the vocabulary id that it asks for, -1 where it asks for none."""

    @property
    def queries(self) -> Indices:
        """The pack's own tokens, as places in the trie."""
        return self.keys[self.inherited :]

    def mask(self) -> NDArray[np.bool_]:
        """Which key (column) each of the pack's own tokens (row) sees."""
        queries = self.queries[:, None]
        seen: NDArray[np.bool_] = (self.keys <= queries) & (queries < self.ends)
        return seen


def as_asks(tokens: Indices, targets: Indices) -> Indices:
    """A read and what it asks for as one number, larger for later tokens. Two prompts that share a token and go on
    differently ask it for different targets."""
    asks: Indices = (tokens << 32) | (targets + 1)
    return asks


def from_asks(asks: Indices) -> tuple[Indices, Indices]:
    """Tokens and targets again."""
    return asks >> 32, (asks & 0xFFFFFFFF) - 1


def build_trie(prompts: Sequence[Prompt], budget: int, *, fill: bool = False) -> Trie:
    """Merges prompts and cuts the trie into packs of at most `budget` tokens.

    A pack ends where a prompt ends; only a prompt with more new tokens than the budget is cut inside. With `fill` every
    pack but the last holds exactly `budget` tokens, wherever that cuts: for kernels that want one fixed shape.
    """
    order, arrays, shared = _sorted(prompts)
    lengths = np.array([len(array) for array in arrays], np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths - shared)])
    ids = np.empty(starts[-1], np.int64)
    positions = np.empty(starts[-1], np.int64)
    ends = np.full(starts[-1], starts[-1], np.int64)
    reads: list[Indices] = [np.empty(0, np.int64)] * len(prompts)
    targets = [np.array(prompt.targets or [-1] * len(prompt.reads), np.int64) for prompt in prompts]
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
            for at in range(start + room if fill else start, stop, budget):
                cuts.append((int(at), path[: common + at - start].copy()))
            room = cuts[-1][0] + budget - stop
        else:
            room -= new
    return Trie(ids, positions, ends, reads, targets, cuts)


def _sorted(prompts: Sequence[Prompt]) -> tuple[list[int], list[NDArray[np.uint32]], Indices]:
    """The prompts in lexicographic order, and how many leading tokens each shares with the one before it."""
    # Big-endian bytes compare like the numbers, and comparing bytes is the fastest comparison Python has.
    keys = [np.array(prompt.ids, dtype=">u4").tobytes() for prompt in prompts]
    order = sorted(range(len(prompts)), key=keys.__getitem__)
    arrays = [np.frombuffer(keys[number], dtype=">u4").astype(np.uint32) for number in order]
    shared = np.zeros(len(prompts), np.int64)
    for place in range(1, len(arrays)):
        before, array = arrays[place - 1], arrays[place]
        length = min(len(before), len(array))
        differs = before[:length] != array[:length]
        shared[place] = differs.argmax() if differs.any() else length
    return order, arrays, shared
