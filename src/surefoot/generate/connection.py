"""Send requests to a generation server over HTTP, with retries and a limit on requests in flight.

Invariant: the API key is never part of a message, a representation or a pickle.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any, Protocol

from surefoot.client.transport import AsyncTransport, Peer
from surefoot.errors import OptionError

KEY_VARIABLE = "OPENAI_API_KEY"
SUFFIX = "/v1"
RETRIED = frozenset((408, 429, 500, 502, 503, 504))


class Connection(Protocol):
    """How a generator reaches its server."""

    @property
    def address(self) -> str:
        """The server's address, for messages."""

    async def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Send a request and return the data of the reply. Raise a `ServiceError` if that fails.

        A path that starts with `/v1/` belongs to the OpenAI-compatible interface. Others are the server's own.
        """

    async def close(self) -> None:
        """Close all connections."""


class HttpConnection:
    """A connection to a server by its address. Each event loop gets its own connection pool."""

    def __init__(self, url: str, *, api_key: str | None, timeout: float, patience: float, concurrency: int) -> None:
        if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
            raise OptionError(f"concurrency={concurrency!r}: pass a number above 0.")
        if isinstance(patience, bool) or not isinstance(patience, int | float) or not patience >= 0:
            raise OptionError(f"patience={patience!r}: pass seconds, or 0 for no retries.")
        self.address = url.rstrip("/").removesuffix(SUFFIX)
        self._api_key = api_key
        self._options: dict[str, Any] = {"timeout": timeout, "patience": patience, "connections": concurrency}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._transport = self._connect()  # reports malformed options at once

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address}>"

    def __getstate__(self) -> dict[str, Any]:
        if self._api_key is not None and self._api_key != os.environ.get(KEY_VARIABLE):
            raise OptionError(
                "The API key is not part of a pickle, and other processes cannot read it from their environment. Set "
                f"the variable {KEY_VARIABLE} instead of passing api_key=..."
            )
        return {"address": self.address, "options": self._options, "keyed": self._api_key is not None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        key = os.environ.get(KEY_VARIABLE) if state["keyed"] else None
        if state["keyed"] and key is None:
            raise OptionError(f"{state['address']} needs an API key. Set the variable {KEY_VARIABLE} in this process.")
        self.address, self._options, self._api_key = state["address"], state["options"], key
        self._loop, self._transport = None, self._connect()

    def _connect(self) -> AsyncTransport:
        peer = Peer(
            noun="generation server",
            hint="Is this the address of an OpenAI-compatible server?",
            retried=RETRIED,
            takes_deadline=False,
            # A server without TLS runs on this machine or in the same network.
            proxies=self.address.startswith("https://"),
        )
        return AsyncTransport(self.address, api_key=self._api_key, peer=peer, **self._options)

    async def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Send a request and return the data of the reply."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            # The connections of a loop that has ended are closed already, and cannot be used in another one.
            self._transport = self._connect() if self._loop is not None else self._transport
            self._loop = loop
        return await self._transport.ask(method, path, body)

    async def close(self) -> None:
        """Close the connections of this event loop."""
        if self._loop is asyncio.get_running_loop():
            await self._transport.close()
            self._transport, self._loop = self._connect(), None


def find_api_key(given: str | None) -> str | None:
    """Return the given key, or that in the environment."""
    key = given or os.environ.get(KEY_VARIABLE)
    return None if key is None else key.strip()
