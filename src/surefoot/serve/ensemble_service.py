"""Serves an ensemble: every member has its own queue and engine, and a request waits for all of them.

Each member schedules its part of a request as it schedules a request for that member alone, so fairness and
batch-invariance are those of the members. Their results are combined item by item.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial

from surefoot.core.options import DEFAULT_OPTIONS, ReadOptions
from surefoot.core.prompt import Prompt
from surefoot.core.protocols import Item
from surefoot.core.result import SolutionScore
from surefoot.errors import OptionError
from surefoot.scoring.ensemble import Ensemble
from surefoot.serve.model_service import FEW_STEPS, ServedModel


class EnsembleService(ServedModel):
    """An ensemble whose members are served here."""

    def __init__(self, ensemble: Ensemble, members: Sequence[ServedModel]) -> None:
        super().__init__()
        self._ensemble = ensemble
        self._members = tuple(members)

    @property
    def scorer(self) -> Ensemble:
        """The ensemble as a scorer."""
        return self._ensemble

    @property
    def max_tokens(self) -> int:
        """The longest prompt that all members read."""
        return min(member.max_tokens for member in self._members)

    @property
    def family(self) -> str:
        """The word for an ensemble: its members may have several families."""
        return "ensemble"

    @property
    def recommended(self) -> str | None:
        """How the makers of all members aggregate step scores; None if they differ."""
        found = {member.recommended for member in self._members}
        return found.pop() if len(found) == 1 else None

    def close(self) -> None:
        """Finishes accepted requests of all members, then ends the threads."""
        for member in self._members:
            member.close()
        super().close()

    async def score(self, items: Sequence[Item], options: ReadOptions = DEFAULT_OPTIONS) -> list[SolutionScore]:
        """Scores items with every member at the same time.

        An error of one member, such as a full queue, is an error of the request; the work of the others is cancelled.
        """
        started = time.perf_counter()
        parts = [asyncio.ensure_future(member.score(items, options)) for member in self._members]
        try:
            results = await asyncio.gather(*parts)
        finally:
            for part in parts:
                part.cancel()  # has no effect on those that are done
        combine = partial(self._ensemble.combine, results, time.perf_counter() - started)
        steps = sum(len(result.steps) for result in results[0])
        return combine() if steps <= FEW_STEPS else await self.in_thread(combine)

    async def pool(self, inputs: Sequence[str | Sequence[int]]) -> tuple[list[Prompt], list[list[float]]]:
        """An ensemble has no prompts: each member renders its own."""
        raise OptionError("An ensemble reads no rendered prompts, because each member has its own. Use /v1/score.")
