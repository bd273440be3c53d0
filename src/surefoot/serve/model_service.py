"""A model that many callers share: preparing, queueing, answering.

The rule: the event loop only passes things on. Text is split and encoded in threads, a few items at a time, so that
neither a large request nor a large text holds up others; the engine has its own thread (see `scheduler.py`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from surefoot.core.options import DEFAULT_OPTIONS, ReadOptions
from surefoot.core.prompt import Prompt
from surefoot.core.protocols import Item
from surefoot.core.result import SolutionScore
from surefoot.data.batching import bounded_batches
from surefoot.errors import InputError, SurefootError, UnreachableError
from surefoot.scoring.pipeline import NOT_COMPUTED, Prepared, PreparedSolution, prompts_of
from surefoot.scoring.scorer import Scorer
from surefoot.serve.scheduler import Row, Scheduler, Slice
from surefoot.serve.settings import Settings

logger = logging.getLogger("surefoot.serve")

CHUNK_ITEMS = 32
CHUNK_CHARS = 32_768
RECIPES = 4
"""Recipes that may run at a time: comparing answers takes processes of their own, and not many (`math_verify_pool`)."""
FEW_STEPS = 64
"""Steps whose results are made on the spot: handing them to a thread would take longer."""

Answer = TypeVar("Answer")


class Service:
    """One loaded model with its queue."""

    def __init__(self, scorer: Scorer, settings: Settings, observe: Callable[[Slice], None] | None = None) -> None:
        self.scorer = scorer
        self._pipeline = scorer.pipeline
        self.scheduler = Scheduler(
            scorer.compute,
            name=scorer.name,
            linger=settings.linger,
            slice_seconds=settings.slice_seconds,
            queue_tokens=settings.queue_tokens,
            observe=observe,
        )
        self._max_item_chars = settings.max_item_chars
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="surefoot-prepare")
        self._recipes = ThreadPoolExecutor(RECIPES, thread_name_prefix="surefoot-reward")

    def close(self) -> None:
        """Finishes what was accepted, then ends the threads."""
        self.scheduler.close()
        self._recipes.shutdown()
        self._threads.shutdown()

    async def score(self, items: Sequence[Item], options: ReadOptions = DEFAULT_OPTIONS) -> list[SolutionScore]:
        """Scores items like `Scorer.score_many`; an item that cannot be scored has a reason instead."""
        started = time.perf_counter()
        prepared: list[Prepared] = []
        with self.scheduler.expecting():
            most = min(CHUNK_CHARS, self._max_item_chars)
            for chunk in bounded_batches(items, _chars, max_weight=most, max_items=CHUNK_ITEMS):
                first = len(prepared)
                prepare = partial(self._pipeline.prepare, chunk, options, first=first, keep_going=True)
                too_long = self._too_long(chunk, first)
                prepared += [too_long] if too_long else await self.in_thread(prepare)
        rows = await self.compute(prompts_of(prepared))
        finish = partial(self._pipeline.finish, prepared, rows, time.perf_counter() - started)
        steps = sum(len(each.solution.steps) for each in prepared if isinstance(each, PreparedSolution))
        return finish() if steps <= FEW_STEPS else await self.in_thread(finish)

    def _too_long(self, chunk: list[Item], number: int) -> InputError | None:
        """Whether this is a text that would take long to split and to encode, whatever the model reads of it."""
        size = _chars(chunk[0])
        if len(chunk) > 1 or size <= self._max_item_chars:
            return None
        return InputError(
            f"Item {number} has {size} characters, and this service reads at most {self._max_item_chars}. Shorten it."
        )

    async def compute(self, prompts: Sequence[Prompt]) -> list[Row]:
        """The numbers of the prompts. Cancelling this gives the place in the queue to others."""
        ticket = self.scheduler.submit(prompts)
        return _checked(await asyncio.wrap_future(ticket.future))

    async def pool(self, inputs: Sequence[str | Sequence[int]]) -> tuple[list[Prompt], list[list[float]]]:
        """Prompts that were rendered elsewhere, and their numbers. All of them, or an error that names the first."""
        prompts: list[Prompt] = []
        for number, given in enumerate(inputs):
            try:
                prompt = await self.in_thread(partial(self._pipeline.parse_prompt, given))
            except InputError as error:
                raise InputError(f"Input {number}: {error}") from error
            if len(prompt.ids) > self.scorer.max_tokens:
                raise InputError(
                    f"Input {number} has {len(prompt.ids)} tokens; the limit is {self.scorer.max_tokens}. Shorten it."
                )
            prompts.append(prompt)
        rows = await self.compute([prompt.cut(len(prompt.ids)) for prompt in prompts])
        for row in rows:
            if isinstance(row, Exception):
                raise SurefootError(NOT_COMPUTED) from row
        return prompts, [row for row in rows if isinstance(row, list)]

    async def in_thread(self, work: Callable[[], Answer]) -> Answer:
        """Runs work that takes time, and is not the engine's, outside of the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def in_turn(self, recipe: Callable[[], Answer]) -> Answer:
        """Runs a recipe. It may compare answers for seconds, so it has threads where it is in nobody else's way."""
        return await asyncio.get_running_loop().run_in_executor(self._recipes, recipe)


def _checked(rows: list[Row]) -> list[Row]:
    """The rows, unless the engine was not there to compute them."""
    for row in rows:
        if isinstance(row, UnreachableError):
            raise row
    return rows


def _chars(item: Item) -> int:
    return len(item[0]) + (len(item[1]) if isinstance(item[1], str) else sum(map(len, item[1])))
