"""The child processes in which math-verify compares answers, and the pool that keeps them.

The rule: no comparison outlives its limit. Algebra on hostile input can run for ever inside C code that no Python
signal or thread can interrupt, so it runs in a process that can be killed: by the caller at the deadline, and by its
own alarm clock if the caller is gone. A worker ends when its stdin closes, so none is left behind.

How long a call may take, at most: WAIT_LIMIT until a worker is free, START_LIMIT if one must be started (importing
sympy), then the caller's own limit. Threads share at most POOL_SIZE workers; each serves one call at a time.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

from surefoot.errors import MissingDependencyError, OptionError

POOL_SIZE = max(1, min(4, os.cpu_count() or 1))
WAIT_LIMIT = 120.0
START_LIMIT = 60.0
MEMORY_LIMIT = 1 << 30

# Not `-m`: that would let a `random.py` in the working directory stand in for the real one. The child gets the
# caller's own sys.path instead, so that it finds the packages which the caller finds.
_BOOT = "import sys; sys.path[:] = sys.argv[1:]; from surefoot.text.math_verify_pool import main; main()"


def compare(gold: str, target: str, timeout: float) -> bool | None:
    """math-verify's verdict, or None if there was none in time."""
    return _pool.compare(gold, target, timeout)


# --- the caller's side -------------------------------------------------------------------------------------------


class _Worker:
    """One child process. Its methods are called by one thread at a time."""

    def __init__(self) -> None:
        if not sys.executable:
            raise OptionError("Comparing answers starts a Python process, and sys.executable is empty here: set it.")
        with _standard_fds_taken():
            # Unbuffered, because a buffer would be flushed a second time by a forked copy of this process.
            self._process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, *(entry for entry in sys.path if isinstance(entry, str))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def wait_until_ready(self) -> bool:
        reply = self._exchange(None, START_LIMIT)
        if reply is not None and "missing" in reply:
            raise MissingDependencyError(
                f'Comparing these answers needs math-verify ({reply["missing"]}). Run: pip install "surefoot[answers]"'
            )
        return reply is not None

    def compare(self, gold: str, target: str, timeout: float) -> tuple[bool | None, bool]:
        """The verdict, and whether this worker can serve again."""
        reply = self._exchange({"gold": gold, "target": target, "limit": timeout}, timeout)
        return (None, False) if reply is None else (reply["same"], not reply["leaving"])

    def stop(self) -> None:
        self._process.kill()
        self.close_pipes()
        # The kernel may need a moment to take back a gigabyte. If it needs longer, subprocess reaps the child later.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=2.0)

    def close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def disown(self) -> None:
        """Forget a child that belongs to the process from which this one was forked."""
        self.close_pipes()
        self._process.returncode = 0  # keeps subprocess from warning about, or waiting for, somebody else's child

    def _exchange(self, request: dict[str, Any] | None, timeout: float) -> dict[str, Any] | None:
        """Send a request, if there is one, and read one reply; None if the worker died or was killed at the limit."""
        guard = threading.Lock()
        state = {"over": False, "killed": False}

        def expire() -> None:
            with guard:
                if not state["over"]:
                    state["killed"] = True
                    self._process.kill()

        timer = threading.Timer(timeout, expire)
        timer.daemon = True
        try:
            timer.start()
            if request is not None:
                self._send(json.dumps(request).encode() + b"\n")
            reply = self._receive()
        except (OSError, RuntimeError):  # the worker is gone, or no thread can be started at interpreter exit
            return None
        finally:
            with guard:
                state["over"] = True
            timer.cancel()
        if state["killed"] or not reply.endswith(b"\n"):
            return None
        decoded: dict[str, Any] = json.loads(reply)
        return decoded

    def _send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        rest = memoryview(data)
        while rest:
            rest = rest[self._process.stdin.write(rest) :]

    def _receive(self) -> bytes:
        assert self._process.stdout is not None
        reply = b""
        while not reply.endswith(b"\n"):
            chunk = self._process.stdout.read(4096)
            if not chunk:
                break
            reply += chunk
        return reply


