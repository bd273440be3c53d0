"""Serves one model to many requests: prepare, queue, finish. `ensemble_service.py` serves several as one.

The event loop never does the work itself. Threads split and encode text, a few items at a time, so that neither a large
request nor a long text blocks others; the engine has its own thread (see `scheduler.py`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from surefoot.core.options import DEFAULT_OPTIONS, ReadOptions
from surefoot.core.prompt import Prompt
from surefoot.core.protocols import Item, StepScorer
from surefoot.core.result import SolutionScore
from surefoot.data.batching import bounded_batches
from surefoot.errors import InputError, SurefootError, UnreachableError
from surefoot.scoring.pipeline import NOT_COMPUTED, Prepared, PreparedSolution, prompts_of
from surefoot.scoring.scorer import Scorer
from surefoot.serve.fair_queue import Row
from surefoot.serve.running_batch import Batch
from surefoot.serve.scheduler import Scheduler
from surefoot.serve.settings import Settings

logger = logging.getLogger("surefoot.serve")

CHUNK_ITEMS = 32
CHUNK_CHARS = 32_768
RECIPE_THREADS = 4
"""Recipes that run concurrently. Comparing answers takes separate processes, and there are few (`math_verify_pool`)."""
FEW_STEPS = 64
"""Results with at most this many steps are built on the event loop: a thread would take longer."""

T = TypeVar("T")


class ServedModel(ABC):
    """What requests can name: a model, or an ensemble of them."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="surefoot-prepare")
        self._recipes = ThreadPoolExecutor(RECIPE_THREADS, thread_name_prefix="surefoot-reward")

    @property
    @abstractmethod
    def scorer(self) -> StepScorer:
        """The model as a scorer."""

    @property
    @abstractmethod
    def max_tokens(self) -> int:
        """The longest prompt."""

    @property
    @abstractmethod
    def family(self) -> str:
        """The name of the family."""

    @property
    @abstractmethod
    def recommended(self) -> str | None:
        """How the makers aggregate step scores, if that is known."""

    @abstractmethod
    async def score(self, items: Sequence[Item], options: ReadOptions = DEFAULT_OPTIONS) -> list[SolutionScore]:
        """Scores items like `StepScorer.score_many`; an item that cannot be scored has a reason instead."""

    @abstractmethod
    async def pool(self, inputs: Sequence[str | Sequence[int]]) -> tuple[list[Prompt], list[list[float]]]:
        """Parses and computes prompts that the client has rendered. Raises an error for the first that fails."""

    def close(self) -> None:
        """Finishes accepted requests, then ends the threads."""
        self._recipes.shutdown()
        self._threads.shutdown()

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Runs CPU-bound work outside the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def run_recipe(self, recipe: Callable[[], T]) -> T:
        """Runs a recipe in a thread pool of its own: comparing answers may take seconds and must not block scores."""
        return await asyncio.get_running_loop().run_in_executor(self._recipes, recipe)


class ModelService(ServedModel):
    """A loaded model with its queue."""

    def __init__(self, scorer: Scorer, settings: Settings, observe: Callable[[Batch], None] | None = None) -> None:
        super().__init__()
        self._scorer = scorer
        self._pipeline = scorer.pipeline
        self.scheduler = Scheduler(
            scorer.packs,
            name=scorer.name,
            linger=settings.linger,
            batch_seconds=settings.batch_seconds,
            queue_tokens=settings.queue_tokens,
            observe=observe,
        )
        self._max_item_chars = settings.max_item_chars

    @property
    def scorer(self) -> Scorer:
        """The model as a scorer."""
        return self._scorer

    @property
    def max_tokens(self) -> int:
        """The longest prompt."""
        return self._scorer.max_tokens

    @property
    def family(self) -> str:
        """The name of the family."""
        return self._scorer.family.name

    @property
    def recommended(self) -> str | None:
        """How the makers aggregate step scores, if that is known."""
        return self._pipeline.recommended

    def close(self) -> None:
        """Finishes accepted requests, then ends the threads."""
        self.scheduler.close()
        super().close()

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
        """The error for an item so long that splitting and encoding it would block others."""
        size = _chars(chunk[0])
        if len(chunk) > 1 or size <= self._max_item_chars:
            return None
        return InputError(
            f"Item {number} has {size} characters; the limit of this service is {self._max_item_chars}. Shorten it."
        )

    async def compute(self, prompts: Sequence[Prompt]) -> list[Row]:
        """Computes prompts and returns their rows in the same order. Cancelling this cancels them."""
        rows = await asyncio.wrap_future(self.scheduler.submit(prompts).future)
        for row in rows:
            if isinstance(row, UnreachableError):
                raise row
        return rows

    async def pool(self, inputs: Sequence[str | Sequence[int]]) -> tuple[list[Prompt], list[list[float]]]:
        """Parses and computes prompts that the client has rendered. Raises an error for the first that fails."""
        prompts: list[Prompt] = []
        for number, given in enumerate(inputs):
            try:
                prompt = await self.in_thread(partial(self._pipeline.parse_prompt, given))
            except InputError as error:
                raise InputError(f"Input {number}: {error}") from error
            if len(prompt.ids) > self.max_tokens:
                raise InputError(
                    f"Input {number} has {len(prompt.ids)} tokens; the limit is {self.max_tokens}. Shorten it."
                )
            prompts.append(prompt)
        readable = [prompt.cut(len(prompt.ids)) for prompt in prompts]
        scores = []
        for prompt, row in zip(readable, await self.compute(readable), strict=True):
            if isinstance(row, Exception):
                raise SurefootError(NOT_COMPUTED) from row
            scores.append([value.score for value in self._pipeline.step_values(prompt, row)])
        return prompts, scores


def _chars(item: Item) -> int:
    return len(item[0]) + (len(item[1]) if isinstance(item[1], str) else sum(map(len, item[1])))
