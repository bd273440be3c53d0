"""The process, or several of them behind one port.

The rule: models are loaded before the first request is taken, and never again. SIGTERM: what is inside is finished,
new work gets 503, then the process ends; a second signal ends it at once. Of several processes the first one decides:
a signal may reach all of them (from a terminal, from systemd), and must not count twice.
"""

from __future__ import annotations

import ipaddress
import logging
import math
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from multiprocessing.context import SpawnProcess
from multiprocessing.synchronize import Event
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn

from surefoot.errors import OptionError, SurefootError
from surefoot.serve.app import create_app
from surefoot.serve.log import set_up_logging
from surefoot.serve.settings import ModelSource, Settings
from surefoot.serve.state import ServiceState

if TYPE_CHECKING:
    from surefoot.scoring.scorer import Scorer

logger = logging.getLogger("surefoot.serve")

KEEP_ALIVE = 75
BACKLOG = 2048
RESTART_SECONDS = 1.0
GOODBYE = 1
"""Seconds that uvicorn waits at least for connections once it stops: requests had their time before."""


@dataclass(frozen=True)
class Plan:
    """What one process has to do."""

    sources: tuple[ModelSource, ...]
    settings: Settings
    log_format: str = "text"
    log_level: str = "info"


def serve(plan: Plan, *, host: str = "127.0.0.1", port: int = 8000, workers: int = 1) -> None:
    """Serves until a signal comes."""
    set_up_logging(plan.log_format, plan.log_level)
    # Texts come one by one, from threads of our own: more threads for each of them would only stand in the way.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if workers < 1:
        raise OptionError(f"workers={workers} would serve nobody. Give a number above 0.")
    if plan.settings.api_key is None and not _is_loopback(host):
        logger.warning("Whoever can reach %s can use this service: no key is set. See --api-key.", host)
    listener = _listen(host, port)
    address = f"http://{host}:{listener.getsockname()[1]}"
    if workers == 1:
        _serve_here(plan, listener, address)
    else:
        _serve_with_workers(plan, listener, address, workers)


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

    def __init__(self, config: uvicorn.Config, state: ServiceState, *, decides: bool = True) -> None:
        super().__init__(config)
        self._house = state
        self._decides = decides

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal closes the door; the second one ends the process, unless another process decides that."""
        if not self._decides and (self._house.draining or sig == signal.SIGINT):
            return
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


def _serve_here(plan: Plan, listener: socket.socket, address: str, loaded: Event | None = None) -> None:
    """Serves in this process. As a worker it says when its models are `loaded`, and leaves decisions to its parent."""
    app = create_app(load_models(plan.sources), plan.settings)
    if loaded is not None:
        loaded.set()
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
    Server(config, app.state.state, decides=loaded is None).run(sockets=[listener])
    if app.state.state.stuck:
        logger.error("The time to finish is over, and something is still at work. It is left behind.")
        logging.shutdown()
        os._exit(1)


def _serve_with_workers(plan: Plan, listener: socket.socket, address: str, workers: int) -> None:
    """Processes that take connections from one socket. One that dies is replaced."""
    stop = False
    children: list[SpawnProcess] = []
    loaded = multiprocessing.get_context("spawn").Event()

    def on_signal(sig: int, frame: FrameType | None) -> None:
        nonlocal stop
        how = signal.SIGKILL if stop else signal.SIGTERM
        stop = True
        for child in children:
            _end(child, how)

    def start(place: int) -> None:
        if stop:
            return
        children[place : place + 1] = [_start_worker(plan, listener, address, loaded)]
        if stop:  # a signal came before the worker was in the list
            _end(children[place])

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    for place in range(workers):
        start(place)
    while any(child.is_alive() for child in children):
        time.sleep(0.2)
        for place, child in enumerate(children):
            if child.is_alive() or stop:
                continue
            if child.exitcode == 2 and not loaded.is_set():
                on_signal(signal.SIGTERM, None)
                raise OptionError("A worker could not start; its message is above.")
            logger.error("Worker %s ended with %s; starting another.", child.pid, child.exitcode)
            time.sleep(RESTART_SECONDS)
            start(place)


def _end(child: SpawnProcess, how: signal.Signals = signal.SIGTERM) -> None:
    if child.pid is not None and child.is_alive():
        os.kill(child.pid, how)


def _start_worker(plan: Plan, listener: socket.socket, address: str, loaded: Event) -> SpawnProcess:
    child = multiprocessing.get_context("spawn").Process(target=_worker, args=(plan, listener, address, loaded))
    child.start()
    return child


def _worker(plan: Plan, listener: socket.socket, address: str, loaded: Event) -> None:
    set_up_logging(plan.log_format, plan.log_level)
    threading.Thread(target=_follow_parent, name="surefoot-parent", daemon=True).start()
    # Ctrl+C reaches every process of the terminal; the first process says when to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        _serve_here(plan, listener, address, loaded)
    except SurefootError as error:
        logger.error("%s", error)
        raise SystemExit(2) from error


def _follow_parent() -> None:
    """Stops when the first process is gone: nobody would replace, stop or even find this one."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError, UnicodeError) as error:  # the last two: no port, and no name of a host
        why = getattr(error, "strerror", None) or error
        raise OptionError(f"Nothing can listen at {host}:{port}: {why}. Choose another --host or --port.") from error
    listener.set_inheritable(True)
    return listener


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