class _Pool:
    def __init__(self) -> None:
        self._free = threading.Semaphore(POOL_SIZE)
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._closed = False

    def compare(self, gold: str, target: str, timeout: float) -> bool | None:
        if not self._free.acquire(timeout=WAIT_LIMIT):
            return None
        try:
            worker = self._take()
            if worker is None:
                return None
            reusable = False
            try:
                verdict, reusable = worker.compare(gold, target, timeout)
                return verdict
            finally:
                # Also after an exception, such as Ctrl-C: a reply still under way must not meet the next question.
                self._give_back(worker, reusable)
        finally:
            self._free.release()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            workers = list(self._all)
        for worker in workers:
            worker.stop()

    def disown(self) -> None:
        for worker in self._all:
            worker.disown()

    def _take(self) -> _Worker | None:
        while True:
            with self._lock:
                if self._closed:
                    return None
                worker = self._idle.pop() if self._idle else None
            if worker is None:
                return self._start()
            if worker.alive:
                return worker
            self._give_back(worker, False)

    def _start(self) -> _Worker | None:
        try:
            with _fork_gate:
                worker = _Worker()
                with self._lock:
                    self._all.add(worker)
        except OSError:  # no process to be had at the moment
            return None
        ready = False
        try:
            ready = worker.wait_until_ready()
        finally:
            if not ready:
                self._give_back(worker, False)
        return worker if ready else None

    def _give_back(self, worker: _Worker, reusable: bool) -> None:
        with self._lock:
            if reusable and not self._closed:
                self._idle.append(worker)
                return
            self._all.discard(worker)
        worker.stop()


@contextlib.contextmanager
def _standard_fds_taken() -> Iterator[None]:
    """Fill descriptors 0 to 2 where they are closed, lest a pipe be taken for stdout and printed into."""
    fillers: list[int] = []
    try:
        while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
            fillers.append(fd)
        os.close(fd)
        yield
    finally:
        for fd in fillers:
            os.close(fd)


# Held while a worker is started, and by every fork: a process forked half-way would keep the worker's pipes open,
# and then neither side would learn of the other's end.
_fork_gate = threading.RLock()
_pool = _Pool()


def _after_fork_in_child() -> None:
    global _fork_gate, _pool
    _pool.disown()
    _fork_gate = threading.RLock()
    _pool = _Pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: _fork_gate.acquire(),
        after_in_parent=lambda: _fork_gate.release(),
        after_in_child=_after_fork_in_child,
    )
atexit.register(lambda: _pool.close())


# --- the child's side --------------------------------------------------------------------------------------------


def main() -> None:
    """Answer requests, one JSON line each, until stdin closes."""
    replies = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what a library prints must not be read as a reply
    _limit_resources()
    try:
        import math_verify  # noqa: F401
    except ImportError as error:
        _reply(replies, {"missing": str(error)})
        return
    _reply(replies, {"ready": True})
    for line in sys.stdin.buffer:
        request = json.loads(line)
        _set_alarm(request["limit"] + 1.0)
        leaving = False
        same: bool | None = None
        try:
            same = _verify(request["gold"], request["target"])
        except RecursionError:
            pass
        except MemoryError:
            leaving = True  # what fills the memory may stay in sympy's caches
        _set_alarm(0.0)
        _reply(replies, {"same": same, "leaving": leaving})
        if leaving:
            return


def _verify(gold: str, target: str) -> bool:
    import logging

    from math_verify import LatexExtractionConfig, parse, verify

    logging.disable()
    sides = []
    try:
        for answer in (gold, target):
            # Only LaTeX: math-verify's other reader hands the text to sympy's parse_expr, which evaluates Python.
            read = parse(
                f"\\boxed{{{answer}}}",
                [LatexExtractionConfig()],
                fallback_mode="no_fallback",
                parsing_timeout=None,
                raise_on_error=True,
            )
            if not read:
                return False
            sides.append(read)
        return bool(verify(*sides, timeout_seconds=None, raise_on_error=True))
    except (MemoryError, RecursionError):
        raise
    except Exception:
        return False


def _reply(fd: int, message: dict[str, Any]) -> None:
    try:
        os.write(fd, json.dumps(message).encode() + b"\n")
    except OSError:  # the caller is gone
        os._exit(0)


def _set_alarm(seconds: float) -> None:
    """Let the kernel end this process after so long, even while C code keeps Python from running."""
    import signal

    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _limit_resources() -> None:
    try:
        import resource
    except ImportError:  # Windows
        return
    for kind, limit in ((resource.RLIMIT_AS, MEMORY_LIMIT), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(kind)[1]
        if hard != resource.RLIM_INFINITY:
            limit = min(limit, hard)
        with contextlib.suppress(OSError, ValueError):  # macOS refuses some limits
            resource.setrlimit(kind, (limit, hard))
