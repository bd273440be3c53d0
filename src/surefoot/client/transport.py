"""JSON over HTTP to a scoring service, with retries.

Scoring has no side effects, so a request that failed on the way or was rejected for load (429, 502, 503) is retried
with exponential back-off for `patience` seconds. Every other failure raises at once.
"""

from __future__ import annotations

import asyncio
import json
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
SLACK = 5.0
"""Seconds that the client waits beyond the deadline that it sends to the service."""

_inherited: list[Pool[Any]] = []
"""Pools from before a fork. Two processes on one connection would read each other's replies, and closing a pool would
end the parent's connections."""


class TooLargeError(ServiceError):
    """The request is larger than the service accepts."""


class UnknownModelError(ServiceError):
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
            time.sleep(backoff.pause(problem, wait))

    def close(self) -> None:
        """Closes all connections of this process."""
        if self._pool.process == os.getpid():
            self._pool.client.close()


class AsyncTransport:
    """A connection pool for coroutines. A forked process gets its own connections."""

    def __init__(self, url: str, *, api_key: str | None, timeout: float, patience: float, connections: int) -> None:
        self._options = _options(url, api_key, timeout, connections)
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
                wait, problem = _judge(reply)
                if problem is None:
                    return _data(reply)
            except httpx.TransportError as error:
                wait, problem = 0.0, _unreachable(client.base_url, error)
            await asyncio.sleep(backoff.pause(problem, wait))

    async def close(self) -> None:
        """Closes all connections of this process."""
        if self._pool.process == os.getpid():
            await self._pool.client.aclose()


def _options(url: str, api_key: str | None, timeout: float, connections: int) -> dict[str, Any]:
    try:
        address = httpx.URL(url.rstrip("/"))
    except httpx.InvalidURL as error:
        raise OptionError(f"The address of the service cannot be read: {error}.") from error
    if address.scheme not in ("http", "https") or not address.host:
        raise OptionError(f"{url!r} is not the address of a service. Expected something like http://127.0.0.1:8000.")
    if address.userinfo:
        raise OptionError("The address of the service contains a password, which would end up in logs. Use `api_key`.")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= LONGEST_TIMEOUT:
        raise OptionError(f"timeout={timeout!r}: pass seconds above 0 and up to {LONGEST_TIMEOUT}.")
    if api_key is not None and not is_key(api_key):
        raise OptionError("The key has to be one word of printable ASCII.")
    headers = {"Content-Type": "application/json", "X-Request-Timeout": f"{timeout:g}"}
    if api_key is not None:
        headers["Authorization"] = f"Bearer {api_key}"
    return {
        "base_url": address,
        "headers": headers,
        "timeout": httpx.Timeout(timeout + SLACK, connect=10.0),
        "limits": httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
        # A scoring service runs in the same network: proxies from the environment do not apply.
        "trust_env": False,
    }


def _encoded(body: Any) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def _judge(reply: httpx.Response) -> tuple[float, UnreachableError | None]:
    """Return the seconds to wait and the problem if it is temporary, (0, None) on success, and raise otherwise."""
    if reply.status_code == 200:
        return 0.0, None
    message = f"The service answered {reply.status_code}: {_message(reply)}"
    if reply.status_code in RETRIED:
        try:
            return float(reply.headers.get("retry-after", 0.0)), UnreachableError(message)
        except ValueError:
            return 0.0, UnreachableError(message)
    if reply.status_code == 413:
        raise TooLargeError(message)
    raise (UnknownModelError if _detail(reply, "type") == "unknown_model" else ServiceError)(message)


def _message(reply: httpx.Response) -> str:
    return _detail(reply, "message") or reply.reason_phrase or "no reason given"


def _detail(reply: httpx.Response, name: str) -> str | None:
    """A field of the error in a reply, or None if the reply has another format."""
    try:
        return str(reply.json()["error"][name])
    except (ValueError, KeyError, TypeError):
        return None


def _data(reply: httpx.Response) -> Any:
    try:
        return reply.json()
    except ValueError as error:
        raise ServiceError("The reply is not JSON. Is this the address of a Surefoot service?") from error


def _unreachable(url: httpx.URL, error: Exception) -> UnreachableError:
    why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return UnreachableError(f"The service at {url} did not answer ({why}). Is it running?")
