"""The ASGI application: routes, page, middleware, and the reply to each kind of error."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from html import escape
from importlib.resources import files

from fastapi import FastAPI, Security
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from surefoot._version import __version__
from surefoot.core.aggregation import AGGREGATIONS
from surefoot.core.protocols import StepScorer
from surefoot.display.mathematics import mathematics_script, mathematics_style
from surefoot.display.page_files import base_style, elements_script, icon, theme_script
from surefoot.display.search_tree import search_tree_script, search_tree_style
from surefoot.errors import InputError, MissingDependencyError, OptionError, UnreachableError
from surefoot.serve.middleware import CLIENT_CLOSED_REQUEST, ServiceMiddleware, error_reply
from surefoot.serve.request_body import RejectedError
from surefoot.serve.routes import api, public
from surefoot.serve.scheduler import ClosedError, QueueFullError, TooLargeError
from surefoot.serve.schemas import summarize_errors
from surefoot.serve.settings import Settings
from surefoot.serve.state import ServiceState, UnknownModelError

logger = logging.getLogger("surefoot.serve")

PAGE = {
    "/": ("page.html", "text/html"),
    "/static/page.css": ("page.css", "text/css"),
    "/static/page.js": ("page.js", "text/javascript"),
    "/static/files.js": ("files.js", "text/javascript"),
    "/static/searches.js": ("searches.js", "text/javascript"),
}
"""Files of this package: their name and their type by path."""
SHARED = {
    "/static/base.css": (base_style, "text/css"),
    "/static/elements.js": (elements_script, "text/javascript"),
    "/static/theme.js": (theme_script, "text/javascript"),
    "/static/mathematics.css": (mathematics_style, "text/css"),
    "/static/mathematics.js": (mathematics_script, "text/javascript"),
    "/static/icon.svg": (icon, "image/svg+xml"),
    "/static/search_tree.css": (search_tree_style, "text/css"),
    "/static/search_tree.js": (search_tree_script, "text/javascript"),
}
"""What the page shares with reports and with the review of labels."""


def create_app(scorers: Iterable[StepScorer], settings: Settings | None = None) -> FastAPI:
    """The application that serves these models. Its `state.service` is their `ServiceState`."""
    state = ServiceState(scorers, settings or Settings())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await state.close_before_deadline()

    described = (route.path for route in (*public.routes, *api.routes) if isinstance(route, APIRoute))
    app = FastAPI(
        title="Surefoot",
        description="Scores every step of a solution with a process reward model.",
        version=__version__,
        docs_url=None,  # both pages would load scripts from other hosts
        redoc_url=None,
        lifespan=lifespan,
        middleware=[
            Middleware(
                ServiceMiddleware,
                state=state,
                routes=frozenset({"/openapi.json", *PAGE, *SHARED, *described}),
            )
        ],
        exception_handlers=dict.fromkeys(ERRORS, _on_error),
    )
    app.state.service = state
    app.include_router(public)
    key = [] if state.settings.api_key is None else [Security(HTTPBearer(auto_error=False))]  # the middleware checks it
    app.include_router(api, dependencies=key)
    static = files("surefoot.serve").joinpath("static")
    for path, (name, media_type) in PAGE.items():
        content = static.joinpath(name).read_text(encoding="utf-8").replace("{{ aggregations }}", _aggregations())
        app.add_route(path, _fixed(content.encode(), media_type), include_in_schema=False)
    for path, (read, media_type) in SHARED.items():
        app.add_route(path, _fixed(read().encode(), media_type), include_in_schema=False)
    return app


def _aggregations() -> str:
    """Names and labels of the aggregations in results, for an attribute of the page."""
    return escape(json.dumps([[each.name, each.label] for each in AGGREGATIONS.values() if each.in_results]))


def _fixed(content: bytes, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    async def reply(request: Request) -> Response:
        return Response(content, media_type=media_type, headers={"cache-control": "no-cache"})

    return reply


ERRORS: tuple[type[Exception], ...] = (
    RejectedError,
    RequestValidationError,
    InputError,
    OptionError,
    TooLargeError,
    QueueFullError,
    ClosedError,
    MissingDependencyError,
    UnreachableError,
    ClientDisconnect,
    HTTPException,
)


async def _on_error(request: Request, error: Exception) -> Response:
    if isinstance(error, ClientDisconnect):
        request.app.state.service.metrics.disconnects.inc()
    return _reply(error)


def _reply(error: Exception) -> Response:
    match error:
        case RejectedError():
            return error.reply
        case RequestValidationError():
            return error_reply(422, "invalid_request", summarize_errors(error.errors()))
        case UnknownModelError():
            return error_reply(422, "unknown_model", str(error))
        case InputError() | OptionError():
            return error_reply(422, "invalid_request", str(error))
        case TooLargeError():
            return error_reply(413, "too_large", str(error))
        case QueueFullError():
            return error_reply(429, "queue_full", str(error), error.retry_after)
        case ClosedError():
            return error_reply(503, "stopping", str(error), 1)
        case MissingDependencyError():
            logger.error("%s", error)
            message = 'This service cannot compare answers. Its operator has to: pip install "surefoot[answers]"'
            return error_reply(501, "missing_dependency", message)
        case UnreachableError():
            return error_reply(503, "engine_unreachable", "The engine of this service is unreachable.", 5)
        case ClientDisconnect():
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        case HTTPException():
            messages = {
                404: "No such route. /openapi.json lists all routes.",
                405: "This route does not support the method.",
            }
            reply = error_reply(error.status_code, "no_such_route", messages.get(error.status_code, error.detail))
            reply.headers.update(error.headers or {})
            return reply
    raise error
