"""JSON over HTTP to a scoring service, with retries.

Scoring has no side effects, so a request that failed on the way or was rejected for load (429, 502, 503) is retried
with exponential back-off for `patience` seconds. Every other failure raises at once.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from typing import Any

from surefoot.client.api_key import is_key
from surefoot.errors import MissingDependencyError, OptionError, ServiceError, UnreachableError

try:
    import httpx
except ImportError as error:
    raise MissingDependencyError(f'{error}. Install the client: pip install "surefoot[client]"') from error

RETRIED = frozenset((429, 502, 503))
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
LONGEST_TIMEOUT = 86_400
SLACK = 5.0
"""Seconds that the client waits beyond the deadline that it sends to the service."""


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


class Transport:
    """A connection pool to one service."""

    def __init__(self, url: str, *, api_key: str | None, timeout: float, patience: float, connections: int) -> None:
        self._client = httpx.Client(**_options(url, api_key, timeout, connections))
        self._patience = patience
        # Waiting for a free connection does not count towards the patience.
        self._slots = threading.Semaphore(connections)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request and return the data of the reply."""
        content = None if body is None else _encoded(body)
        with self._slots:
            return self._ask(method, path, content)

    def _ask(self, method: str, path: str, content: bytes | None) -> Any:
        backoff = Backoff(self._patience)
        while True:
            try:
                reply = self._client.request(method, path, content=content)
                wait, problem = _judge(reply)
                if problem is None:
                    return _data(reply)
            except httpx.TransportError as error:
                wait, problem = 0.0, _unreachable(self._client.base_url, error)
            time.sleep(backoff.pause(problem, wait))

    def close(self) -> None:
        """Closes all connections."""
        self._client.close()


class AsyncTransport:
    """A connection pool for coroutines."""

    def __init__(self, url: str, *, api_key: str | None, timeout: float, patience: float, connections: int) -> None:
        self._client = httpx.AsyncClient(**_options(url, api_key, timeout, connections))
        self._patience = patience
        # httpx wakes every waiting task whenever a connection is free, so they wait here.
        self._slots = asyncio.Semaphore(connections)

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request and return the data of the reply."""
        content = None if body is None else _encoded(body)
        async with self._slots:
            return await self._ask(method, path, content)

    async def _ask(self, method: str, path: str, content: bytes | None) -> Any:
        backoff = Backoff(self._patience)
        while True:
            try:
                reply = await self._client.request(method, path, content=content)
                wait, problem = _judge(reply)
                if problem is None:
                    return _data(reply)
            except httpx.TransportError as error:
                wait, problem = 0.0, _unreachable(self._client.base_url, error)
            await asyncio.sleep(backoff.pause(problem, wait))

    async def close(self) -> None:
        """Closes all connections."""
        await self._client.aclose()


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
