"""A request on its way in: its body and its time.

The rule: a body is read up to its limit and for as long as a request may take, and checked against its schema. What
does not pass ends with a reply that says what to change.
"""

from __future__ import annotations

import asyncio
import time
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from surefoot.serve.middleware import error_reply
from surefoot.serve.schemas import mistakes
from surefoot.serve.settings import Settings

LARGE_BODY = 65_536
"""Bytes above which a body is read in a thread."""
READ_ON = 4
"""How many times the limit of a body is read and thrown away, so that its sender is there to hear the refusal."""

Body = TypeVar("Body", bound=BaseModel)


class RefusedError(Exception):
    """A request that ends with this reply."""

    def __init__(self, reply: Response) -> None:
        self.reply = reply


async def read_body(request: Request, kind: type[Body], settings: Settings) -> Body:
    """The body of a request, checked against its schema."""
    declared = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if declared != "application/json":
        raise RefusedError(error_reply(415, "not_json", "Send JSON, with the header Content-Type: application/json."))
    try:
        raw = await asyncio.wait_for(_received(request, settings.max_body_bytes), settings.timeout)
    except asyncio.TimeoutError:
        message = "The body did not arrive in the time that a request may take. Send all of it at once."
        raise RefusedError(error_reply(408, "body_timeout", message, close=True)) from None
    return await asyncio.to_thread(_parsed, kind, raw) if len(raw) > LARGE_BODY else _parsed(kind, raw)


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
        message = f"The body is larger than {limit} bytes. Send fewer items at a time."
        raise RefusedError(error_reply(413, "too_large", message, close=True))
    return b"".join(parts)


def _parsed(kind: type[Body], raw: bytes) -> Body:
    try:
        return kind.model_validate_json(raw)
    except ValidationError as error:
        # What is not JSON has this one mistake and no other.
        no_json = error.error_count() == 1 and error.errors(include_input=False)[0]["type"] == "json_invalid"
        code, name = (400, "not_json") if no_json else (422, "invalid_request")
        raise RefusedError(error_reply(code, name, mistakes(error))) from None


def seconds_left(request: Request, asked: float | None, settings: Settings) -> float:
    """Seconds that the work may still take: what the body or the header asks for, at most what the service allows."""
    header = request.headers.get("x-request-timeout")
    if header is not None:
        try:
            seconds = float(header)
        except ValueError:
            seconds = -1.0
        if not 0 < seconds <= 86_400:
            message = "The header X-Request-Timeout has to be a number of seconds above 0."
            raise RefusedError(error_reply(422, "invalid_request", message))
        asked = seconds if asked is None else min(asked, seconds)
    spent: float = time.perf_counter() - request.scope["surefoot"].started
    return min(asked or settings.timeout, settings.timeout) - spent
