"""The HTTP service. `create_app` builds the ASGI application, `surefoot serve` runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from surefoot.serve.settings import ModelSource, Settings

if TYPE_CHECKING:
    from surefoot.serve.app import create_app

__all__ = ["ModelSource", "Settings", "create_app"]


def __getattr__(name: str) -> Any:
    if name == "create_app":  # needs the packages of the `serve` extra
        from surefoot.serve.app import create_app

        return create_app
    raise AttributeError(f"module 'surefoot.serve' has no attribute {name!r}")
