"""Serves a critic: requests are coroutines in an event loop of their own, so that a cancelled one stops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

from surefoot.core.options import DEFAULT_OPTIONS, ReadOptions
from surefoot.core.prompt import Prompt
from surefoot.core.protocols import Item
from surefoot.core.result import SolutionScore
from surefoot.errors import OptionError
from surefoot.scoring.critic_scorer import CriticScorer
from surefoot.serve.model_service import ServedModel
from surefoot.serve.scheduler import QueueFullError

REQUESTS = 16
"""Requests that are judged at a time."""
WAITING = 128
"""Requests that wait. Further ones are rejected."""


class CriticService(ServedModel):
    """A critic, whose generator runs in this process or on another server."""

    def __init__(self, critic: CriticScorer) -> None:
        super().__init__()
        self._critic = critic
        self._loop = asyncio.new_event_loop()
        self._limit = asyncio.Semaphore(REQUESTS)
        self._accepted = 0
        self._thread = threading.Thread(target=self._loop.run_forever, name="surefoot-critic", daemon=True)
        self._thread.start()

    @property
    def scorer(self) -> CriticScorer:
        """The critic as a scorer."""
        return self._critic

    @property
    def max_tokens(self) -> int:
        """The most tokens of one analysis."""
        return self._critic.critic.max_tokens

    @property
    def family(self) -> str:
        """The name of the critic."""
        return self._critic.critic.name

    @property
    def recommended(self) -> str | None:
        """How the makers aggregate step scores, if that is known."""
        return self._critic.critic.recommended

    def close(self) -> None:
        """Closes the generator and ends the threads."""
        asyncio.run_coroutine_threadsafe(self._critic.generator.close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        super().close()

    async def score(self, items: Sequence[Item], options: ReadOptions = DEFAULT_OPTIONS) -> list[SolutionScore]:
        """Judges items. An item that cannot be judged has a reason instead. Cancelling this stops the work."""
        if self._accepted >= REQUESTS + WAITING:
            raise QueueFullError(None)
        self._accepted += 1
        try:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._judge(items, options), self._loop))
        finally:
            self._accepted -= 1

    async def _judge(self, items: Sequence[Item], options: ReadOptions) -> list[SolutionScore]:
        async with self._limit:
            return await self._critic.score_async(items, options)

    async def pool(self, inputs: Sequence[str | Sequence[int]]) -> tuple[list[Prompt], list[list[float]]]:
        """A critic reads no rendered prompts."""
        raise OptionError("A critic writes before it judges, so it has no prompt to pool. Use /v1/score.")
