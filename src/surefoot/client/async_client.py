"""The client of `surefoot serve` for coroutines: an `AsyncStepScorer` over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence

from surefoot.client.api_key import find_key
from surefoot.client.clients import ClientSettings, valid_rows
from surefoot.client.payload import Row, choose_model, halve, read_items, read_models, read_results, read_windows
from surefoot.client.transport import AsyncTransport, TooLargeError, UnknownModelError
from surefoot.core.options import DEFAULT_OPTIONS, ReadOptions
from surefoot.core.protocols import Item
from surefoot.core.result import SolutionScore


class AsyncClient(ClientSettings):
    """The client for coroutines. For its options see `Client`.

    >>> async def score() -> surefoot.SolutionScore:
    ...     async with surefoot.AsyncClient("http://127.0.0.1:8000") as client:
    ...         return await client.score("What is 2 + 3?", "2 + 3 = 5.")
    >>> result = asyncio.run(score())
    """

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        api_key: str | None = None,
        timeout: float = 600.0,
        patience: float = 60.0,
        connections: int = 64,
        items_per_request: int = 64,
    ) -> None:
        super().__init__(url, model, items_per_request, connections)
        key = find_key(api_key)
        self._transport = AsyncTransport(url, api_key=key, timeout=timeout, patience=patience, connections=connections)

    async def score(
        self, question: str, solution: str | Sequence[str], options: ReadOptions = DEFAULT_OPTIONS
    ) -> SolutionScore:
        """Scores every step of one solution, given as text or as a list of steps."""
        return (await self.score_many([(question, solution)], options))[0]

    async def score_many(self, items: Iterable[Item], options: ReadOptions = DEFAULT_OPTIONS) -> list[SolutionScore]:
        """Scores pairs of question and solution. A malformed item raises `InputError` before anything is sent."""
        return await self._score_rows(read_items(items), options)

    def score_stream(
        self, items: Iterable[Item], options: ReadOptions = DEFAULT_OPTIONS, *, window: int = 1024
    ) -> AsyncIterator[SolutionScore]:
        """Scores any number of pairs, `window` at a time. A malformed item becomes an unscored result."""
        windows = read_windows(items, window)

        async def stream() -> AsyncIterator[SolutionScore]:
            for some in windows:
                scored = await self._score_rows(valid_rows(some), options, keep_going=True)
                if len(scored) < len(some) and self._known is None:
                    self._known = choose_model(await self.models(), self.url, self.model)
                for result in self._merged(some, scored):
                    yield result

        return stream()

    async def models(self) -> list[Row]:
        """The models that the service offers: names, families, limits, fingerprints."""
        return read_models(await self._transport.ask("GET", "/v1/models"))

    async def close(self) -> None:
        """Closes all connections."""
        await self._transport.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _score_rows(
        self, rows: list[Row], options: ReadOptions, *, keep_going: bool = False
    ) -> list[SolutionScore]:
        tasks = [asyncio.ensure_future(self._score(body, keep_going)) for body in self._bodies(rows, options)]
        try:
            return [result for part in await asyncio.gather(*tasks) for result in part]
        finally:
            # After an error nobody awaits the other requests any more.
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _score(self, body: Row, keep_going: bool) -> list[SolutionScore]:
        try:
            return read_results(await self._transport.ask("POST", "/v1/score", body), len(body["items"]))
        except TooLargeError as error:
            if keep_going and len(body["items"]) == 1:
                return [self._unscored(error)]
            return [result for half in halve(body, error) for result in await self._score(half, keep_going)]
        except UnknownModelError:
            choose_model(await self.models(), self.url, self.model)  # raises an error with all names
            raise
