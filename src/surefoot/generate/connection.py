"""Send requests to a generation server over HTTP, with retries and a limit on requests in flight.

Invariant: the API key is never part of a message, a representation or a pickle.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from surefoot.client.api_key import GENERATOR_KEY_VARIABLE, find_key, is_in_environment, require_in_environment
from surefoot.client.transport import AsyncTransport, Peer
from surefoot.errors import OptionError

KEY_VARIABLE = GENERATOR_KEY_VARIABLE
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
        self._transports: dict[asyncio.AbstractEventLoop, AsyncTransport] = {}
        self._connect()  # reports malformed options at once

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address}>"

    def __getstate__(self) -> dict[str, Any]:
        keyed = self._api_key is not None and is_in_environment(self._api_key, KEY_VARIABLE)
        return {"address": self.address, "options": self._options, "keyed": keyed}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state["keyed"]:
            require_in_environment(state["address"], KEY_VARIABLE)
        self._api_key = find_key(None, KEY_VARIABLE) if state["keyed"] else None
        self.address, self._options, self._transports = state["address"], state["options"], {}

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
        if loop not in self._transports:
            self._forget_ended()
            self._transports[loop] = self._connect()
        return await self._transports[loop].ask(method, path, body)

    async def close(self) -> None:
        """Close the connections of this event loop, and drop those of loops that have ended."""
        self._forget_ended()
        if (transport := self._transports.pop(asyncio.get_running_loop(), None)) is not None:
            await transport.close()

    def _forget_ended(self) -> None:
        # A transport keeps its loop alive, so weak references would not do.
        self._transports = {loop: each for loop, each in self._transports.items() if not loop.is_closed()}
