"""Divide the attention of a pack into rectangles of rows and keys, to leave out most pairs that do not attend.

A dense mask over a pack computes the attention of every token to every other branch and then discards it. A segment is
a range of rows with only the keys that at least one of them attends to. Every pair that attends is in one segment.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from surefoot.engine.trie import Indices, Pack

LONGEST = 128
"""Rows per segment of a branch: later rows of a longer one would make earlier ones compute keys they do not see."""
OVERHEAD = 4096
"""What calling the kernel once more costs, in pairs of a row and a key."""


@dataclass(frozen=True)
class Segment:
    """Rows of a pack and the keys they attend to."""

    rows: slice
    keys: Tensor | None
    """Indices of the keys; None means all."""
    mask: Tensor | None
    """An additive mask, 0 or minus infinity; None if all rows attend to all these keys."""


def divide(pack: Pack, dtype: torch.dtype) -> list[Segment]:
    """Return the segments of a pack, in the order of their rows, with masks of dtype `dtype`."""
    visible = pack.mask()
    return [_segment(visible, start, stop, keys, dtype) for start, stop, keys in _rectangles(pack, visible)]


def _rectangles(pack: Pack, visible: NDArray[np.bool_]) -> list[tuple[int, int, NDArray[np.bool_]]]:
    """Join neighbouring runs as long as that costs less than another call of the kernel."""
    joined: list[tuple[int, int, NDArray[np.bool_]]] = []
    starts = _run_starts(pack).tolist()
    for start, stop in zip(starts, [*starts[1:], len(pack.ids)], strict=True):
        keys = visible[stop - 1]  # earlier rows of a run attend to a part of them
        if joined:
            first, _, others = joined[-1]
            both = others | keys
            apart = (start - first) * others.sum() + (stop - start) * keys.sum() + OVERHEAD
            if (stop - first) * both.sum() <= apart:
                joined[-1] = (first, stop, both)
                continue
        joined.append((start, stop, keys))
    return joined


def _run_starts(pack: Pack) -> Indices:
    """The first rows of runs: rows of which each is an ancestor of the next, at most `LONGEST`."""
    queries = pack.queries
    breaks = np.flatnonzero(queries[1:] >= pack.ends[pack.inherited : -1]) + 1
    bounds = [0, *breaks.tolist(), len(queries)]
    cuts = [np.arange(start, stop, LONGEST) for start, stop in pairwise(bounds)]
    starts: Indices = np.concatenate(cuts)
    return starts


def _segment(visible: NDArray[np.bool_], start: int, stop: int, keys: NDArray[np.bool_], dtype: torch.dtype) -> Segment:
    seen = visible[start:stop][:, keys]
    mask = None
    if not seen.all():
        mask = torch.zeros(seen.shape, dtype=dtype).masked_fill_(torch.from_numpy(~seen), float("-inf"))
    indices = None if keys.all() else torch.from_numpy(np.flatnonzero(keys))
    return Segment(slice(start, stop), indices, mask)
