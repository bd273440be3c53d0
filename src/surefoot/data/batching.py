"""Splits sequences into batches of bounded count and weight."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from surefoot.errors import OptionError

T = TypeVar("T")


def bounded_batches(
    items: Iterable[T], weight: Callable[[T], int], *, max_weight: int, max_items: int | None = None
) -> Iterator[list[T]]:
    """Yields consecutive items in batches of at most `max_items` and `max_weight` together.

    An item that alone weighs more than `max_weight` gets a batch of its own.
    """
    batch: list[T] = []
    total = 0
    for item in items:
        size = weight(item)
        if batch and (len(batch) == max_items or total + size > max_weight):
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size
    if batch:
        yield batch


def check_window(window: int) -> None:
    """Raise `OptionError` if a stream would take no items at a time."""
    if window < 1:
        raise OptionError(f"window={window} is empty. Pass a number above 0.")
