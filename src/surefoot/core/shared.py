"""Creates what a process needs once, such as a loaded model, and shares it among all callers."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")

_lock = threading.Lock()
_shared: dict[Hashable, _Lazy] = {}


class _Lazy:
    """A value that is created on first use. Concurrent callers wait for this value only."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._value: list[Any] = []

    def get(self, create: Callable[[], Any]) -> Any:
        with self._lock:
            if not self._value:
                self._value.append(create())
            return self._value[0]


def shared(create: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function so that this process calls it once per distinct arguments, which may be dicts and lists."""

    @wraps(create)
    def find(*args: P.args, **options: P.kwargs) -> T:
        key = (create, _key(args), _key(options))
        with _lock:
            lazy = _shared.setdefault(key, _Lazy())
        return cast("T", lazy.get(lambda: create(*args, **options)))

    return find


def _key(value: Any) -> Hashable:
    """Return a hashable equivalent of an argument."""
    if isinstance(value, Mapping):
        return ("dict", *sorted((str(name), _key(each)) for name, each in value.items()))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ("list", *map(_key, value))
    if isinstance(value, Path):
        return str(value)
    return value if isinstance(value, Hashable) else repr(value)


def forget_shared() -> None:
    """Drop everything that this process shares."""
    global _lock
    _lock = threading.Lock()
    _shared.clear()


if hasattr(os, "register_at_fork"):
    # A forked process creates its own: threads, locks and devices do not survive a fork.
    os.register_at_fork(after_in_child=forget_shared)
