"""JSON over HTTP to a service, with retries.

Scoring and generating have no side effects, so a request that failed on the way or was rejected for load is retried
with exponential back-off for `patience` seconds. `Peer.retried` says which status codes that means: 429, 502 and 503
for a scoring service, and 408, 500 and 504 as well for a generation server. Every other failure raises at once.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import threading
import time
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from surefoot.client.api_key import is_key
from surefoot.errors import MissingDependencyError, OptionError, ServiceError, UnreachableError

try:
    import httpx
except ImportError as error:
    raise MissingDependencyError(f'{error}. Install the client: pip install "surefoot[client]"') from error

C = TypeVar("C", httpx.Client, httpx.AsyncClient)

RETRIED = frozenset((429, 502, 503))
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
LONGEST_TIMEOUT = 86_400
LONGEST_MESSAGE = 1_000
"""Characters of a server's message in an error."""
SLACK = 5.0
"""Seconds that the client waits beyond the deadline that it sends to the service."""

_inherited: list[Pool[Any]] = []
"""Pools from before a fork. Two processes on one connection would read each other's replies, and closing a pool would
end the parent's connections."""


@dataclass(frozen=True)
class Peer:
    """The kind of server that a transport talks to."""

    noun: str = "service"
    """How messages call it."""
    hint: str = "Is this the address of a Surefoot service?"
    """What a message asks if a reply is not JSON."""
    retried: frozenset[int] = RETRIED
    """The status codes of replies after which a request is sent again."""
    takes_deadline: bool = True
    """Whether it reads the header with the seconds after which the reply is of no use."""
    proxies: bool = False
    """Whether proxies from the environment apply."""


SCORING_SERVICE = Peer()


class RejectedError(ServiceError):
    """The server rejected a request."""

    status: int = 0
    """The status code of the reply."""


class TooLargeError(RejectedError):
    """The request is larger than the service accepts."""


class UnknownModelError(RejectedError):
    """The service does not have the requested model, or has several and none was requested."""


class Backoff:
    """Exponential back-off with jitter, until the time is up."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self._pause = FIRST_PAUSE

    def pause(self, problem: UnreachableError, at_least: float = 0.0) -> float:
        """Return the seconds to wait before the next attempt, or raise `problem` if the time is up."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise problem
        # Jitter: clients that were rejected together should not come back together.
        wait = max(at_least, self._pause * random.uniform(0.5, 1.0))
        self._pause = min(LONGEST_PAUSE, 2 * self._pause)
        return min(wait, left)  # a longer Retry-After still gets one last attempt


@dataclass(frozen=True)
class Pool(Generic[C]):
    """The connections of one process. One object, so that threads cannot see a part of it."""

    process: int
    client: C
    slots: Any
    """A semaphore with one slot per connection: requests wait for one here."""


