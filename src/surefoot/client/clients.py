"""The client of `surefoot serve`: a `StepScorer` over HTTP.

Results are exactly those of the service. An item that could not be scored has a reason; a request that failed is an
error, never a number.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from surefoot.client.api_key import find_key, is_in_environment, require_in_environment
from surefoot.client.payload import (
    Row,
    choose_model,
    halve,
    read_items,
    read_models,
    read_results,
    read_windows,
    request_bodies,
)
from surefoot.client.transport import TooLargeError, Transport, UnknownModelError
from surefoot.core.options import DEFAULT_OPTIONS, ReadOptions
from surefoot.core.protocols import Item
from surefoot.core.result import Scale, SolutionScore
from surefoot.data.rescoring import RescoringSession
from surefoot.display.progress import Progress
from surefoot.errors import InputError, OptionError, ServiceError

Window = list[Row | InputError]


def connect(url: str, **options: Any) -> Client:
    """Connects to the service at `url`. The options are those of `Client`.

    >>> client = surefoot.connect("http://127.0.0.1:8000")
    >>> client.score("What is 2 + 3?", "2 + 3 = 5.").status
    'scored'
    """
    return Client(url, **options)


class ClientSettings:
    """What both clients know."""

    def __init__(self, url: str, model: str | None, items_per_request: int, connections: int) -> None:
        if items_per_request < 1 or connections < 1:
            raise OptionError("items_per_request and connections have to be above 0.")
        self.url = url.rstrip("/")
        self.model = model
        self._items = items_per_request
        self._connections = connections
        self._known: Row | None = None
        """The description of the served model, once it was requested."""

    def __repr__(self) -> str:
        model = "" if self.model is None else f", model {self.model!r}"
        return f"<surefoot.{type(self).__name__} {self.url}{model}>"

    @property
    def name(self) -> str:
        """The model's name once it is known, else the address."""
        return self.model or (self.url if self._known is None else str(self._known["id"]))

    def _bodies(self, rows: list[Row], options: ReadOptions) -> list[Row]:
        return request_bodies(rows, options, self.model, self._items)

    def _merged(self, window: Window, scored: list[SolutionScore]) -> Iterator[SolutionScore]:
        results = iter(scored)
        return (self._unscored(row) if isinstance(row, InputError) else next(results) for row in window)

    def _unscored(self, error: Exception) -> SolutionScore:
        known = self._known or {"scale": "probability"}
        described: Row = {name: known.get(name) for name in ("calibration", "recommended")}
        return SolutionScore((), self.name, reason=str(error), scale=known["scale"], **described)


