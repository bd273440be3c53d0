"""Run math-verify in a pool of child processes, each of which is killed at the deadline.

Invariant: no comparison outlives its time limit, and no child outlives its caller. Algebra on hostile input can run
forever inside C code that no Python signal or thread can interrupt. The caller therefore kills the child at the
deadline, and the child's own alarm clock ends it if the caller is gone. An idle child exits when its stdin closes.

A call takes at most WAIT_LIMIT seconds until a worker is free, START_LIMIT if one has to be started (importing sympy
is slow), and then the caller's own timeout. Threads share at most POOL_SIZE workers; each serves one call at a time.

Why not a library: pebble's pool runs a script without a `__main__` guard again in every child, cannot start in a
daemonic process (such as a DataLoader worker), and stays broken after its idle workers have been killed.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
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

# Not `-m`: with it, a `random.py` in the working directory would shadow the real one. The child gets the caller's
# sys.path instead, so that both find the same packages.
_BOOT = f"import sys; sys.path[:] = sys.argv[1:]; from {__name__} import main; main()"


def compare(gold: str, target: str, timeout: float) -> bool | None:
    """Return math-verify's verdict, or None if there was none in time."""
    return pool.compare(gold, target, timeout)


# --- the caller's side -------------------------------------------------------------------------------------------


class Worker:
    """One child process, used by one thread at a time."""

    def __init__(self) -> None:
        if not sys.executable:
            raise OptionError("Comparing answers starts a Python process, but sys.executable is empty. Set it first.")
        with _standard_fds_taken():
            # Unbuffered: a forked copy of this process would flush a buffer a second time.
            self.process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, *(entry for entry in sys.path if isinstance(entry, str))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def wait_until_ready(self) -> bool:
        reply = self.exchange(None, START_LIMIT)
        if reply is not None and "missing" in reply:
            raise MissingDependencyError(
                f'Comparing these answers needs math-verify ({reply["missing"]}). Run: pip install "surefoot[answers]"'
            )
        return reply is not None

    def exchange(self, request: dict[str, Any] | None, timeout: float) -> dict[str, Any] | None:
        """Send the request, if any, and read one reply; None if the worker died or was killed at the deadline."""
        expired = threading.Event()

        def expire() -> None:
            expired.set()
            self.process.kill()

        timer = threading.Timer(timeout, expire)
        timer.daemon = True
        try:
            timer.start()
        except RuntimeError:  # threads cannot be started during interpreter shutdown
            return None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        reply = b""
        try:
            rest = memoryview(b"" if request is None else json.dumps(request).encode() + b"\n")
            while rest:
                rest = rest[self.process.stdin.write(rest) :]
            while not reply.endswith(b"\n") and (chunk := self.process.stdout.read(4096)):
                reply += chunk
        except OSError:
            return None
        finally:
            timer.cancel()
            timer.join()  # from here on the timer cannot kill a worker that serves the next call
        if expired.is_set() or not reply.endswith(b"\n"):
            return None
        decoded: dict[str, Any] = json.loads(reply)
        return decoded

    def stop(self) -> None:
        self.process.kill()
        self._close_pipes()
        # The kernel may need a moment to free a gigabyte. If it takes longer, subprocess reaps the child later.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=2.0)

    def disown(self) -> None:
        """Forget a child that belongs to the process from which this one was forked."""
        self._close_pipes()
        self.process.returncode = 0  # keeps subprocess from waiting for the child, or warning about it

    def _close_pipes(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


class Pool:
    def __init__(self) -> None:
        self.slots = threading.Semaphore(POOL_SIZE)
        self._idle: list[Worker] = []
        self.workers: set[Worker] = set()
        self._closed = False

    def compare(self, gold: str, target: str, timeout: float) -> bool | None:
        if not self.slots.acquire(timeout=WAIT_LIMIT):
            return None
        try:
            worker = self._take()
            if worker is None:
                return None
            reply = None
            try:
                reply = worker.exchange({"gold": gold, "target": target, "limit": timeout}, timeout)
            finally:
                # Also runs after Ctrl-C: a late reply must not be read as the answer to the next request.
                self._give_back(worker, reusable=reply is not None)
            return None if reply is None else reply["same"]
        finally:
            self.slots.release()

    def close(self) -> None:
        with _lock:
            self._closed = True
            workers = list(self.workers)
        for worker in workers:
            worker.stop()

    def _take(self) -> Worker | None:
        while True:
            with _lock:
                worker = self._idle.pop() if self._idle else None
            if worker is None:
                return self._start()
            if worker.alive:
                return worker
            self._give_back(worker, reusable=False)

    def _start(self) -> Worker | None:
        try:
            with _lock:
                if self._closed:
                    return None
                worker = Worker()
                self.workers.add(worker)
        except OSError:  # for example, too many processes
            return None
        ready = False
        try:
            ready = worker.wait_until_ready()
            return worker if ready else None
        finally:
            if not ready:
                self._give_back(worker, reusable=False)

    def _give_back(self, worker: Worker, *, reusable: bool) -> None:
        with _lock:
            if reusable:
                self._idle.append(worker)
                return
            self.workers.discard(worker)
        worker.stop()


@contextlib.contextmanager
def _standard_fds_taken() -> Iterator[None]:
    """Open descriptors 0 to 2 if they are closed, so that no pipe becomes stdout and gets printed to."""
    fillers: list[int] = []
    try:
        while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
            fillers.append(fd)
        os.close(fd)
        yield
    finally:
        for fd in fillers:
            os.close(fd)


# Guards the pool's lists and the start of a worker. Every fork takes it too: a process forked while a worker starts
# would keep that worker's pipes open, and then neither side would notice that the other has ended.
_lock = threading.RLock()
pool = Pool()


def _after_fork_in_child() -> None:
    global _lock, pool
    for worker in pool.workers:
        worker.disown()
    _lock = threading.RLock()
    pool = Pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: _lock.acquire(),
        after_in_parent=lambda: _lock.release(),
        after_in_child=_after_fork_in_child,
    )
