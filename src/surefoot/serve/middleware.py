"""What every request passes on its way in and out: key, number of guests, request id, headers, log, numbers.

The rule: nothing that a caller sent is logged or repeated but a well-formed request id; whatever goes wrong inside
leaves as JSON without a trace of the code.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import re
import time
import uuid
from hashlib import sha256
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from surefoot.serve.state import ServiceState

logger = logging.getLogger("surefoot.serve")

OPEN = ("/", "/health", "/ready", "/openapi.json")
"""Paths that need no key, and whatever is static."""
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def error_reply(
    code: int, kind: str, message: str, retry_after: float | None = None, *, close: bool = False
) -> Response:
    """A refusal: what is wrong, and what to do."""
    body = json.dumps({"error": {"type": kind, "message": message, "code": code}}, ensure_ascii=False)
    reply = Response(body.encode("utf-8", "replace"), code, media_type="application/json")
    if retry_after is not None:
        reply.headers["retry-after"] = str(max(1, min(60, round(retry_after))))
    if close:
        reply.headers["connection"] = "close"
    return reply


class Gate:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, state: ServiceState, routes: frozenset[str]) -> None:
        self._app = app
        self._house = state
        self._routes = routes
        key = state.settings.api_key
        self._key = None if key is None else sha256(key.encode()).digest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the start and end of the process."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        visit = _Visit(given if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex, send)
        scope["surefoot"] = visit
        works = scope["method"] == "POST"
        try:
            refusal = self._refusal(scope["path"], headers, works)
            if refusal is not None:
                await refusal(scope, receive, visit.send)
                return
            self._house.inside += works
            try:
                await self._app(scope, receive, visit.send)
            finally:
                self._house.inside -= works
        except asyncio.CancelledError:
            # The time to finish is over. Who waits is told so; otherwise uvicorn would say that something broke.
            if not visit.status:
                message = "The service stops before this was computed. Send it to another one."
                await error_reply(503, "stopping", message, 1, close=True)(scope, receive, visit.send)
            raise
        except Exception:
            logger.exception("A request failed.", extra={"request_id": visit.id})
            if not visit.status:
                message = f"Something broke here. The log of the service has it under {visit.id}."
                await error_reply(500, "internal_error", message)(scope, receive, visit.send)
        finally:
            self._note(scope, visit)

    def _refusal(self, path: str, headers: Headers, works: bool) -> Response | None:
        if self._key is not None and path not in OPEN and not path.startswith("/static/"):
            scheme, _, key = headers.get("authorization", "").partition(" ")
            right = hmac.compare_digest(sha256(key.strip().encode("utf-8", "replace")).digest(), self._key)
            if scheme.lower() != "bearer" or not right:
                reply = error_reply(401, "unauthorized", "Send the key of this service: Authorization: Bearer KEY.")
                reply.headers["www-authenticate"] = "Bearer"
                return reply
        if works and self._house.draining:
            return error_reply(503, "stopping", "The service is stopping. Send it to another one.", 1, close=True)
        if works and self._house.inside >= self._house.settings.max_requests:
            return error_reply(429, "too_many_requests", "Too many requests are inside. Try again later.", 1)
        return None

    def _note(self, scope: Scope, visit: _Visit) -> None:
        path = scope["path"] if scope["path"] in self._routes else "other"
        seconds = time.perf_counter() - visit.started
        self._house.metrics.requests.labels(path, str(visit.status or 499)).inc()
        self._house.metrics.seconds.labels(path).observe(seconds)
        level = logging.DEBUG if path in ("/health", "/ready", "/metrics") else logging.INFO
        logger.log(
            level,
            "%s %s %d %.1f ms",
            scope["method"] if len(scope["method"]) < 8 else "other",
            path,
            visit.status or 499,
            1000 * seconds,
            extra={
                "request_id": visit.id,
                "status": visit.status or 499,
                "ms": round(1000 * seconds, 1),
                **visit.notes,
            },
        )


class _Visit:
    """One request on its way through."""

    def __init__(self, id: str, send: Send) -> None:
        self.id = id
        self.started = time.perf_counter()
        self.status = 0
        self.notes: dict[str, Any] = {}
        """For the log: how many items and tokens it had."""
        self._send = send

    async def send(self, message: Message) -> None:
        """Adds our headers to the reply."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["x-request-id"] = self.id
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await self._send(message)
