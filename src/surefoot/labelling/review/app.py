"""The web application of the review page.

Invariant: it answers only requests to this machine's own names, and accepts changes only from its own page.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any, get_args

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from surefoot.display.mathematics import mathematics_script, mathematics_style
from surefoot.display.page_files import base_style, elements_script, icon, theme_script
from surefoot.errors import InputError, SurefootError
from surefoot.labelling.review.corrections import Change, ConflictError, Opinion
from surefoot.labelling.review.session import ReviewSession

logger = logging.getLogger("surefoot")

MAX_BODY_BYTES = 256 << 10
OWN_NAMES = ("127.0.0.1", "localhost")
EXPORT_NAME = "corrected.jsonl"
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}

Endpoint = Callable[[Request], Awaitable[Response]]


def create_app(session: ReviewSession) -> Starlette:
    """The application for one review."""

    async def overview(request: Request) -> Response:
        return _json(await run_in_threadpool(session.overview))

    async def detail(request: Request) -> Response:
        return _json(await run_in_threadpool(session.detail, _position(request, session)))

    one_at_a_time = asyncio.Semaphore(1)  # requests that wait must not take the threads that save changes

    async def scores(request: Request) -> Response:
        position = _position(request, session)
        async with one_at_a_time:
            found = await run_in_threadpool(session.score, position)
        if found is None:
            raise HTTPException(404, "This review has no scorer. Start it with --model.")
        return _json(found)

    async def save(request: Request) -> Response:
        position = _position(request, session)
        hash, changes = _changes(await _body(request))
        return _json(await run_in_threadpool(session.save, position, hash, changes))

    async def export(request: Request) -> Response:
        lines = await run_in_threadpool(lambda: session.corrected().lines())
        disposition = {"content-disposition": f'attachment; filename="{EXPORT_NAME}"'}
        return Response(b"".join(lines), media_type="application/jsonl", headers=disposition)

    static = files("surefoot.labelling.review").joinpath("static")
    fixed = {
        "/": (static.joinpath("review.html").read_text(encoding="utf-8"), "text/html"),
        "/static/base.css": (base_style(), "text/css"),
        "/static/review.css": (static.joinpath("review.css").read_text(encoding="utf-8"), "text/css"),
        "/static/view.js": (static.joinpath("view.js").read_text(encoding="utf-8"), "text/javascript"),
        "/static/review.js": (static.joinpath("review.js").read_text(encoding="utf-8"), "text/javascript"),
        "/static/elements.js": (elements_script(), "text/javascript"),
        "/static/theme.js": (theme_script(), "text/javascript"),
        "/static/mathematics.css": (mathematics_style(), "text/css"),
        "/static/mathematics.js": (mathematics_script(), "text/javascript"),
        "/static/icon.svg": (icon(), "image/svg+xml"),
    }
    return Starlette(
        routes=[
            *(Route(path, _fixed(content.encode(), kind)) for path, (content, kind) in fixed.items()),
            Route("/api/review", overview),
            Route("/api/export", export),
            Route("/api/solutions/{position:int}", detail, methods=["GET"]),
            Route("/api/solutions/{position:int}", save, methods=["POST"]),
            Route("/api/solutions/{position:int}/scores", scores),
        ],
        middleware=[Middleware(OwnPageOnly)],
        exception_handlers={HTTPException: _on_error, ConflictError: _on_error, SurefootError: _on_error},
    )


class OwnPageOnly:
    """Rejects requests under other names (DNS rebinding) and changes from other pages (CSRF). Adds security headers.

    The port is not compared: it differs behind an SSH tunnel. The origin of a change has to be the requested address.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", ()), *own]}
            await send(message)

        problem = _foreign(Request(scope)) if scope["type"] == "http" else None
        if problem is not None:
            await _error(403, problem)(scope, receive, send_with_headers)
        else:
            await self._app(scope, receive, send_with_headers)


def _foreign(request: Request) -> str | None:
    hosts = request.headers.getlist("host")
    if len(hosts) != 1 or hosts[0].partition(":")[0].lower() not in OWN_NAMES:
        return f"This page answers only under the names {' and '.join(OWN_NAMES)}."
    if request.method in ("GET", "HEAD"):
        return None
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    if origin not in (None, f"http://{hosts[0]}") or site not in (None, "same-origin"):
        return "Changes are accepted from the review page only."
    return None


async def _body(request: Request) -> Any:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "Send JSON, with the header Content-Type: application/json.")
    content = b""
    async for part in request.stream():
        content += part
        if len(content) > MAX_BODY_BYTES:
            raise HTTPException(413, f"The body has more than {MAX_BODY_BYTES:,} bytes.")
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise HTTPException(400, "The body is not JSON.") from None


def _changes(body: Any) -> tuple[str, list[Change]]:
    """Check the body of a change. Nothing is saved if any part of it is wrong."""
    if not isinstance(body, dict) or not isinstance(body.get("hash"), str):
        raise InputError("Send an object with `hash` and `changes`.")
    given = body.get("changes")
    if not isinstance(given, list) or not given:
        raise InputError("`changes` must be a list with at least one change.")
    changes = [_change(each) for each in given]
    if len({change.step for change in changes}) < len(changes):
        raise InputError("`changes` names a step twice.")
    return body["hash"], changes


def _change(given: Any) -> Change:
    if not isinstance(given, dict) or set(given) != {"step", "verdict", "before"}:
        raise InputError("A change has `step`, `verdict` and `before`.")
    if type(given["step"]) is not int or given["step"] < 0:
        raise InputError("`step` must be a whole number from 0.")
    for name in ("verdict", "before"):
        if given[name] is not None and given[name] not in get_args(Opinion):
            raise InputError(f"`{name}` must be one of {', '.join(get_args(Opinion))}, or null.")
    return Change(given["step"], given["verdict"], given["before"])


def _position(request: Request, session: ReviewSession) -> int:
    position: int = request.path_params["position"]
    if position >= len(session.solutions):
        raise HTTPException(404, f"There are {len(session.solutions):,} solutions.")
    return position


def _fixed(content: bytes, media_type: str) -> Endpoint:
    async def reply(request: Request) -> Response:
        return Response(content, media_type=media_type)

    return reply


async def _on_error(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        return _error(error.status_code, error.detail, error.headers)
    if isinstance(error, ConflictError):
        return _error(409, str(error))
    if isinstance(error, InputError):
        return _error(422, str(error))
    logger.error("%s", error)
    return _error(500, str(error))


def _error(code: int, message: str, headers: Any = None) -> Response:
    reply = _json({"error": message}, code)
    reply.headers.update(headers or {})
    return reply


def _json(content: Any, code: int = 200) -> Response:
    """ASCII only, because texts may have lone surrogates."""
    return Response(json.dumps(content).encode(), code, media_type="application/json")