atexit.register(lambda: pool.close())


# --- the child's side --------------------------------------------------------------------------------------------


def main() -> None:
    """Answer requests, one line of JSON each, until stdin closes."""
    import logging

    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nothing that a library prints may be read as a reply
    logging.disable()
    _limit_resources()
    try:
        import math_verify  # noqa: F401
    except ImportError as error:
        print(json.dumps({"missing": str(error)}), file=replies)
        return
    print(json.dumps({"ready": True}), file=replies)
    for line in sys.stdin.buffer:
        request = json.loads(line)
        _set_alarm(request["limit"] + 1.0)
        same = _verify(request["gold"], request["target"])
        _set_alarm(0.0)
        print(json.dumps({"same": same}), file=replies)


# A solved inequality is an interval. An unsolved one, such as 2x+1<7, may only restate the question.
_SOLVED = re.compile(
    r"[A-Za-z]\s*(?:<|>|\\le|\\ge)[^A-Za-z<>]*(?:\\[A-Za-z]+[^A-Za-z<>]*)*"
    r"|[^A-Za-z<>]*(?:\\(?!le|ge)[A-Za-z]+[^A-Za-z<>]*)*(?:<|>|\\le|\\ge)\s*[A-Za-z]\s*(?:(?:<|>|\\le|\\ge).*)?"
)
_CALCULATION = re.compile(r"[^A-Za-z=<>]*=[^A-Za-z=<>]*")


def _verify(gold: str, target: str) -> bool | None:
    """Return whether the two are equal; None if math-verify understands neither or fails."""
    import sympy
    from math_verify import verify

    try:
        sides = [_parse(gold), _parse(target)]
        if not all(sides):
            return False if any(sides) else None
        if any(each.has(sympy.nan, sympy.zoo) for side in sides for each in side if isinstance(each, sympy.Basic)):
            return False  # a division by zero is not a value
        if verify(*sides, timeout_seconds=None, raise_on_error=True):
            return True
        # math-verify turns an inequality into an interval, and `2+3=5` into 5, on one side only. Other equations are
        # not turned around: the reference 2x+z=1 does not accept 1.
        if _SOLVED.fullmatch(target) or _CALCULATION.fullmatch(gold):
            return bool(verify(*sides[::-1], timeout_seconds=None, raise_on_error=True))
        return False
    except MemoryError:
        os._exit(1)  # sympy's caches may still hold what filled the memory
    except Exception:
        return None


def _parse(answer: str) -> list[Any]:
    import sympy
    from math_verify import LatexExtractionConfig, LatexNormalizationConfig, parse

    # Units are compared by the caller; math-verify would remove them, and the m of 5m.
    notation = LatexNormalizationConfig(units=False, malformed_operators=True, nits=True)
    try:
        # LaTeX only: math-verify's other parser passes the text to sympy's parse_expr, which evaluates Python.
        read = parse(
            f"\\boxed{{{answer}}}",
            [LatexExtractionConfig(normalization_config=notation)],
            fallback_mode="no_fallback",
            parsing_timeout=None,
            raise_on_error=True,
        )
    except (MemoryError, RecursionError):
        raise
    except Exception:
        return []
    # In an answer, i is the imaginary unit.
    return [
        each.subs({name: sympy.I for name in each.free_symbols if str(name) == "i"})
        if isinstance(each, sympy.Basic | sympy.MatrixBase) and any(str(name) == "i" for name in each.free_symbols)
        else each
        for each in read
    ]


def _set_alarm(seconds: float) -> None:
    """Have the kernel end this process after `seconds` (0: never), even if C code keeps Python from running."""
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
