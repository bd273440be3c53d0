"""Send requests through an `openai.OpenAI` or `openai.AsyncOpenAI` object of the caller.

The object's own address, key, HTTP client, time limits and retries apply. The package `openai` is never imported.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from surefoot.client.transport import RejectedError
from surefoot.errors import OptionError, ServiceError, UnreachableError
from surefoot.generate.connection import SUFFIX
from surefoot.generate.dialects import CHAT, COMPLETIONS

STANDARD = frozenset(
    ("model", "prompt", "messages", "n", "max_tokens", "max_completion_tokens", "temperature", "top_p", "seed", "stop")
)
"""What the methods of the client take as arguments. Everything else goes into `extra_body`."""


def is_client(what: Any) -> bool:
    """Whether an object has the methods of an OpenAI client that are used here."""
    methods = [getattr(getattr(what, "completions", None), "create", None), getattr(what, "get", None)]
    return hasattr(what, "base_url") and hasattr(what, "chat") and all(map(callable, methods))


class ClientConnection:
    """A connection through a client object. A client without coroutines runs in threads."""

    def __init__(self, client: Any, *, concurrency: int) -> None:
        if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
            raise OptionError(f"concurrency={concurrency!r}: pass a number above 0.")
        self._client = client
        self.address = str(client.base_url).rstrip("/").removesuffix(SUFFIX)
        self._async = inspect.iscoroutinefunction(inspect.unwrap(client.completions.create))
        self._concurrency = concurrency
        self._threads: ThreadPoolExecutor | None = None
        self._slots: tuple[asyncio.AbstractEventLoop, asyncio.Semaphore] | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address}>"

    def __getstate__(self) -> dict[str, Any]:
        raise OptionError("A generator with a client object cannot be pickled. Pass the server's address instead.")

    async def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Send a request and return the data of the reply."""
        loop = asyncio.get_running_loop()
        if self._slots is None or self._slots[0] is not loop:
            self._slots = loop, asyncio.Semaphore(self._concurrency)
        call = self._call(method, path, body or {})
        async with self._slots[1]:
            try:
                if self._async:
                    reply = await call()
                else:
                    self._threads = self._threads or ThreadPoolExecutor(self._concurrency, "surefoot-generate")
                    reply = await loop.run_in_executor(self._threads, call)
            except Exception as error:
                raise _translated(error, self.address) from error
        if isinstance(reply, str):
            # The client returns a reply that is not announced as JSON as it is.
            raise ServiceError("The reply is not JSON. Is this the address of an OpenAI-compatible server?")
        return reply.model_dump() if hasattr(reply, "model_dump") else reply

    def _call(self, method: str, path: str, body: dict[str, Any]) -> Callable[[], Any]:
        if path in (COMPLETIONS, CHAT):
            create = self._client.completions.create if path == COMPLETIONS else self._client.chat.completions.create
            known = {name: value for name, value in body.items() if name in STANDARD}
            extra = {name: value for name, value in body.items() if name not in STANDARD and name != "stream"}
            return partial(create, **known, extra_body=extra)
        # The client's address ends in /v1; the server's own endpoints are next to it.
        where = path.removeprefix(SUFFIX) if path.startswith(SUFFIX + "/") else self.address + path
        if method == "GET":
            return partial(self._client.get, where, cast_to=object)
        return partial(self._client.post, where, cast_to=object, body=body)

    async def close(self) -> None:
        """End the threads. The client stays open, because the caller made it."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None


def _translated(error: Exception, address: str) -> ServiceError:
    """An error of the client as one of ours, without headers and keys."""
    status = getattr(error, "status_code", None)
    message = str(getattr(error, "message", None) or error)[:1000]
    if isinstance(status, int):
        rejected = RejectedError(f"The generation server answered {status}: {message}")
        rejected.status = status
        return rejected
    return UnreachableError(f"The generation server at {address} did not answer ({type(error).__name__}: {message}).")