class Client(ClientSettings):
    """A service as a `StepScorer`. Its methods may be called from several threads.

    >>> with surefoot.Client("http://127.0.0.1:8000", patience=300) as client:
    ...     results = client.score_many([("What is 2 + 3?", "2 + 3 = 5.")])

    A request that failed on the way or was rejected for load is retried for `patience` seconds; one attempt may take
    `timeout` seconds. `api_key` defaults to the environment variable SUREFOOT_API_KEY. Long lists are sent
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
        key = find_key(api_key)
        self._transport = Transport(url, api_key=key, timeout=timeout, patience=patience, connections=connections)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, also in another process, has the same options and its own connections.

        The pickle names the served model by its fingerprint and calibration. It does not contain the API key.
        """
        options = {name: value for name, value in self._given.items() if name != "api_key"}
        call = {
            "url": self.url,
            "model": self.model,
            "options": options | {"connections": self._connections, "items_per_request": self._items},
            "needs_key": is_in_environment(self._given["api_key"]),
            "serves": [self.fingerprint, self.calibration],
        }
        return _connect_again, (json.dumps(call, sort_keys=True),)

    @property
    def scale(self) -> Scale:
        """What the scores are: `probability`, `margin` or `log_ratio`."""
        scale: Scale = self._description["scale"]
        return scale

    @property
    def fingerprint(self) -> str:
        """A hash of what the served model computes, without its calibration."""
        return str(self._description["fingerprint"])

    @property
    def calibration(self) -> str | None:
        """The name of the calibration that the service applies to every score, or None."""
        name: str | None = self._description.get("calibration")
        return name

    @property
    def name(self) -> str:
        """The model's name, as results and reports show it."""
        return self.model or str(self._description["id"])

    @property
    def _description(self) -> Row:
        if self._known is None:
            self._known = choose_model(self.models(), self.url, self.model)
        return self._known

    def score(
        self, question: str, solution: str | Sequence[str], options: ReadOptions = DEFAULT_OPTIONS
    ) -> SolutionScore:
        """Scores every step of one solution, given as text or as a list of steps."""
        return self.score_many([(question, solution)], options)[0]

    def score_many(
        self, items: Iterable[Item], options: ReadOptions = DEFAULT_OPTIONS, *, progress: bool = False
    ) -> list[SolutionScore]:
        """Scores pairs of question and solution. A malformed item raises `InputError` before anything is sent."""
        rows = read_items(items)
        with Progress(len(rows), shown=progress) as bar:
            return self._score_rows(rows, options, bar)

    def score_stream(
        self,
        items: Iterable[Item],
        options: ReadOptions = DEFAULT_OPTIONS,
        *,
        progress: bool = False,
        window: int = 1024,
    ) -> Iterator[SolutionScore]:
        """Scores any number of pairs, `window` at a time. A malformed item becomes an unscored result."""
        windows = read_windows(items, window)

        def stream() -> Iterator[SolutionScore]:
            with Progress(len(items) if isinstance(items, Sized) else None, shown=progress) as bar:
                for some in windows:
                    scored = self._score_rows(valid_rows(some), options, bar, keep_going=True)
                    if len(scored) < len(some):
                        _ = self._description  # the results of malformed items name the model and its scale
                        bar.settle(len(some) - len(scored), 0)
                    yield from self._merged(some, scored)

        return stream()

    def session(self, question: str, options: ReadOptions = DEFAULT_OPTIONS) -> RescoringSession:
        """Starts a search over candidate solutions of one question. The service keeps no state between calls."""
        return RescoringSession(self, question, options)

    def models(self) -> list[Row]:
        """The models that the service offers: names, families, limits, fingerprints."""
        return read_models(self._transport.ask("GET", "/v1/models"))

    def close(self) -> None:
        """Closes all connections."""
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _score_rows(
        self, rows: list[Row], options: ReadOptions, bar: Progress, *, keep_going: bool = False
    ) -> list[SolutionScore]:
        bodies = self._bodies(rows, options)
        score = partial(self._score, keep_going=keep_going)
        if len(bodies) <= 1:
            return [result for body in bodies for result in _counted(score(body), bar)]
        with ThreadPoolExecutor(min(self._connections, len(bodies))) as threads:
            return [result for part in threads.map(score, bodies) for result in _counted(part, bar)]

    def _score(self, body: Row, keep_going: bool) -> list[SolutionScore]:
        try:
            return read_results(self._transport.ask("POST", "/v1/score", body), len(body["items"]))
        except TooLargeError as error:
            if keep_going and len(body["items"]) == 1:
                return [self._unscored(error)]
            return [result for half in halve(body, error) for result in self._score(half, keep_going)]
        except UnknownModelError:
            choose_model(self.models(), self.url, self.model)  # raises an error with all names
            raise


def _connect_again(text: str) -> Client:
    """Connects a pickled client, unless the service has another model now."""
    call = json.loads(text)
    if call["needs_key"]:
        require_in_environment(call["url"])
    client = Client(call["url"], model=call["model"], **call["options"])
    if [client.fingerprint, client.calibration] != call["serves"]:
        raise ServiceError(
            f"{client.url} does not serve the model that it served when the client was pickled: the fingerprint or the "
            "calibration differs. Pickle the client again."
        )
    return client


def valid_rows(window: Window) -> list[Row]:
    """Returns the rows of a window that can be sent."""
    return [row for row in window if isinstance(row, dict)]


def _counted(results: list[SolutionScore], bar: Progress) -> list[SolutionScore]:
    bar.settle(len(results), sum(result.tokens for result in results))
    return results
