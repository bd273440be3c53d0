"""Settings of the service, and the models it serves.

`Settings` holds every option of `surefoot serve` about serving, with its default; `ModelSource` those about loading.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class ModelSource:
    """A model to serve, its name and how to load it."""

    model: str
    """A folder, a hub id, `mini` or a `vllm+http://` address."""
    name: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    """Arguments of `surefoot.load`."""

    @property
    def served_name(self) -> str:
        """The name that clients see; never a path on this machine."""
        folder = Path(self.model).expanduser()
        return self.name or (folder.resolve().name if folder.is_dir() else self.model)


@dataclass(frozen=True)
class Settings:
    """Limits and timeouts of the service, and its API key."""

    max_header_bytes: int = 32 << 10
    """Bytes of the request line and the headers; each header counts 32 bytes more than its name and value."""
    max_body_bytes: int = 8 << 20
    max_items: int = 1024
    """Items per request."""
    max_item_chars: int = 200_000
    """Characters of a question and its solution. A longer item is unscored: it would block others."""
    max_requests: int = 1024
    """Requests in progress at the same time."""
    queue_tokens: int = 500_000
    """Tokens queued per model."""
    linger: float = 0.003
    """Seconds that an idle engine waits for more requests to batch."""
    batch_seconds: float = 0.25
    """Target duration of a batch: how long a new request waits for the engine at most if few are queued."""
    timeout: float = 600.0
    """Seconds that a request may take; a request can only lower it."""
    header_timeout: float = 10.0
    """Seconds that the request line and the headers may take to arrive."""
    body_timeout: float = 60.0
    """Seconds that the body may take to arrive."""
    drain_seconds: float = 30.0
    """Seconds that accepted requests have to finish after SIGTERM."""
    api_key: str | None = None

    def __repr__(self) -> str:
        return "Settings(...)"  # the API key must not reach a log
