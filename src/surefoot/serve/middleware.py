"""ASGI middleware: API key, backpressure, request ids, security headers, access log, request metrics.

Of what a client sends, only a well-formed request id is logged or echoed. An internal error becomes a JSON reply
without a stack trace.
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

PUBLIC_PATHS = ("/", "/health", "/ready", "/openapi.json")
"""Paths that need no API key, in addition to /static/."""
PROBES = ("/health", "/ready", "/metrics")
REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
CLIENT_CLOSED_REQUEST = 499
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
    """An error as JSON; `close` also closes the connection."""
    body = json.dumps({"error": {"type": kind, "message": message, "code": code}}, ensure_ascii=False)
    reply = Response(body.encode("utf-8", "replace"), code, media_type="application/json")
    if retry_after is not None:
        reply.headers["retry-after"] = str(max(1, min(60, round(retry_after))))
    if close:
        reply.headers["connection"] = "close"
    return reply


class ServiceMiddleware:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, state: ServiceState, routes: frozenset[str]) -> None:
        self._app = app
        self._state = state
        self._routes = routes
        key = state.settings.api_key
        self._key = None if key is None else sha256(key.encode()).digest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request, or the lifespan of the process."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        exchange = Exchange(given if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex, send)
        scope["surefoot"] = exchange
        is_work = scope["method"] == "POST"
        try:
            rejection = self._rejection(scope["path"], headers, is_work)
            if rejection is not None:
                await rejection(scope, receive, exchange.send)
                return
            self._state.in_flight += is_work
            try:
                await self._app(scope, receive, exchange.send)
            finally:
                self._state.in_flight -= is_work
        except asyncio.CancelledError:
            # The drain period is over. Without this reply, uvicorn would report an internal error.
            if not exchange.status:
                message = "The service stopped before this request was computed. Retry with another instance."
                await error_reply(503, "stopping", message, 1, close=True)(scope, receive, exchange.send)
            raise
        except Exception:
            logger.exception("A request failed.", extra={"request_id": exchange.id})
            if not exchange.status:
                message = f"Internal error. The log of the service has details under the request id {exchange.id}."
                await error_reply(500, "internal_error", message)(scope, receive, exchange.send)
        finally:
            self._record(scope, exchange)

    def _rejection(self, path: str, headers: Headers, is_work: bool) -> Response | None:
        if self._key is not None and path not in PUBLIC_PATHS and not path.startswith("/static/"):
            scheme, _, key = headers.get("authorization", "").partition(" ")
            matches = hmac.compare_digest(sha256(key.strip().encode("utf-8", "replace")).digest(), self._key)
            if scheme.lower() != "bearer" or not matches:
                message = "Send the API key of this service: Authorization: Bearer KEY."
                reply = error_reply(401, "unauthorized", message)
                reply.headers["www-authenticate"] = "Bearer"
                return reply
        if is_work and self._state.draining:
            message = "The service is stopping. Retry with another instance."
            return error_reply(503, "stopping", message, 1, close=True)
        if is_work and self._state.in_flight >= self._state.settings.max_requests:
            return error_reply(429, "too_many_requests", "Too many requests are in progress. Retry later.", 1)
        return None

    def _record(self, scope: Scope, exchange: Exchange) -> None:
        path = scope["path"] if scope["path"] in self._routes else "other"
        status = exchange.status or CLIENT_CLOSED_REQUEST
        seconds = time.perf_counter() - exchange.started
        self._state.metrics.requests.labels(path, str(status)).inc()
        self._state.metrics.seconds.labels(path).observe(seconds)
        logger.log(
            logging.DEBUG if path in PROBES else logging.INFO,
            "%s %s %d %.1f ms",
            scope["method"] if len(scope["method"]) < 8 else "other",
            path,
            status,
            1000 * seconds,
            extra={
                "request_id": exchange.id,
                "status": status,
                "ms": round(1000 * seconds, 1),
                **exchange.log_fields,
            },
        )


class Exchange:
    """A request and its reply, in progress."""

    def __init__(self, id: str, send: Send) -> None:
        self.id = id
        self.started = time.perf_counter()
        self.status = 0
        """The status code of the reply, once it is sent."""
        self.log_fields: dict[str, Any] = {}
        """Fields for the log line: the number of items and tokens."""
        self._send = send

    async def send(self, message: Message) -> None:
        """Sends a part of the reply, with our headers."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["x-request-id"] = self.id
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await self._send(message)
