"""Serves the review page on this machine, until Ctrl+C."""

from __future__ import annotations

import socket
import threading
import webbrowser
from collections.abc import Callable

import uvicorn

from surefoot.errors import OptionError
from surefoot.labelling.review.app import create_app
from surefoot.labelling.review.session import ReviewSession

HOST = "127.0.0.1"
SHUTDOWN_SECONDS = 3
"""How long open requests may take after Ctrl+C. Changes are saved within milliseconds, scores may take longer."""


def serve_review(
    session: ReviewSession, *, port: int = 0, browser: bool = True, tell: Callable[[str], object] = print
) -> None:
    """Serve the page and tell its address. Returns after Ctrl+C."""
    listener = _listen(port)
    address = f"http://{HOST}:{listener.getsockname()[1]}/"
    tell(address)
    if browser:  # in a thread: a browser in the terminal blocks until it is closed
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
    try:
        review_server(session).run(sockets=[listener])
    except KeyboardInterrupt:  # uvicorn raises it again after it has stopped
        pass
    finally:
        listener.close()


def review_server(session: ReviewSession) -> uvicorn.Server:
    """Return the server, which finishes changes before it stops."""
    config = uvicorn.Config(
        create_app(session),
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        lifespan="off",
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )
    return uvicorn.Server(config)


def _listen(port: int) -> socket.socket:
    try:
        return socket.create_server((HOST, port))
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise OptionError(f"Cannot listen on {HOST}:{port}: {why}. Choose another --port.") from error
