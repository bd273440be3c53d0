"""Run code that a critic wrote, in a process without network and with limits on time, memory and output.

Invariant: code runs only where the network can be taken away from it: on Linux, with user namespaces. Elsewhere
`require_isolation` raises. The process starts in an empty folder. It can read files that its user can read, but what it
prints only reaches the critic's prompt.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from functools import cache

from surefoot.errors import OptionError

SECONDS = 5
"""Computing time of one code block, as in GenPRM's code."""
WALL_SECONDS = 20
MEMORY = 1 << 30
MAX_OUTPUT = 10_000
"""The most characters of output that the critic sees."""
TIMED_OUT = "Code execute time out: Code execution timed out"
UNAVAILABLE = (
    "code='run' needs Linux with user namespaces, to run a critic's code without network, and this system does not "
    "allow that ({why}). Use code='off' or code='written'."
)
RUNNER = """
import ctypes, contextlib, io, json, os, resource, sys
CLONE_NEWNET, CLONE_NEWUSER = 0x40000000, 0x10000000
if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWUSER | CLONE_NEWNET):
    print(json.dumps({"isolated": False, "why": os.strerror(ctypes.get_errno())}))
    raise SystemExit
job = json.load(sys.stdin)
limits = ((resource.RLIMIT_CPU, job["seconds"]), (resource.RLIMIT_AS, job["memory"]), (resource.RLIMIT_CORE, 0),
          (resource.RLIMIT_FSIZE, 1 << 20), (resource.RLIMIT_NOFILE, 32), (resource.RLIMIT_NPROC, 0))
for what, limit in limits:
    resource.setrlimit(what, (limit, limit))
names, output = {"__name__": "__main__"}, ""
for number, code in enumerate(job["blocks"]):
    written = io.StringIO()
    try:
        with contextlib.redirect_stdout(written):
            exec(code, names)
        output = written.getvalue().strip()
    except BaseException as error:
        output = f"Code execute Error: {type(error).__name__}: {error}"
sys.__stdout__.write(json.dumps({"isolated": True, "output": output[:job["most"]]}))
sys.__stdout__.flush()
os._exit(0)
"""


class CodeSession:
    """The code blocks of one solution. Later blocks may use names that earlier ones define, so these run again.

    session = CodeSession(["x = 3"])
    await session.run("print(x + 2)")  # "5"
    """

    def __init__(self, earlier: Sequence[str] = ()) -> None:
        require_isolation()
        self._blocks = list(earlier)

    async def run(self, code: str) -> str:
        """Run a block after all earlier ones. Return what it prints, or the error, as GenPRM's code words it."""
        self._blocks.append(code)
        reply = await _run(self._blocks)
        return TIMED_OUT if reply is None else str(reply.get("output", ""))


@cache
def require_isolation() -> None:
    """Raise `OptionError` unless code can be run without network."""
    if not sys.platform.startswith("linux"):
        raise OptionError(UNAVAILABLE.format(why=f"it is {sys.platform}"))
    reply = asyncio.run(_run([])) if not _in_event_loop() else _in_thread()
    if reply is None or not reply.get("isolated"):
        raise OptionError(UNAVAILABLE.format(why="no answer" if reply is None else reply.get("why")))


async def _run(blocks: Sequence[str]) -> dict[str, object] | None:
    """Run blocks in a new process. None if it was stopped, or failed without an answer."""
    job = {"blocks": list(blocks), "seconds": SECONDS * max(1, len(blocks)), "memory": MEMORY, "most": MAX_OUTPUT}
    with tempfile.TemporaryDirectory(prefix="surefoot-code-") as folder:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-c",
            RUNNER,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd=folder,
            env={"PATH": os.defpath, "HOME": folder},
        )
        try:
            written, _ = await asyncio.wait_for(process.communicate(json.dumps(job).encode()), WALL_SECONDS)
            reply = json.loads(written)
            return reply if isinstance(reply, dict) else None
        except (asyncio.TimeoutError, ValueError):
            return None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _in_thread() -> dict[str, object] | None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(_run([]))).result()
