"""What computes the prompts of a scorer: one engine, or two where a family compares two models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from surefoot.core.prompt import Prompt


class Engine(Protocol):
    """Computes the scores of prompts: a model in this process, or a server."""

    def scores(
        self,
        prompts: Sequence[Prompt],
        done: Callable[[int], None] | None = None,
        finished: Callable[[int, Tensor], None] | None = None,
    ) -> Sequence[Tensor]:
        """Returns the scores at the reads of each prompt.

        Calls `done` with the number of prompts just finished, and `finished` with the index and the scores of prompts
        that are known before all are.
        """


def join_columns(columns: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """Joins the numbers that several models give for the same prompts, one column per model."""
    if len(columns) == 1:
        return list(columns[0])
    return [torch.stack(rows, -1) for rows in zip(*columns, strict=True)]
