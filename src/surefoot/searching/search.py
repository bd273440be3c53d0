"""`surefoot.search`: finds the answer to one question with a generator and a PRM."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from surefoot.core.event_loop import run_async
from surefoot.core.generation import Generator
from surefoot.core.options import DEFAULT_OPTIONS, ReadOptions
from surefoot.core.search_result import SearchResult
from surefoot.errors import OptionError
from surefoot.scoring.load_options import DEFAULT_MODEL
from surefoot.scoring.scorer_like import ScorerLike, as_scorer
from surefoot.searching.events import Listener, SearchEvent, ignore
from surefoot.searching.requirements import require_packages
from surefoot.searching.runner import Plan, SearchRunner
from surefoot.searching.settings import SearchSettings


def search(
    question: str,
    *,
    generator: Any,
    scorer: ScorerLike = DEFAULT_MODEL,
    strategy: str = "beam",
    seed: int = 0,
    options: ReadOptions = DEFAULT_OPTIONS,
    on_event: Listener = ignore,
    **settings: Any,
) -> SearchResult:
    """Searches for the answer to a question: a generator writes steps, and a PRM chooses between them.

    >>> result = surefoot.search("What is 2 + 3?", generator="samples.jsonl", strategy="dvts", n=4)
    >>> result.answer
    '5'

    `generator` is the address of an OpenAI-compatible server, a folder or hub id with a causal language model, a
    file with recorded rollouts, an `openai` client, or what `surefoot.load_generator` returned. `scorer` is a
    `StepScorer` or what `surefoot.load` takes. `strategy` is `best-of-n`, `beam`, `dvts` or `backtracking`;
    `settings` are those of `SearchSettings`: n, branches, max_steps, max_tokens, step_end, sampling, aggregation,
    uncertainty, selection, lookahead, threshold, backtracks, budget. `options` say how the scorer reads solutions.
    `on_event` is called for new nodes.

    Use `surefoot.search_async` in async code; this function also works where an event loop is running.
    """
    return run_async(
        search_async(
            question,
            generator=generator,
            scorer=scorer,
            strategy=strategy,
            seed=seed,
            options=options,
            on_event=on_event,
            **settings,
        )
    )


async def search_async(
    question: str,
    *,
    generator: Any,
    scorer: ScorerLike = DEFAULT_MODEL,
    strategy: str = "beam",
    seed: int = 0,
    options: ReadOptions = DEFAULT_OPTIONS,
    on_event: Listener = ignore,
    **settings: Any,
) -> SearchResult:
    """Searches for the answer to a question, as a coroutine. For the arguments see `search`.

    >>> asyncio.run(surefoot.search_async("What is 2 + 3?", generator="samples.jsonl")).answer
    '5'
    """
    plan = Plan.of(strategy, _settings(settings))
    require_packages(generator)
    async with searching(generator, scorer, options, on_event) as runner:
        await runner.check([plan])
        return await runner.search(question, plan, seed)


@asynccontextmanager
async def searching(
    generator: Any, scorer: ScorerLike, options: ReadOptions, on_event: Listener
) -> AsyncIterator[SearchRunner]:
    """Load what is not loaded yet, without blocking the event loop, and close what was created here."""
    from surefoot.generate.loading import load_generator

    writer: Generator = await asyncio.to_thread(load_generator, generator)
    try:
        runner = SearchRunner(writer, await asyncio.to_thread(as_scorer, scorer), options=options, on_event=on_event)
        try:
            yield runner
        finally:
            runner.close()
    finally:
        if writer is not generator:
            await writer.close()


async def search_events(question: str, **arguments: Any) -> AsyncIterator[SearchEvent]:
    """Yields what happens in a search: new nodes as they are scored, and at the end the result.

    >>> async def watch() -> None:
    ...     async for event in surefoot.search_events("What is 2 + 3?", generator="samples.jsonl"):
    ...         print(len(event.nodes), event.result and event.result.answer)
    >>> asyncio.run(watch())
    1 None
    0 5

    For the arguments see `search`. Leaving the loop cancels the search.
    """
    events: asyncio.Queue[SearchEvent | None] = asyncio.Queue()
    task = asyncio.create_task(search_async(question, on_event=events.put_nowait, **arguments))
    task.add_done_callback(lambda _: events.put_nowait(None))
    try:
        while (event := await events.get()) is not None:
            yield event
        await task  # raises what the search raised
    finally:
        task.cancel()


def _settings(given: dict[str, Any]) -> SearchSettings:
    known = SearchSettings.__dataclass_fields__
    if wrong := [name for name in given if name not in known]:
        raise OptionError(f"{', '.join(wrong)}: unknown. The settings of a search are: {', '.join(known)}.")
    return SearchSettings(**given)