class Transport:
    """A connection pool to one service. A forked process gets its own connections."""

    def __init__(self, url: str, *, api_key: str | None, timeout: float, patience: float, connections: int) -> None:
        self._options = _options(url, api_key, timeout, connections)
        self._patience = patience
        self._connections = connections
        self._pool = self._connect()

    def _connect(self) -> Pool[httpx.Client]:
        # Waiting for a free connection does not count towards the patience.
        return Pool(os.getpid(), httpx.Client(**self._options), threading.Semaphore(self._connections))

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request and return the data of the reply."""
        content = None if body is None else _encoded(body)
        pool = self._pool
        if pool.process != os.getpid():
            _inherited.append(pool)
            self._pool = pool = self._connect()
        with pool.slots:
            return self._ask(pool.client, method, path, content)

    def _ask(self, client: httpx.Client, method: str, path: str, content: bytes | None) -> Any:
        backoff = Backoff(self._patience)
        while True:
            try:
                reply = client.request(method, path, content=content)
                wait, problem = _judge(reply)
                if problem is None:
                    return _data(reply)
            except httpx.TransportError as error:
                wait, problem = 0.0, _unreachable(client.base_url, error)
            except httpx.RequestError as error:
                raise _unreadable(error) from error
            time.sleep(backoff.pause(problem, wait))

    def close(self) -> None:
        """Closes all connections of this process."""
        if self._pool.process == os.getpid():
            self._pool.client.close()


class AsyncTransport:
    """A connection pool for coroutines. A forked process gets its own connections."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None,
        timeout: float,
        patience: float,
        connections: int,
        peer: Peer = SCORING_SERVICE,
    ) -> None:
        self._options = _options(url, api_key, timeout, connections, peer)
        self._peer = peer
        self._patience = patience
        self._connections = connections
        self._pool = self._connect()

    def _connect(self) -> Pool[httpx.AsyncClient]:
        # httpx wakes every waiting task whenever a connection is free, so they wait for the semaphore.
        return Pool(os.getpid(), httpx.AsyncClient(**self._options), asyncio.Semaphore(self._connections))

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request and return the data of the reply."""
        content = None if body is None else _encoded(body)
        pool = self._pool
        if pool.process != os.getpid():
            _inherited.append(pool)
            self._pool = pool = self._connect()
        async with pool.slots:
            return await self._ask(pool.client, method, path, content)

    async def _ask(self, client: httpx.AsyncClient, method: str, path: str, content: bytes | None) -> Any:
        backoff = Backoff(self._patience)
        while True:
            try:
                reply = await client.request(method, path, content=content)
                wait, problem = _judge(reply, self._peer)
                if problem is None:
                    return _data(reply, self._peer)
            except httpx.TransportError as error:
                wait, problem = 0.0, _unreachable(client.base_url, error, self._peer)
            except httpx.RequestError as error:
                raise _unreadable(error, self._peer) from error
            await asyncio.sleep(backoff.pause(problem, wait))

    async def close(self) -> None:
        """Closes all connections of this process."""
        if self._pool.process == os.getpid():
            await self._pool.client.aclose()


def _options(
    url: str, api_key: str | None, timeout: float, connections: int, peer: Peer = SCORING_SERVICE
) -> dict[str, Any]:
    try:
        address = httpx.URL(url.rstrip("/"))
    except httpx.InvalidURL as error:
        raise OptionError(f"The address of the {peer.noun} cannot be read: {error}.") from error
    if address.scheme not in ("http", "https") or not address.host:
        raise OptionError(
            f"{url!r} is not the address of a {peer.noun}. Expected something like http://127.0.0.1:8000."
        )
    if address.userinfo:
        raise OptionError(
            f"The address of the {peer.noun} contains a password, which would end up in logs. Use `api_key`."
        )
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= LONGEST_TIMEOUT:
        raise OptionError(f"timeout={timeout!r}: pass seconds above 0 and up to {LONGEST_TIMEOUT}.")
    if api_key is not None and not is_key(api_key):
        raise OptionError("The key has to be one word of printable ASCII.")
    headers = {"Content-Type": "application/json"}
    if peer.takes_deadline:
        headers["X-Request-Timeout"] = f"{timeout:g}"
    if api_key is not None:
        headers["Authorization"] = f"Bearer {api_key}"
    return {
        "base_url": address,
        "headers": headers,
        "timeout": httpx.Timeout(timeout + SLACK if peer.takes_deadline else timeout, connect=10.0),
        "limits": httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
        # A scoring service runs in the same network.
        "trust_env": peer.proxies,
    }


def _encoded(body: Any) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def _judge(reply: httpx.Response, peer: Peer = SCORING_SERVICE) -> tuple[float, UnreachableError | None]:
    """Return the seconds to wait and the problem if it is temporary, (0, None) on success, and raise otherwise."""
    if reply.status_code == 200:
        return 0.0, None
    message = f"The {peer.noun} answered {reply.status_code}: {_message(reply)}"
    if reply.status_code in peer.retried:
        return _retry_after(reply), UnreachableError(message)
    unknown = _detail(reply, "type") == "unknown_model"
    kind = TooLargeError if reply.status_code == 413 else UnknownModelError if unknown else RejectedError
    error = kind(message)
    error.status = reply.status_code
    raise error


def _retry_after(reply: httpx.Response) -> float:
    """The seconds in a Retry-After header. Dates and malformed values count as none."""
    try:
        seconds = float(reply.headers.get("retry-after", 0.0))
    except ValueError:
        return 0.0
    return seconds if 0 <= seconds < math.inf else 0.0


def _message(reply: httpx.Response) -> str:
    return _detail(reply, "message") or _top_level(reply) or reply.reason_phrase or "no reason given"


def _top_level(reply: httpx.Response) -> str | None:
    """The message of servers that do not put it into an `error` object."""
    try:
        data = reply.json()
        found = next((data[name] for name in ("message", "detail", "error") if data.get(name)), None)
    except (ValueError, AttributeError, RecursionError):
        return None
    return None if found is None else str(found)[:LONGEST_MESSAGE]


def _detail(reply: httpx.Response, name: str) -> str | None:
    """A field of the error in a reply, or None if the reply has another format."""
    try:
        return str(reply.json()["error"][name])[:LONGEST_MESSAGE]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _data(reply: httpx.Response, peer: Peer = SCORING_SERVICE) -> Any:
    try:
        return reply.json()
    except (ValueError, RecursionError) as error:
        raise ServiceError(f"The reply is not JSON. {peer.hint}") from error


def _unreadable(error: Exception, peer: Peer = SCORING_SERVICE) -> ServiceError:
    """A reply whose content does not match its headers, such as one that is not compressed as announced."""
    return ServiceError(f"The reply cannot be read ({type(error).__name__}: {error}). {peer.hint}")


def _unreachable(url: httpx.URL, error: Exception, peer: Peer = SCORING_SERVICE) -> UnreachableError:
    why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return UnreachableError(f"The {peer.noun} at {url} did not answer ({why}). Is it running?")
