"""From examples to batches of token ids.

The rule: which examples an epoch holds, and in which batches, follows from the seed and the epoch's number alone; so a
run can go on from any batch without having kept a list. Padding stands behind the tokens, where causal attention never
looks. An example ends with its last target: what comes behind cannot be learnt from. Examples of one question can be
merged into one row, a trie as in the engine: what they share is computed once, and is no difference between them.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from surefoot.core.prompt import Prompt
from surefoot.engine.trie import build_trie
from surefoot.errors import InputError, OptionError
from surefoot.families import Family, PromptTokenizer
from surefoot.train.example import WRONG_BELOW, Example

if TYPE_CHECKING:
    import torch
    from torch import Tensor

WINDOW = 50
"""Batches whose examples are sorted by length together: enough for little padding, few enough to stay well mixed."""


@dataclass(frozen=True)
class Encoded:
    """An example as the model reads it: ids, and the places that have a target. Or several of one question, merged."""

    ids: tuple[int, ...]
    reads: tuple[int, ...]
    targets: tuple[float, ...]
    source: str
    wrong: bool
    prefix: int = 0
    """Tokens of the question, which other examples may share."""
    tree: Tree | None = None
    """How the tokens hang together, if several examples were merged."""

    @property
    def question(self) -> tuple[int, ...]:
        """What two examples of one question have in common."""
        return self.ids[: self.prefix]


@dataclass(frozen=True)
class Tree:
    """A trie in depth-first order: token q sees token k when `k <= q < ends[k]` (see `engine.pack`)."""

    positions: tuple[int, ...]
    ends: tuple[int, ...]


@dataclass(frozen=True)
class Batch:
    """Rows of equal length, and where to read in them: `rows[i]`, `columns[i]` has `targets[i]`."""

    ids: Tensor
    rows: Tensor
    columns: Tensor
    targets: Tensor
    positions: Tensor | None = None
    seen: Tensor | None = None
    """Which token sees which, where a row is a tree; without it each sees all before it."""

    @property
    def tokens(self) -> int:
        """Positions to compute, padding included."""
        return self.ids.numel()

    def to(self, device: torch.device) -> Batch:
        """The same, there."""
        return Batch(
            *(None if part is None else part.to(device) for part in vars(self).values())  # type: ignore[arg-type]
        )


@dataclass(frozen=True)
class Mixture:
    """How often examples are drawn in an epoch."""

    weights: Mapping[str, float]
    """By source: how often each of its examples is drawn on average; 1 where nothing is said."""
    wrong_share: float | None = None
    """The share of examples with an error that is aimed at in every source; None leaves it as it is."""
    most_repeats: int = 4
    """No example is drawn more often than this (times its source's weight), whatever the share asks for."""

    def __post_init__(self) -> None:
        if self.wrong_share is not None and not 0.0 < self.wrong_share < 1.0:
            raise OptionError(f"wrong_share={self.wrong_share} must lie between 0 and 1: 0.5 is as many as right ones.")
        if self.most_repeats < 1:
            raise OptionError(f"most_repeats={self.most_repeats} draws nothing. Give a number above 0.")


@dataclass(frozen=True)
class Shape:
    """How examples are laid out."""

    tokens: int = 4096
    """Positions in a batch, padding included."""
    multiple: int = 32
    """Rows are padded to a multiple of this: few different shapes are faster on CPUs, and compile."""
    fixed_rows: bool = False
    """Whether empty rows fill a batch up, so that its length alone decides its shape."""

    def __post_init__(self) -> None:
        for name in ("tokens", "multiple"):
            if getattr(self, name) < 1:
                raise OptionError(f"{name}={getattr(self, name)} leaves no room for a row. Give a number above 0.")


def encode(
    examples: Iterable[Example], family: Family, tokenizer: PromptTokenizer, max_tokens: int, *, whole: bool = False
) -> tuple[list[Encoded], int]:
    """The examples as ids, and how many were left out because no target lies within `max_tokens`.

    With `whole`, an example that loses a single target to the limit is left out: measured without its wrong step, a
    solution would count as a right one.
    """
    encoded: list[Encoded] = []
    left_out = 0
    for example in examples:
        prompt = family.render(tokenizer, example.question, example.steps)
        pairs = [
            (read, target)
            for read, target in zip(prompt.reads, example.targets, strict=True)
            if target is not None and read < max_tokens
        ]
        if not pairs or (whole and len(pairs) < sum(target is not None for target in example.targets)):
            left_out += 1
            continue
        reads, targets = zip(*pairs, strict=True)
        wrong = any(target < WRONG_BELOW for target in targets)
        ids = prompt.ids[: reads[-1] + 1]
        encoded.append(Encoded(ids, reads, targets, example.source, wrong, prompt.prefix))
    return encoded, left_out


def draw(examples: Sequence[Encoded], mixture: Mixture, seed: int, epoch: int) -> list[int]:
    """The indices of the examples that this epoch holds, shuffled."""
    _check_weights(examples, mixture)
    rng = random.Random(f"draw/{seed}/{epoch}")
    groups: dict[str, tuple[list[int], list[int]]] = {}
    for at, example in enumerate(examples):
        groups.setdefault(example.source, ([], []))[example.wrong].append(at)
    drawn: list[int] = []
    for source, (right, wrong) in sorted(groups.items()):
        weight = mixture.weights.get(source, 1.0)
        size = weight * (len(right) + len(wrong))
        share = len(wrong) / (len(right) + len(wrong)) if mixture.wrong_share is None else mixture.wrong_share
        most = mixture.most_repeats * weight
        drawn += _some(right, min(size * (1 - share), most * len(right)), rng)
        drawn += _some(wrong, min(size * share, most * len(wrong)), rng)
    rng.shuffle(drawn)
    return drawn


def draw_questions(examples: Sequence[Encoded], mixture: Mixture, seed: int, epoch: int) -> list[list[int]]:
    """The indices of the examples that this epoch holds: by question, its wrong solutions and as many right ones.

    A source's weight is how often each of its questions comes, on average; what comes a second time stands in a second
    list, and so on. Of a question there are at most `most_repeats` wrong solutions at a time, and at least one right
    one where there is any.
    """
    _check_weights(examples, mixture)
    rng = random.Random(f"questions/{seed}/{epoch}")
    groups: dict[tuple[str, tuple[int, ...]], tuple[list[int], list[int]]] = {}
    for at, example in enumerate(examples):
        groups.setdefault((example.source, example.question), ([], []))[example.wrong].append(at)
    layers: list[list[int]] = []
    for (source, _), (right, wrong) in groups.items():
        times, part = divmod(mixture.weights.get(source, 1.0), 1)
        for time in range(int(times) + (rng.random() < part)):
            some = rng.sample(wrong, min(len(wrong), mixture.most_repeats))
            if time == len(layers):
                layers.append([])
            layers[time] += some + rng.sample(right, min(len(right), max(1, len(some))))
    return layers


def _check_weights(examples: Sequence[Encoded], mixture: Mixture) -> None:
    unknown = sorted(set(mixture.weights) - {example.source for example in examples})
    if unknown:
        raise InputError(f"A weight is given for {', '.join(unknown)}, of which there is no example.")


def merge(examples: Sequence[Encoded], indices: Sequence[int], limit: int, seed: int, epoch: int) -> list[Encoded]:
    """Rows of examples that share a question, each of at most `limit` tokens unless one alone has more."""
    rng = random.Random(f"merge/{seed}/{epoch}")
    groups: dict[tuple[int, ...], list[Encoded]] = {}
    for at in indices:
        groups.setdefault(examples[at].question, []).append(examples[at])
    rows: list[Encoded] = []
    for group in groups.values():
        rng.shuffle(group)
        waiting: list[Encoded] = []
        size = 0
        for example in group:
            new = len(example.ids) - example.prefix
            if waiting and size + new > limit:
                rows.append(_merged(waiting))
                waiting, size = [], 0
            size += new if waiting else len(example.ids)
            waiting.append(example)
        rows.append(_merged(waiting))
    return rows


def _merged(examples: Sequence[Encoded]) -> Encoded:
    """The trie of the examples. A place that several of them read has the mean of their targets."""
    if len(examples) == 1:
        return examples[0]
    trie = build_trie([Prompt(example.ids, example.reads, example.prefix) for example in examples], sys.maxsize)
    targets: dict[int, list[float]] = {}
    for example, places in zip(examples, trie.reads, strict=True):
        for place, target in zip(places.tolist(), example.targets, strict=True):
            targets.setdefault(place, []).append(target)
    reads = sorted(targets)
    means = tuple(sum(targets[place]) / len(targets[place]) for place in reads)
    tree = Tree(tuple(trie.positions.tolist()), tuple(trie.ends.tolist()))
    wrong = any(example.wrong for example in examples)
    return Encoded(tuple(trie.ids.tolist()), tuple(reads), means, "", wrong, examples[0].prefix, tree)


def _some(indices: list[int], count: float, rng: random.Random) -> list[int]:
    """So many of them, each as often as every other, give or take one."""
    if not indices:
        return []
    times, rest = divmod(round(count), len(indices))
    return indices * times + rng.sample(indices, rest)


def plan(examples: Sequence[Encoded], indices: Sequence[int], shape: Shape, seed: int, epoch: int) -> list[list[int]]:
    """The batches of an epoch: examples of like length together, within the budget, in random order."""
    rng = random.Random(f"plan/{seed}/{epoch}")
    typical = sum(len(examples[at].ids) for at in indices) / max(1, len(indices))
    window = max(1, round(WINDOW * shape.tokens / max(1.0, typical)))
    batches: list[list[int]] = []
    for start in range(0, len(indices), window):
        batch: list[int] = []
        # Within one padded length the order stays random: examples end at their error, so among the sorted ones right
        # and wrong would come in turns, and every batch would pull to one side.
        for at in sorted(indices[start : start + window], key=lambda at: -_padded(len(examples[at].ids), shape)):
            if batch and (len(batch) + 1) * _padded(len(examples[batch[0]].ids), shape) > shape.tokens:
                batches.append(batch)
                batch = []
            batch.append(at)
        if batch:
            batches.append(batch)
    rng.shuffle(batches)
    return batches


def collate(examples: Sequence[Encoded], shape: Shape, pad: int = 0) -> Batch:
    """The tensors of one batch."""
    import torch

    length = _padded(max(len(example.ids) for example in examples), shape)
    count = max(len(examples), shape.tokens // length) if shape.fixed_rows else len(examples)
    ids = torch.full((count, length), pad, dtype=torch.long)
    for row, example in zip(ids, examples, strict=False):
        row[: len(example.ids)] = torch.tensor(example.ids)
    places = [(row, read) for row, example in enumerate(examples) for read in example.reads]
    rows, columns = torch.tensor(places, dtype=torch.long).T
    targets = torch.tensor([target for example in examples for target in example.targets], dtype=torch.float32)
    batch = Batch(ids, rows.contiguous(), columns.contiguous(), targets)
    return (
        batch if all(example.tree is None for example in examples) else replace(batch, **_trees(examples, *ids.shape))
    )


def _trees(examples: Sequence[Encoded], count: int, length: int) -> dict[str, Tensor]:
    """Positions and what is seen; padding sees itself alone, so that no row of the mask is empty."""
    import torch

    places = torch.arange(length)
    positions = places.repeat(count, 1)
    ends = positions + 1
    for row, example in enumerate(examples):
        tokens = len(example.ids)
        tree = example.tree or Tree(tuple(range(tokens)), (tokens,) * tokens)
        positions[row, :tokens] = torch.tensor(tree.positions)
        ends[row, :tokens] = torch.tensor(tree.ends)
    seen = (places[None, None, :] <= places[None, :, None]) & (places[None, :, None] < ends[:, None, :])
    return {"positions": positions, "seen": seen[:, None]}


def _padded(length: int, shape: Shape) -> int:
    return -(-length // shape.multiple) * shape.multiple
