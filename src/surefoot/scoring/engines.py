"""What computes the prompts of a scorer: one engine, or two where a family compares two models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from surefoot.core.prompt import Prompt
from surefoot.engine.results import PackResult, PackResults


class Engine(Protocol):
    """Computes the scores of prompts: a model in this process, or a server."""

    def packs(self, prompts: Sequence[Prompt]) -> PackResults:
        """Computes the scores at the reads of each prompt, and yields after each pack.

        Each prompt is completed once, those without reads too. Closing the generator cancels the rest.
        """


def joined_packs(engines: Sequence[Engine], prompts: Sequence[Prompt]) -> PackResults:
    """Computes prompts with one engine after the other. The last one completes them, with one column per engine.

    A token counts once, although every engine computes it.
    """
    *others, last = engines
    columns: list[dict[int, Tensor]] = []
    for engine in others:
        rows: dict[int, Tensor] = {}
        for result in engine.packs(prompts):
            rows.update(result.completed)
            yield PackResult(result.tokens // len(engines))
        columns.append(rows)
    for result in last.packs(prompts):
        yield PackResult(
            result.tokens // len(engines),
            tuple((at, join_columns([*([rows[at]] for rows in columns), [row]])[0]) for at, row in result.completed),
        )


def join_columns(columns: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """Joins the numbers that several models give for the same prompts, one column per model."""
    if len(columns) == 1:
        return list(columns[0])
    return [torch.stack(rows, -1) for rows in zip(*columns, strict=True)]
