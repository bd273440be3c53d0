"""Surefoot beside its neighbours: one module a trainer.

The package itself can be called, too: `surefoot.connect("http://...")` is a client of a Surefoot service.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from surefoot.client import Client


class _Callable(ModuleType):
    """A module that is a function as well: `surefoot.connect` is both a verb and the place of the adapters."""

    def __call__(self, url: str, **options: Any) -> Client:
        """See `surefoot.client.connect`."""
        from surefoot.client import connect

        return connect(url, **options)


sys.modules[__name__].__class__ = _Callable
