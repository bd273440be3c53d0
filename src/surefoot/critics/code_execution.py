"""Run code that a critic wrote, in a sandbox: without network, with limits on time, memory and output.

Invariant: code runs only inside bubblewrap. It sees the Python installation and the system's libraries, read-only, and
an empty folder in memory; no other files, processes, sockets or environment variables. Where bubblewrap is missing or
not allowed, `require_sandbox` raises.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from functools import cache

from surefoot.errors import OptionError

SECONDS = 5
"""Computing time of one code block, as in GenPRM's code."""
WALL_SECONDS = 20
MEMORY = 1 << 30
MAX_OUTPUT = 10_000
"""The most characters of output that the critic sees."""
MAX_REPLY = 1 << 17
"""The most bytes that are read from the sandbox."""
TIMED_OUT = "Code execute time out: Code execution timed out"
UNAVAILABLE = (
    "code='run' needs bubblewrap (Linux; Debian: apt install bubblewrap) to run a critic's code without network and "
    "files, and it cannot be used here: {why}. Use code='off' or code='written'."
)
SYSTEM_FOLDERS = ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache")
RUNNER = """
import contextlib, io, json, os, resource, sys
job = json.load(sys.stdin)
limits = ((resource.RLIMIT_CPU, job["seconds"]), (resource.RLIMIT_AS, job["memory"]), (resource.RLIMIT_CORE, 0),
          (resource.RLIMIT_FSIZE, 1 << 20), (resource.RLIMIT_NOFILE, 32), (resource.RLIMIT_NPROC, 0))
for what, limit in limits:
    resource.setrlimit(what, (limit, limit))
names, output = {"__name__": "__main__"}, ""
for code in job["blocks"]:
    written = io.StringIO()
    try:
        with contextlib.redirect_stdout(written):
            exec(code, names)
        output = written.getvalue().strip()
    except BaseException as error:
        output = f"Code execute Error: {type(error).__name__}: {error}"
sys.__stdout__.write(json.dumps({"output": output[:job["most"]]}))
sys.__stdout__.flush()
os._exit(0)
"""


class CodeSession:
    """The code blocks of one solution. Later blocks may use names that earlier ones define, so these run again.

    session = CodeSession(["x = 3"])
    await session.run("print(x + 2)")  # "5"
    """

    def __init__(self, earlier: Sequence[str] = ()) -> None:
        require_sandbox()
        self._blocks = list(earlier)

    async def run(self, code: str) -> str:
        """Run a block after all earlier ones. Return what it prints, or the error, as GenPRM's code words it."""
        self._blocks.append(code)
        reply = await asyncio.to_thread(_run, list(self._blocks))
        return TIMED_OUT if reply is None else reply[:MAX_OUTPUT]


@cache
def require_sandbox() -> None:
    """Raise `OptionError` unless code can be run in a sandbox."""
    if shutil.which("bwrap") is None:
        raise OptionError(UNAVAILABLE.format(why="the program bwrap is not installed"))
    try:
        tried = subprocess.run([*_command(), "-c", "print(7)"], capture_output=True, timeout=WALL_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise OptionError(UNAVAILABLE.format(why=error)) from error
    if tried.stdout.strip() != b"7":
        why = tried.stderr.decode(errors="replace").strip()[-200:] or f"exit code {tried.returncode}"
        raise OptionError(UNAVAILABLE.format(why=why))


def _command() -> list[str]:
    """The Python interpreter in a sandbox. It ends with this process, and with it all processes that it started."""
    shown = dict.fromkeys((*SYSTEM_FOLDERS, sys.base_prefix, sys.prefix))
    binds = [part for folder in shown for part in ("--ro-bind-try", folder, folder)]
    isolation = ["--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL"]
    return ["bwrap", *isolation, *binds, "--tmpfs", "/tmp", "--chdir", "/tmp", sys.executable, "-I"]


def _run(blocks: Sequence[str]) -> str | None:
    """Run blocks in a new sandbox. None if it was stopped, or failed without an answer."""
    job = {"blocks": list(blocks), "seconds": SECONDS * len(blocks), "memory": MEMORY, "most": MAX_OUTPUT}
    process = subprocess.Popen(
        [*_command(), "-c", RUNNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdin is not None
    assert process.stdout is not None
    watch = threading.Timer(WALL_SECONDS, process.kill)
    watch.start()
    try:
        process.stdin.write(json.dumps(job).encode())
        process.stdin.close()
        # More than that is not an answer. Killing the sandbox ends all processes in it.
        reply = json.loads(process.stdout.read(MAX_REPLY))
        return str(reply["output"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    finally:
        watch.cancel()
        process.kill()
        process.stdout.close()
        process.wait()
