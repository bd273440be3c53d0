"""Describes how two settings differ, so that an error can name the difference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def differences(before: Any, after: Any, name: str = "") -> Iterator[str]:
    """Describe where two JSON-compatible values differ: `options.split: 'auto' -> 'lines'`."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys([*before, *after]):
            yield from differences(before.get(key), after.get(key), f"{name}.{key}" if name else key)
    elif before != after:
        yield f"{name}: {before!r} -> {after!r}"
