"""Holds an output folder for one run, so that two runs never write to it at the same time."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from surefoot.errors import JobError


@contextmanager
def locked(out: Path, own: str) -> Iterator[None]:
    """Hold the folder `out` by a lock in its subfolder `own`. The lock ends with the process, however it ends."""
    from filelock import FileLock, Timeout

    owner = out / own / "owner.json"
    lock = FileLock(out / own / "lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        try:
            told = json.loads(owner.read_text())
            who = f"process {told['pid']} on {told['host']} since {told['since']}"
        except (OSError, ValueError, KeyError):
            who = "another process"
        raise JobError(f"{out} is in use by {who}. Wait for it to finish, or stop it.") from None
    try:
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        owner.write_text(json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "since": since}))
        yield
    finally:
        owner.unlink(missing_ok=True)
        lock.release()
