"""Reads the JSON body of a request within limits of size and time, and parses it straight from its bytes.

FastAPI itself would read a body of any size, on the event loop, into Python objects that it then validates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, get_type_hints

from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from surefoot.serve.middleware import error_reply
from surefoot.serve.schemas import summarize_errors
from surefoot.serve.settings import Settings

LARGE_BODY = 65_536
"""Bodies of more bytes are parsed in a thread."""
MANY_ERRORS = 100
"""More validation errors are only counted: listing them would cost more than reading the body."""
READ_ON = 4
"""A body above the limit is read and discarded up to this multiple of it, so that its client reads the reply."""

Body = TypeVar("Body", bound=BaseModel)


class RejectedError(Exception):
    """Ends the request with this reply."""

    def __init__(self, reply: Response) -> None:
        self.reply = reply


class JsonRoute(APIRoute):
    """A route whose endpoint takes the request's JSON as `body`, a pydantic model."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler, which gets a body that is already parsed."""
        handler = super().get_route_handler()
        if self.body_field is None:
            return handler
        model: type[BaseModel] = get_type_hints(self.endpoint)["body"]

        async def handle(request: Request) -> Response:
            body = await read_body(request, model, request.app.state.service.settings)
            return await handler(_ParsedRequest(request, body))

        return handle


class _ParsedRequest(Request):
    """A request whose JSON is a validated model, which pydantic passes through as it is."""

    def __init__(self, request: Request, parsed: BaseModel) -> None:
        super().__init__(request.scope, request.receive)
        self._parsed = parsed

    async def body(self) -> bytes:
        return b"{}"  # FastAPI asks for the JSON of any body that is not empty

    async def json(self) -> Any:
        return self._parsed


async def read_body(request: Request, model: type[Body], settings: Settings) -> Body:
    """The body of a request, validated against its model."""
    declared = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if declared != "application/json":
        raise RejectedError(error_reply(415, "not_json", "Send JSON, with the header Content-Type: application/json."))
    try:
        raw = await asyncio.wait_for(_received(request, settings.max_body_bytes), settings.body_timeout)
    except asyncio.TimeoutError:
        message = "The body did not arrive in time. Send it at once."
        raise RejectedError(error_reply(408, "request_timeout", message, close=True)) from None
    return await asyncio.to_thread(_parsed, model, raw) if len(raw) > LARGE_BODY else _parsed(model, raw)


async def _received(request: Request, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size <= limit:
            parts.append(part)
        elif size > READ_ON * limit:
            break
        else:
            parts.clear()
    if size > limit:
        message = f"The body is larger than {limit} bytes. Send fewer items per request."
        raise RejectedError(error_reply(413, "too_large", message, close=True))
    return b"".join(parts)


def _parsed(model: type[Body], raw: bytes) -> Body:
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        many = error.error_count() > MANY_ERRORS
        found = [] if many else error.errors(include_input=False, include_url=False, include_context=False)
        if many:
            message = f"The body has {error.error_count()} errors. /openapi.json describes the schema."
            raise RejectedError(error_reply(422, "invalid_request", message)) from None
        code, kind = (400, "not_json") if found[0]["type"] == "json_invalid" else (422, "invalid_request")
        raise RejectedError(error_reply(code, kind, summarize_errors(found))) from None
