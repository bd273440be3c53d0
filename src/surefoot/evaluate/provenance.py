"""How a report was made: date, data, model, versions and command."""

from __future__ import annotations

import platform
import shlex
import sys
from collections.abc import Mapping
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version

from surefoot._version import __version__

PACKAGES = ("torch", "transformers")
"""The packages on which scores depend."""


def provenance(
    *, data: str | None = None, fingerprint: str | None = None, command: str | None = None, now: datetime | None = None
) -> Mapping[str, str]:
    """Return what a report says about how it was made. What is not known is left out.

    >>> made = evaluate.provenance(data="rows.jsonl", command="surefoot eval processbench")
    >>> list(made)
    ['date', 'data', 'versions', 'command']
    """
    when = (now or datetime.now(timezone.utc)).astimezone(timezone.utc)
    facts = {
        "date": f"{when:%Y-%m-%d %H:%M} UTC",
        "data": data,
        "model fingerprint": fingerprint,
        "versions": ", ".join([f"surefoot {__version__}", *_installed(), f"Python {platform.python_version()}"]),
        "command": command,
    }
    return {name: value for name, value in facts.items() if value is not None}


def command_line() -> str:
    """Return the command that runs, as a shell takes it. Keys are in files, so it has no secrets."""
    return shlex.join(["surefoot", *sys.argv[1:]])


def _installed() -> list[str]:
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return found
