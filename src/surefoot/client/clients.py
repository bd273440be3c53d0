"""A scorer that is elsewhere: the client of `surefoot serve`.

The rule: the same verbs, the same results, in the same order as a `Scorer`. Results are rebuilt exactly; what the
service could not score has its reason, and what could not be asked is an error, never a number.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any

from surefoot.client.api_key import KEY_VARIABLE
from surefoot.client.transport import AsyncTransport, TooLargeError, Transport
from surefoot.core.options import SPLIT_RULES
from surefoot.core.protocols import Item
from surefoot.core.result import SolutionScore
from surefoot.data.items import read_pair, require_unicode
from surefoot.errors import InputError, OptionError, ServiceError

PART_BYTES = 1 << 20
"""Text of one request, at most, unless a single item has more."""

Row = dict[str, Any]


def connect(url: str, **options: Any) -> Client:
    """A client of the service at this address. `options` are those of `Client`."""
    return Client(url, **options)


class _Shared:
    """What both clients know."""

    def __init__(self, url: str, model: str | None, items_per_request: int, connections: int) -> None:
        if items_per_request < 1 or connections < 1:
            raise OptionError("items_per_request and connections have to be above 0.")
        self.url = url
        self.model = model
        self._items = items_per_request
        self._connections = connections

    @property
    def name(self) -> str:
        """The model's name if one was chosen, else the address."""
        return self.model or self.url

    def _bodies(self, rows: list[Row], how: Row) -> list[Row]:
        if how["split"] not in SPLIT_RULES:
            raise OptionError(f"split is {how['split']!r}; choose one of {', '.join(SPLIT_RULES)}.")
        options = {name: value for name, value in {**how, "model": self.model}.items() if value is not None}
        return [{**options, "items": part} for part in _parts(rows, self._items)]

    def _windows(self, items: Iterable[Item], window: int) -> Iterator[list[Row | SolutionScore]]:
        """So many items at a time; in the place of one that is malformed its unscored result, as in a `Scorer`."""
        if window < 1:
            raise OptionError(f"window={window} holds nothing. Give a number above 0.")
        waiting = enumerate(items)
        parts = iter(lambda: list(islice(waiting, window)), [])
        return ([self._read(item, number) for number, item in part] for part in parts)

    def _read(self, item: Item, number: int) -> Row | SolutionScore:
        try:
            return _row(item, number)
        except InputError as error:
            return self._unscored(error)

    def _unscored(self, error: Exception) -> SolutionScore:
        return SolutionScore((), self.name, reason=str(error))


class Client(_Shared):
    """A service as a scorer. Its methods may be called from several threads.

    `patience` is how many seconds a request that failed on the way or was put off is tried again; `timeout` how many
    one try may take. `api_key` is taken from SUREFOOT_API_KEY if it is not given. Long lists are sent
    `items_per_request` at a time over at most `connections` connections.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        api_key: str | None = None,
        timeout: float = 600.0,
        patience: float = 60.0,
        connections: int = 8,
        items_per_request: int = 64,
    ) -> None:
        super().__init__(url, model, items_per_request, connections)
        self._given: Row = {"api_key": api_key, "timeout": timeout, "patience": patience}
        key = _key(api_key)
        self._transport = Transport(url, api_key=key, timeout=timeout, patience=patience, connections=connections)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, also in another process, is a client with the same options and connections of its own."""
        limits: Row = {"connections": self._connections, "items_per_request": self._items}
        return partial(Client, self.url, model=self.model, **self._given, **limits), ()

    def score(
        self,
        question: str,
        solution: str | Sequence[str],
        *,
        split: str = "auto",
        closing: bool = True,
        system: str | None = None,
    ) -> SolutionScore:
        """See `Scorer.score`."""
        return self.score_many([(question, solution)], split=split, closing=closing, system=system)[0]

    def score_many(
        self, items: Iterable[Item], *, split: str = "auto", closing: bool = True, system: str | None = None
    ) -> list[SolutionScore]:
        """See `Scorer.score_many`. A malformed item is an error before anything is sent."""
        return self._score_rows(_rows(items), {"split": split, "closing": closing, "system": system})

    def score_stream(
        self,
        items: Iterable[Item],
        *,
        split: str = "auto",
        closing: bool = True,
        system: str | None = None,
        window: int = 1024,
    ) -> Iterator[SolutionScore]:
        """See `Scorer.score_stream`: a malformed item is an unscored result and does not end the stream."""
        windows = self._windows(items, window)
        how = {"split": split, "closing": closing, "system": system}

        def stream() -> Iterator[SolutionScore]:
            for some in windows:
                yield from _merged(some, self._score_rows(_good(some), how, keep_going=True))

        return stream()

    def models(self) -> list[Row]:
        """What the service serves: names, families, limits, fingerprints."""
        return _models(self._transport.ask("GET", "/v1/models"))

    def close(self) -> None:
        """Closes all connections."""
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _score_rows(self, rows: list[Row], how: Row, *, keep_going: bool = False) -> list[SolutionScore]:
        bodies = self._bodies(rows, how)
        score = partial(self._score, keep_going=keep_going)
        if len(bodies) <= 1:
            return [result for body in bodies for result in score(body)]
        with ThreadPoolExecutor(min(self._connections, len(bodies))) as threads:
            return [result for part in threads.map(score, bodies) for result in part]

    def _score(self, body: Row, keep_going: bool) -> list[SolutionScore]:
        try:
            return _results(self._transport.ask("POST", "/v1/score", body), len(body["items"]))
        except TooLargeError as error:
            if keep_going and len(body["items"]) == 1:
                return [self._unscored(error)]
            return [result for half in _halves(body, error) for result in self._score(half, keep_going)]


