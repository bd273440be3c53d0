"""Services to test with: the real server, in a thread or as the process that a user starts."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import Signals

import httpx

import surefoot
from surefoot.scoring.ensemble import Ensemble
from surefoot.serve import Settings, create_app
from surefoot.serve.server import Server
from surefoot.serve.state import ServiceState

QUESTION = "What is 2 + 3 * 4?"
SOLUTION = "Step 1: 3 * 4 = 12.\nStep 2: 2 + 12 = 14.\nFinal Answer: 14"
READY = 60.0


@contextmanager
def served(
    scorers: Iterable[surefoot.Scorer | Ensemble], settings: Settings | None = None
) -> Iterator[tuple[str, ServiceState]]:
    """The address of a service in this process, and its state."""
    app = create_app(scorers, settings)
    listener = socket.create_server(("127.0.0.1", 0))
    server = Server(app)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", app.state.service
    finally:
        server.should_exit = True
        thread.join()


class Command:
    """`surefoot serve` as a process of its own. It is ended when the test ends."""

    def __init__(self, model: Path | str, *options: str, port: int = 0) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "surefoot.cli", "serve", "--model", f"small={model}", "--port", str(port), *options],
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
        self.lines: list[str] = []
        self.url = ""
        self._said = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._said.wait(READY), self.lines
        assert self.url, "".join(self.lines)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def port(self) -> int:
        return httpx.URL(self.url).port or 0

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.lines.append(line)
            found = re.search(r"Serving .* at (http://\S+) ", line)
            if found and not self.url:
                self.url = found.group(1)
                self._said.set()
        self._said.set()

    def signal(self, number: Signals) -> None:
        self._process.send_signal(number)

    def wait(self, seconds: float = 30.0) -> int:
        return self._process.wait(seconds)

    def __enter__(self) -> Command:
        deadline = time.monotonic() + READY
        while time.monotonic() < deadline:
            try:
                if httpx.get(f"{self.url}/ready").status_code == 200:
                    return self
            except httpx.TransportError:
                pass
            time.sleep(0.05)
        raise AssertionError("the service did not become ready: " + "".join(self.lines))

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._reader.join(5)
