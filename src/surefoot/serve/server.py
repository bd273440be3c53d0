"""Runs the service: loads the models, listens, and drains on SIGTERM or SIGINT.

Models are loaded before the first request is accepted, and never again. The first signal stops new work (503) and lets
accepted requests finish; a second one ends the process at once.
"""

from __future__ import annotations

import ipaddress
import logging
import math
import os
import signal
import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

import uvicorn
from fastapi import FastAPI

from surefoot.core.addresses import is_service
from surefoot.errors import OptionError
from surefoot.scoring.combining import Combine, MissingMember
from surefoot.scoring.ensemble import Ensemble
from surefoot.serve.app import create_app
from surefoot.serve.log import set_up_logging
from surefoot.serve.protocol import BoundedHttpProtocol
from surefoot.serve.settings import ModelSource, Settings
from surefoot.serve.state import ServiceState

if TYPE_CHECKING:
    from surefoot.core.protocols import StepScorer

logger = logging.getLogger("surefoot.serve")

KEEP_ALIVE = 75
BACKLOG = 2048
MIN_SHUTDOWN_SECONDS = 1
"""Seconds that uvicorn waits at least for open connections after the drain period."""


@dataclass(frozen=True)
class Plan:
    """What to serve, and how."""

    sources: tuple[ModelSource, ...]
    settings: Settings
    log_format: str = "text"
    log_level: str = "info"
    combine: Combine | None = None
    """Serve all models as one ensemble that is combined by this rule."""
    missing: MissingMember = "unscored"


def serve(plan: Plan, *, host: str = "127.0.0.1", port: int = 8000) -> None:
    """Loads the models and serves them until a signal stops the process."""
    set_up_logging(plan.log_format, plan.log_level)
    # Our own threads encode one text at a time. More threads per text would only compete for the cores.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if plan.settings.api_key is None and not _is_loopback(host):
        logger.warning("No API key is set: anyone who can reach %s can use this service. See --api-key.", host)
    listener = _listen(host, port)
    address = f"http://{host}:{listener.getsockname()[1]}"
    loaded = load_models(plan.sources)
    app = create_app(loaded if plan.combine is None else [Ensemble(loaded, plan.combine, plan.missing)], plan.settings)
    state: ServiceState = app.state.service
    logger.info("Serving %s at %s (process %d).", ", ".join(state.models), address, os.getpid())
    Server(app).run(sockets=[listener])
    if state.stuck:
        logger.error("The drain period ended while work was still running. The work is abandoned.")
        logging.shutdown()
        os._exit(1)


def load_models(sources: Sequence[ModelSource]) -> list[StepScorer]:
    """Loads the models in a thread that ends with the loading.

    Each thread that has computed keeps a pool of OpenMP threads as long as it lives. With more of these than cores,
    they sleep at every barrier instead of spinning: if the main thread kept such a pool, the engine would take twice as
    long.
    """
    loaded: Future[list[StepScorer]] = Future()

    def load() -> None:
        try:
            loaded.set_result(_load_models(sources))
        except BaseException as error:
            loaded.set_exception(error)

    loader = threading.Thread(target=load, name="surefoot-load", daemon=True)
    loader.start()
    loader.join()
    return loaded.result()


def _load_models(sources: Sequence[ModelSource]) -> list[StepScorer]:
    from surefoot.scoring.loading import load

    scorers = []
    for source in sources:
        if is_service(source.model) and "critic" not in source.options:
            raise OptionError(
                f"{source.model} is a service already. Serve a folder, a hub id or a vllm+http:// address."
            )
        scorers.append(load(source.model, name=source.served_name, **source.options))
    return scorers


class Server(uvicorn.Server):
    """uvicorn's server, with our limits, which drains on the first signal."""

    def __init__(self, app: FastAPI) -> None:
        self._state: ServiceState = app.state.service
        protocol: Any = partial(BoundedHttpProtocol, service=self._state)
        config = uvicorn.Config(
            app,
            http=protocol,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=MIN_SHUTDOWN_SECONDS,
            ws="none",
            lifespan="on",
        )
        super().__init__(config)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Starts to drain on the first signal; ends the process on the second one."""
        if self._state.draining:
            # uvicorn raises the signal again at the end. After SIGINT, Python would wait for our threads.
            super().handle_exit(signal.SIGTERM, frame)
            self.force_exit = True
            return
        self._state.draining = True
        self._state.deadline = time.monotonic() + self._state.settings.drain_seconds

    async def on_tick(self, counter: int) -> bool:
        """Stops once no request is in flight, or when the drain period is over."""
        remaining = self._state.deadline - time.monotonic()
        if self._state.draining and (self._state.in_flight == 0 or remaining < 0):
            # Replies may still be on their way to slow clients.
            self.config.timeout_graceful_shutdown = max(MIN_SHUTDOWN_SECONDS, math.ceil(min(remaining, 3600)))
            self.should_exit = True
        return await super().on_tick(counter)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError, UnicodeError) as error:  # the last two: an invalid port or host name
        why = getattr(error, "strerror", None) or error
        raise OptionError(f"Cannot listen on {host}:{port}: {why}. Choose another --host or --port.") from error


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
