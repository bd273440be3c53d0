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
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn

from surefoot.errors import OptionError
from surefoot.serve.app import create_app
from surefoot.serve.log import set_up_logging
from surefoot.serve.settings import ModelSource, Settings
from surefoot.serve.state import ServiceState

if TYPE_CHECKING:
    from surefoot.scoring.scorer import Scorer

logger = logging.getLogger("surefoot.serve")

KEEP_ALIVE = 75
BACKLOG = 2048
GOODBYE = 1
"""Seconds that uvicorn waits at least for connections once it stops: requests had their time before."""


@dataclass(frozen=True)
class Plan:
    """What one process has to do."""

    sources: tuple[ModelSource, ...]
    settings: Settings
    log_format: str = "text"
    log_level: str = "info"


def serve(plan: Plan, *, host: str = "127.0.0.1", port: int = 8000) -> None:
    """Serves until a signal comes."""
    set_up_logging(plan.log_format, plan.log_level)
    # Texts come one by one, from threads of our own: more threads for each of them would only stand in the way.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if plan.settings.api_key is None and not _is_loopback(host):
        logger.warning("Whoever can reach %s can use this service: no key is set. See --api-key.", host)
    listener = _listen(host, port)
    address = f"http://{host}:{listener.getsockname()[1]}"
    app = create_app(load_models(plan.sources), plan.settings)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=GOODBYE,
        ws="none",
        lifespan="on",
    )
    logger.info("Serving %s at %s (process %d).", ", ".join(app.state.state.services), address, os.getpid())
    Server(config, app.state.state).run(sockets=[listener])
    if app.state.state.stuck:
        logger.error("The time to finish is over, and something is still at work. It is left behind.")
        logging.shutdown()
        os._exit(1)


def load_models(sources: Sequence[ModelSource]) -> list[Scorer]:
    """The models, under the names that callers see; loaded by a thread that has ended when they are there.

    Every thread that has ever computed keeps a pool of OpenMP threads as long as it lives. With more of those than
    cores, they sleep at every barrier instead of waiting awake: beside the pool of a main thread that loaded the
    model, the engine would take twice as long.
    """
    loaded: Future[list[Scorer]] = Future()

    def load() -> None:
        try:
            loaded.set_result(_load_models(sources))
        except BaseException as error:
            loaded.set_exception(error)

    loader = threading.Thread(target=load, name="surefoot-load", daemon=True)
    loader.start()
    loader.join()
    return loaded.result()


def _load_models(sources: Sequence[ModelSource]) -> list[Scorer]:
    from surefoot.scoring.loading import load
    from surefoot.scoring.scorer import Scorer

    scorers = []
    for source in sources:
        scorer = load(source.place, name=source.served_name, **source.options)
        if not isinstance(scorer, Scorer):
            raise OptionError(
                f"{source.place} is a service already. Serve a folder, a hub id or a vllm+http:// address."
            )
        scorers.append(scorer)
    return scorers


class Server(uvicorn.Server):
    """uvicorn's server, which on the first signal lets everybody finish."""

    def __init__(self, config: uvicorn.Config, state: ServiceState) -> None:
        super().__init__(config)
        self._house = state

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal starts to drain, the second one ends the process."""
        if self._house.draining:
            # As SIGTERM, which uvicorn raises again at the end: after an interrupt Python would wait for our threads.
            super().handle_exit(signal.SIGTERM, frame)
            self.force_exit = True
            return
        self._house.draining = True
        self._house.until = time.monotonic() + self._house.settings.drain_seconds

    async def on_tick(self, counter: int) -> bool:
        """Leaves when nobody is inside any more, or when the time for it is over."""
        left = self._house.until - time.monotonic()
        if self._house.draining and (self._house.inside == 0 or left < 0):
            # Answers may still be on their way to slow readers.
            self.config.timeout_graceful_shutdown = max(GOODBYE, math.ceil(min(left, 3600)))
            self.should_exit = True
        return await super().on_tick(counter)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError, UnicodeError) as error:  # the last two: no port, and no name of a host
        why = getattr(error, "strerror", None) or error
        raise OptionError(f"Nothing can listen at {host}:{port}: {why}. Choose another --host or --port.") from error


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
