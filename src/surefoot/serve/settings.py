"""How a service behaves: limits, times, key.

The rule: everything that `surefoot serve` can be told about serving is a field here, with the value it has by default;
what it is told about loading a model is in `ModelSource`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from surefoot.client.api_key import KEY_VARIABLE, is_key
from surefoot.errors import OptionError


@dataclass(frozen=True)
class ModelSource:
    """A model to serve: where it is, under which name, and how it is loaded."""

    place: str
    name: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    """Passed on to `surefoot.load`."""

    @property
    def served_name(self) -> str:
        """The name that callers see: never a path of this machine."""
        folder = Path(self.place).expanduser()
        return self.name or (folder.resolve().name if folder.is_dir() else self.place)


@dataclass(frozen=True)
class Settings:
    """What the service accepts and how long it waits."""

    max_body_bytes: int = 8 << 20
    max_items: int = 1024
    """Items in one request."""
    max_item_chars: int = 200_000
    """Characters of a question and its solution. A longer item is unscored: it would hold up others."""
    max_requests: int = 1024
    """Requests that are being answered at a time."""
    queue_tokens: int = 500_000
    """Tokens that may wait for each model."""
    linger: float = 0.003
    """Seconds that an idle engine waits for company after the first request."""
    slice_seconds: float = 0.25
    """How long the engine may be busy before it looks at who else is waiting."""
    timeout: float = 600.0
    """Seconds that a request may take, unless it names fewer."""
    drain_seconds: float = 30.0
    """Seconds that accepted requests get to finish after SIGTERM."""
    api_key: str | None = None

    def __repr__(self) -> str:
        return "Settings(...)"  # a key must not reach a log


def read_key(where: str) -> str:
    """The key from a file, or from the environment when `where` is `env`. Never from the command line itself."""
    if where == "env":
        key = os.environ.get(KEY_VARIABLE, "")
        source = f"The environment variable {KEY_VARIABLE}"
    else:
        try:
            key = Path(where).expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise OptionError(
                f"The key file cannot be read ({type(error).__name__}). --api-key takes the path of a file that holds "
                f"the key, or `env` for the variable {KEY_VARIABLE}; the key itself would be seen by everybody in `ps`."
            ) from error
        source = "The key file"
    key = key.strip()
    if not is_key(key):
        raise OptionError(f"{source} does not hold a key: one word of printable ASCII.")
    return key
