"""Serves a critic: each request runs in a thread of its own, and the critic's generator batches them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from surefoot.core.options import DEFAULT_OPTIONS, ReadOptions
from surefoot.core.prompt import Prompt
from surefoot.core.protocols import Item
from surefoot.core.result import SolutionScore
from surefoot.errors import OptionError
from surefoot.scoring.critic_scorer import CriticScorer
from surefoot.serve.model_service import ServedModel

REQUESTS = 16
"""Requests that are judged at a time. Others wait."""


class CriticService(ServedModel):
    """A critic, whose generator runs in this process or on another server."""

    def __init__(self, critic: CriticScorer) -> None:
        super().__init__()
        self._critic = critic
        self._requests = ThreadPoolExecutor(REQUESTS, thread_name_prefix="surefoot-critic")

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
        """Finishes accepted requests, then ends the threads."""
        self._requests.shutdown()
        self._critic.close()
        super().close()

    async def score(self, items: Sequence[Item], options: ReadOptions = DEFAULT_OPTIONS) -> list[SolutionScore]:
        """Judges items. An item that cannot be judged has a reason instead."""
        stream = self._critic.score_stream(items, options, window=max(1, len(items)))
        return await asyncio.get_running_loop().run_in_executor(self._requests, lambda: list(stream))

    async def pool(self, inputs: Sequence[str | Sequence[int]]) -> tuple[list[Prompt], list[list[float]]]:
        """A critic reads no rendered prompts."""
        raise OptionError("A critic writes before it judges, so it has no prompt to pool. Use /v1/score.")
