"""Read items: check them, and split their solutions into steps."""

from __future__ import annotations

from surefoot.core.options import ReadOptions
from surefoot.core.protocols import Item
from surefoot.core.solution import Solution
from surefoot.data.items import MAX_STEPS, over_limit, read_item
from surefoot.errors import InputError
from surefoot.text.split import split


class OverLimitError(InputError):
    """The item is valid, but too large to be read."""


def read_and_split(item: Item, number: int, options: ReadOptions) -> tuple[str, Solution]:
    """Return the question of an item and its split solution. Errors name the item by its `number`."""
    question, given = read_item(item, number)
    if reason := over_limit(question, given):
        raise OverLimitError(reason)
    solution = split(given, options.split, closing=options.closing, thinking=options.thinking)
    if len(solution.steps) > MAX_STEPS:
        raise OverLimitError(f"The solution has {len(solution.steps):,} steps; the limit is {MAX_STEPS:,}.")
    return question, solution
