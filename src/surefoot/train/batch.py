"""Turn examples into batches of token ids.

Invariant: the examples and batches of an epoch depend only on the seed and the epoch number, so a run can resume at any
batch without a saved list. Padding comes after the tokens, where causal attention does not see it. An example ends at
its last target, as there is nothing to learn from the tokens after it. Examples of one question can be merged into one
row, a trie as in the engine, so that shared tokens are computed once.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from surefoot.core.prompt import Prompt
from surefoot.data.step_labels import WRONG_BELOW
from surefoot.engine.trie import Pack, build_trie
from surefoot.errors import InputError, OptionError
from surefoot.families import Family, PromptTokenizer
from surefoot.train.example import Example

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from surefoot.engine.segments import Segment

WINDOW = 50
"""Number of batches whose examples are sorted by length together: enough for little padding, few enough to mix well."""


@dataclass(frozen=True)
class Encoded:
    """The token ids of an example, or of several merged ones, and the positions that have a target."""

    ids: tuple[int, ...]
    reads: tuple[int, ...]
    targets: tuple[float, ...]
    source: str
    wrong: bool
    prefix: int = 0
    """Number of tokens of the question, which other examples may share."""
    spans: tuple[tuple[int, int], ...] = ()
    """For each read, or for none, the range of the tokens whose log-probabilities belong to it."""
    tree: Tree | None = None
    """The trie, if several examples were merged."""

    @property
    def question(self) -> tuple[int, ...]:
        """The tokens that all examples of one question share."""
        return self.ids[: self.prefix]


@dataclass(frozen=True)
class Tree:
    """A trie in depth-first order: token q attends to token k if `k <= q < ends[k]` (see the engine's trie)."""

    positions: tuple[int, ...]
    ends: tuple[int, ...]
    correct_ends: tuple[int, ...] = ()
    """The last tokens of the correct solutions."""
    predicted: np.ndarray | None = None
    """In place of `Encoded.spans`, as a path through the trie is no span: pairs of a read's index and a token."""


@dataclass(frozen=True)
class Batch:
    """Rows of equal length and the positions to read: `targets[i]` belongs to row `rows[i]`, column `columns[i]`."""

    ids: Tensor
    rows: Tensor
    columns: Tensor
    targets: Tensor
    positions: Tensor | None = None
    seen: Tensor | None = None
    """The attention mask if a row is a trie; None means causal attention."""
    segments: tuple[tuple[Segment, ...], ...] | None = None
    """The attention of every row in parts, for CPUs; `seen` is not needed then."""
    continuations: Tensor | None = None
    """Three rows: the row and column of a token of a correct solution, and the id of the token that follows it."""
    predicted: Tensor | None = None
    """Four rows: the row and column before a token, the token's id, and the index of the target it belongs to."""

    @property
    def tokens(self) -> int:
        """Number of positions to compute, including padding."""
        return self.ids.numel()

    def to(self, device: torch.device) -> Batch:
        """Return a copy of the batch on the device. Segments are for the CPU and stay there."""
        moved = {name: part.to(device) for name, part in vars(self).items() if hasattr(part, "to")}
        return replace(self, **moved)


@dataclass(frozen=True)
class Mixture:
    """How often examples are drawn per epoch."""

    weights: Mapping[str, float]
    """By source: how often each of its examples is drawn on average (default: 1)."""
    wrong_share: float | None = None
    """Target fraction of examples with an error in every source; None keeps the fraction of the data."""
    most_repeats: int = 4
    """Upper limit on how often an example is drawn to reach `wrong_share` (multiplied by its source's weight)."""

    def __post_init__(self) -> None:
        if self.wrong_share is not None and not 0.0 < self.wrong_share < 1.0:
            raise OptionError(f"wrong_share={self.wrong_share} must be between 0 and 1; 0.5 is an even split.")
        if self.most_repeats < 1:
            raise OptionError(f"most_repeats={self.most_repeats} must be at least 1.")


@dataclass(frozen=True)
class Shape:
    """The shape of batches."""

    tokens: int = 4096
    """Positions per batch, including padding."""
    multiple: int = 32
    """Rows are padded to a multiple of this: few distinct shapes are faster on CPUs and when compiling."""
    fixed_rows: bool = False
    """Whether batches are filled up with empty rows, so that the row length alone determines the shape."""

    def __post_init__(self) -> None:
        for name in ("tokens", "multiple"):
            if getattr(self, name) < 1:
                raise OptionError(f"{name}={getattr(self, name)} must be at least 1.")


def encode(
    examples: Iterable[Example], family: Family, tokenizer: PromptTokenizer, max_tokens: int, *, whole: bool = False
) -> tuple[list[Encoded], int]:
    """Encode the examples; also return how many were skipped because no target is within `max_tokens`.

    With `whole`, an example that loses even one target to the limit is skipped: evaluated without its incorrect step, a
    solution would count as correct.
    """
    encoded: list[Encoded] = []
    left_out = 0
    for example in examples:
        prompt = family.render(tokenizer, example.question, example.steps)
        ends = prompt.ends or range(1, len(prompt.reads) + 1)
        reads: list[int] = []
        targets: list[float] = []
        spans: list[tuple[int, int]] = []
        for (start, end), target in zip(pairwise((0, *ends)), example.targets, strict=True):
            *before, read = prompt.reads[start:end]
            if target is not None and read < max_tokens:
                spans.append((before[0] + 1, before[-1] + 2) if before else (read, read))
                reads.append(read)
                targets.append(target)
        if not reads or (whole and len(reads) < sum(target is not None for target in example.targets)):
            left_out += 1
            continue
        wrong = any(target < WRONG_BELOW for target in targets)
        ids = prompt.ids[: reads[-1] + 1]
        encoded.append(Encoded(ids, tuple(reads), tuple(targets), example.source, wrong, prompt.prefix, tuple(spans)))
    return encoded, left_out


def draw(examples: Sequence[Encoded], mixture: Mixture, seed: int, epoch: int) -> list[int]:
    """Return the indices of the epoch's examples, shuffled."""
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
    """Return the indices of the epoch's examples, with as many correct as incorrect solutions per question.

    A source's weight is how often each of its questions is drawn on average; the second draw of a question goes into a
    second list, and so on. Each draw takes at most `most_repeats` incorrect solutions, and at least one correct one if
    there is any.
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
        raise InputError(f"There is a weight for {', '.join(unknown)}, but no example from that source.")


def merge(examples: Sequence[Encoded], indices: Sequence[int], limit: int, seed: int, epoch: int) -> list[Encoded]:
    """Merge examples that share a question into rows of at most `limit` tokens; a longer example gets its own row."""
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
    """Build the trie of the examples. A position read by several of them gets the mean of their targets."""
    if len(examples) == 1:
        return examples[0]
    # Reading every token gives each example's path through the trie.
    trie = build_trie([Prompt(each.ids, tuple(range(len(each.ids))), each.prefix) for each in examples], sys.maxsize)
    paths = [path.tolist() for path in trie.reads]
    targets: dict[int, list[float]] = {}
    for example, path in zip(examples, paths, strict=True):
        for read, target in zip(example.reads, example.targets, strict=True):
            targets.setdefault(path[read], []).append(target)
    reads = sorted(targets)
    means = tuple(sum(targets[place]) / len(targets[place]) for place in reads)
    correct_ends = tuple(
        path[example.reads[-1]] for example, path in zip(examples, paths, strict=True) if not example.wrong
    )
    wrong = any(example.wrong for example in examples)
    index_of = {read: index for index, read in enumerate(reads)}
    predicted = {
        (index_of[path[read]], path[place])
        for example, path in zip(examples, paths, strict=True)
        for read, span in zip(example.reads, example.spans, strict=False)
        for place in range(*span)
    }
    pairs = np.array(sorted(predicted), np.int32).reshape(-1, 2)
    tree = Tree(tuple(trie.positions.tolist()), tuple(trie.ends.tolist()), correct_ends, pairs)
    return Encoded(tuple(trie.ids.tolist()), tuple(reads), means, "", wrong, examples[0].prefix, (), tree)


def _parents(positions: Sequence[int]) -> list[int]:
    """Return the token before each token of a trie, -1 for the first: the last one that is one level higher."""
    last_at: dict[int, int] = {-1: -1}
    parents = []
    for token, position in enumerate(positions):
        parents.append(last_at[position - 1])
        last_at[position] = token
    return parents


def _some(indices: list[int], count: float, rng: random.Random) -> list[int]:
    """Draw `count` indices, each equally often, give or take one."""
    if not indices:
        return []
    times, rest = divmod(round(count), len(indices))
    return indices * times + rng.sample(indices, rest)


def plan(examples: Sequence[Encoded], indices: Sequence[int], shape: Shape, seed: int, epoch: int) -> list[list[int]]:
    """Group an epoch's examples of similar length into batches within the token budget, in random order."""
    rng = random.Random(f"plan/{seed}/{epoch}")
    typical = sum(len(examples[at].ids) for at in indices) / max(1, len(indices))
    window = max(1, round(WINDOW * shape.tokens / max(1.0, typical)))
    batches: list[list[int]] = []
    for start in range(0, len(indices), window):
        batch: list[int] = []
        # Within one padded length the order stays random. Examples end at their error, so sorting by exact length would
        # cluster correct and incorrect ones, and every batch would be one-sided.
        for at in sorted(indices[start : start + window], key=lambda at: -_padded(len(examples[at].ids), shape)):
            if batch and (len(batch) + 1) * _padded(len(examples[batch[0]].ids), shape) > shape.tokens:
                batches.append(batch)
                batch = []
            batch.append(at)
        if batch:
            batches.append(batch)
    rng.shuffle(batches)
    return batches


def collate(
    examples: Sequence[Encoded], shape: Shape, pad: int = 0, *, language: bool = False, segments: bool = False
) -> Batch:
    """Build the tensors of one batch, with `language` also those for predicting the tokens of correct solutions.

    With `segments`, the attention is divided into parts instead of masked, which only CPUs compute faster.
    """
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
    predicted = _predicted(examples)
    if len(predicted):
        batch = replace(batch, predicted=torch.tensor(predicted, dtype=torch.long).T.contiguous())
    if language:
        batch = replace(batch, continuations=_continuations(examples))
    if segments:
        batch = replace(batch, segments=tuple(_divided(example) for example in examples))
    if all(example.tree is None for example in examples):
        return batch
    positions, ends = _trees(examples, *ids.shape)
    return replace(batch, positions=positions, seen=None if segments else _mask(ends))


def _predicted(examples: Sequence[Encoded]) -> list[tuple[int, int, int, int]]:
    found, first = [], 0
    for row, example in enumerate(examples):
        parents = _parents(_tree(example).positions)
        for index, token in _pairs(example):
            found.append((row, parents[token], example.ids[token], first + index))
        first += len(example.reads)
    return found


def _pairs(example: Encoded) -> Iterable[tuple[int, int]]:
    """The tokens whose log-probability belongs to a read, each with the index of the read."""
    if example.tree is not None and example.tree.predicted is not None:
        pairs: list[tuple[int, int]] = example.tree.predicted.tolist()
        return pairs
    return ((index, token) for index, span in enumerate(example.spans) for token in range(*span))


def _continuations(examples: Sequence[Encoded]) -> Tensor:
    """Return every token of a correct solution once, without the question: row, column of the token before it, id."""
    import torch

    found = []
    for row, example in enumerate(examples):
        last = len(example.ids) - 1
        parents = _parents(_tree(example).positions)
        ends = example.tree.correct_ends if example.tree else () if example.wrong else (last,)
        correct: set[int] = set()
        for end in ends:
            token = end
            while token >= example.prefix and token not in correct:
                correct.add(token)
                token = parents[token]
        found += [(row, parents[token], example.ids[token]) for token in sorted(correct)]
    return torch.tensor(found, dtype=torch.long).reshape(-1, 3).T.contiguous()


def _tree(example: Encoded) -> Tree:
    """The trie of a row; a single example is one without branches."""
    tokens = len(example.ids)
    return example.tree or Tree(tuple(range(tokens)), (tokens,) * tokens)


def _divided(example: Encoded) -> tuple[Segment, ...]:
    import torch

    from surefoot.engine.segments import divide

    tree, none = _tree(example), np.empty(0, np.int64)
    ids, positions, ends = (np.array(part) for part in (example.ids, tree.positions, tree.ends))
    return tuple(divide(Pack(ids, positions, np.arange(len(ids)), ends, 0, none, none, none), torch.float32))


def _trees(examples: Sequence[Encoded], count: int, length: int) -> tuple[Tensor, Tensor]:
    """Return the positions and the ends of all rows. Padding attends to itself only, so that no mask is empty."""
    import torch

    positions = torch.arange(length).repeat(count, 1)
    ends = positions + 1
    for row, example in enumerate(examples):
        tree, tokens = _tree(example), len(example.ids)
        positions[row, :tokens] = torch.tensor(tree.positions)
        ends[row, :tokens] = torch.tensor(tree.ends)
    return positions, ends


def _mask(ends: Tensor) -> Tensor:
    """The attention mask of rows whose tokens are attended to up to `ends`."""
    import torch

    places = torch.arange(ends.shape[1])
    seen = (places[None, None, :] <= places[None, :, None]) & (places[None, :, None] < ends[:, None, :])
    return seen[:, None]


def _padded(length: int, shape: Shape) -> int:
    return -(-length // shape.multiple) * shape.multiple
