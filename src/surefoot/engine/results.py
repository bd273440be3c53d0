"""What an engine yields after each pack. Each prompt of a call is completed exactly once."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from surefoot.core.prompt import Prompt

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class PackResult:
    """What one forward pass, or one request to a server, has computed."""

    tokens: int
    completed: tuple[tuple[int, Tensor], ...] = ()
    """The prompts that are now complete: the index of each, and the scores at its reads."""


PackResults = Generator[PackResult, None, None]
"""Computes one pack per result. The caller may pause between two packs, or close the generator to cancel the rest."""

Packs = Callable[[Sequence[Prompt]], PackResults]
"""Computes the scores at the reads of prompts, pack by pack."""


def without_reads(prompts: Sequence[Prompt]) -> PackResults:
    """Complete the prompts in which nothing is read. They need no computation."""
    import torch

    rows = [(index, torch.empty(0, device="cpu")) for index, prompt in enumerate(prompts) if not prompt.reads]
    if rows:
        yield PackResult(0, tuple(rows))


def collect(results: Iterable[PackResult]) -> list[Tensor]:
    """Compute all packs, and return the scores of the prompts in their order."""
    rows: dict[int, Tensor] = {}
    for result in results:
        rows.update(result.completed)
    return [rows[index] for index in range(len(rows))]