class AsyncClient(_Shared):
    """The same for coroutines: `await client.score(...)`. For its options see `Client`."""

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
        key = _key(api_key)
        self._transport = AsyncTransport(url, api_key=key, timeout=timeout, patience=patience, connections=connections)

    async def score(
        self,
        question: str,
        solution: str | Sequence[str],
        *,
        split: str = "auto",
        closing: bool = True,
        system: str | None = None,
    ) -> SolutionScore:
        """See `Scorer.score`."""
        return (await self.score_many([(question, solution)], split=split, closing=closing, system=system))[0]

    async def score_many(
        self, items: Iterable[Item], *, split: str = "auto", closing: bool = True, system: str | None = None
    ) -> list[SolutionScore]:
        """See `Scorer.score_many`."""
        return await self._score_rows(_rows(items), {"split": split, "closing": closing, "system": system})

    def score_stream(
        self,
        items: Iterable[Item],
        *,
        split: str = "auto",
        closing: bool = True,
        system: str | None = None,
        window: int = 1024,
    ) -> AsyncIterator[SolutionScore]:
        """See `Client.score_stream`."""
        windows = self._windows(items, window)
        how = {"split": split, "closing": closing, "system": system}

        async def stream() -> AsyncIterator[SolutionScore]:
            for some in windows:
                for result in _merged(some, await self._score_rows(_good(some), how, keep_going=True)):
                    yield result

        return stream()

    async def models(self) -> list[Row]:
        """What the service serves: names, families, limits, fingerprints."""
        return _models(await self._transport.ask("GET", "/v1/models"))

    async def close(self) -> None:
        """Closes all connections."""
        await self._transport.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _score_rows(self, rows: list[Row], how: Row, *, keep_going: bool = False) -> list[SolutionScore]:
        tasks = [asyncio.ensure_future(self._score(body, keep_going)) for body in self._bodies(rows, how)]
        try:
            return [result for part in await asyncio.gather(*tasks) for result in part]
        finally:
            # After an error nobody waits for the others any more.
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _score(self, body: Row, keep_going: bool) -> list[SolutionScore]:
        try:
            return _results(await self._transport.ask("POST", "/v1/score", body), len(body["items"]))
        except TooLargeError as error:
            if keep_going and len(body["items"]) == 1:
                return [self._unscored(error)]
            return [result for half in _halves(body, error) for result in await self._score(half, keep_going)]


def _key(given: str | None) -> str | None:
    """The key, without the line end that it has in a file."""
    key = given or os.environ.get(KEY_VARIABLE)
    return None if key is None else key.strip()


def _good(read: list[Row | SolutionScore]) -> list[Row]:
    return [row for row in read if isinstance(row, dict)]


def _merged(read: list[Row | SolutionScore], scored: list[SolutionScore]) -> Iterator[SolutionScore]:
    """The results of what was sent, each in its place."""
    results = iter(scored)
    return (row if isinstance(row, SolutionScore) else next(results) for row in read)


def _rows(items: Iterable[Item]) -> list[Row]:
    return [_row(item, number) for number, item in enumerate(items)]


def _row(item: Item, number: int) -> Row:
    question, given = read_pair(item, number)
    if isinstance(given, str):
        require_unicode(number, question=question, solution=given)
        return {"question": question, "solution": given}
    if not isinstance(given, Sequence) or isinstance(given, bytes | bytearray):
        raise InputError(f"Item {number}: The solution is of type {type(given).__name__}; give a str or a list of str.")
    for at, step in enumerate(given):
        if not isinstance(step, str):
            raise InputError(f"Item {number}: Step {at} of the list is of type {type(step).__name__}; give a str.")
        require_unicode(number, question=question, solution=step)
    return {"question": question, "steps": list(given)}


def _parts(rows: list[Row], most: int) -> Iterator[list[Row]]:
    """Lists of at most so many rows and PART_BYTES of text."""
    part: list[Row] = []
    size = 0
    for row in rows:
        length = len(row["question"]) + sum(len(text) for text in row.get("steps") or [row.get("solution", "")])
        if part and (len(part) >= most or size + length > PART_BYTES):
            yield part
            part, size = [], 0
        part.append(row)
        size += length
    if part:
        yield part


def _halves(body: Row, refusal: TooLargeError) -> list[Row]:
    """A request that was too large, as two."""
    items = body["items"]
    if len(items) < 2:
        raise refusal
    middle = len(items) // 2
    return [body | {"items": items[:middle]}, body | {"items": items[middle:]}]


def _results(data: Any, expected: int) -> list[SolutionScore]:
    try:
        results = [SolutionScore.from_dict(row) for row in data["results"]]
    except (KeyError, TypeError, InputError) as error:
        raise ServiceError(
            "The service's answer holds no results. Is it a Surefoot service of this version?"
        ) from error
    if len(results) != expected:
        raise ServiceError(f"{expected} items were sent, and {len(results)} results came back.")
    return results


def _models(data: Any) -> list[Row]:
    try:
        return [dict(row) for row in data["data"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ServiceError("The service's answer lists no models. Is it a Surefoot service?") from error
