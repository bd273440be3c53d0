"""The folder in which this package stores what can be computed again."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder for caches of this user. It need not exist.

    >>> cache_folder().name
    'surefoot'
    """
    if sys.platform == "win32":
        root = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        root = Path.home() / "Library" / "Caches"
    else:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "surefoot"


def store_entry(file: Path, content: str) -> None:
    """Write a file of the cache under another name and rename it, so that no process reads half of it.

    An `OSError` leaves nothing behind.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix="new-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(content)
        Path(name).replace(file)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
