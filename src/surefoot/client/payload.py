"""Requests and replies of `/v1/score`, as plain data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import islice
from typing import Any

from surefoot.client.transport import TooLargeError
from surefoot.core.options import ReadOptions
from surefoot.core.protocols import Item
from surefoot.core.result import SolutionScore
from surefoot.data.batching import bounded_batches, check_window
from surefoot.data.items import read_item
from surefoot.errors import InputError, OptionError, ServiceError

PART_BYTES = 1 << 20
"""The most text per request, unless a single item has more."""

Row = dict[str, Any]


def read_items(items: Iterable[Item]) -> list[Row]:
    """Validates items. A malformed one raises `InputError`."""
    return [_row(item, number) for number, item in enumerate(items)]


def read_windows(items: Iterable[Item], window: int) -> Iterator[list[Row | InputError]]:
    """Validates `window` items at a time. An error takes the place of a malformed one."""
    check_window(window)
    waiting = enumerate(items)
    return (
        [_row_or_error(item, number) for number, item in part]
        for part in iter(lambda: list(islice(waiting, window)), [])
    )


def request_bodies(rows: list[Row], options: ReadOptions, model: str | None, most: int) -> list[Row]:
    """The bodies of the requests that score `rows`: at most `most` items and PART_BYTES of text each."""
    given = {name: value for name, value in {**asdict(options), "model": model}.items() if value is not None}
    parts = bounded_batches(rows, _length, max_weight=PART_BYTES, max_items=most)
    return [{**given, "items": part} for part in parts]


def halve(body: Row, error: TooLargeError) -> list[Row]:
    """Splits a request that was too large into two. A single item cannot be split: then `error` is raised."""
    items = body["items"]
    if len(items) < 2:
        raise error
    middle = len(items) // 2
    return [body | {"items": items[:middle]}, body | {"items": items[middle:]}]


def read_results(data: Any, expected: int) -> list[SolutionScore]:
    """The results in a reply: one per item sent."""
    try:
        results = [SolutionScore.from_dict(row) for row in data["results"]]
    except (KeyError, TypeError, InputError) as error:
        raise ServiceError("The reply has no results. Is this a Surefoot service of the same version?") from error
    if len(results) != expected:
        raise ServiceError(f"{expected} items were sent, but {len(results)} results came back.")
    return results


def read_models(data: Any) -> list[Row]:
    """The models in a reply of `/v1/models`."""
    try:
        return [dict(row) for row in data["data"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ServiceError("The reply does not list models. Is this a Surefoot service?") from error


def choose_model(models: list[Row], url: str, name: str | None) -> Row:
    """The description of the model that this client uses."""
    names = [row.get("id") for row in models]
    chosen = [row for row in models if name is None or row.get("id") == name]
    if len(chosen) != 1:
        problem = f"does not serve a model called {name!r}" if name is not None else "serves several models"
        listed = ", ".join(map(str, names)) or "none"
        raise OptionError(
            f"{url} {problem}. It serves: {listed}. Name one of these with --served-name (in Python: served_name=... "
            "in surefoot.load, model=... in surefoot.Client)."
        )
    row = chosen[0]
    if "fingerprint" not in row or "scale" not in row:
        hint = f" The address of a vLLM server is vllm+{url}." if row.get("owned_by") == "vllm" else ""
        raise ServiceError(f"{url} is not a Surefoot service of this version.{hint}")
    return row


def _row_or_error(item: Item, number: int) -> Row | InputError:
    try:
        return _row(item, number)
    except InputError as error:
        return error


def _row(item: Item, number: int) -> Row:
    question, solution = read_item(item, number)
    if isinstance(solution, str):
        return {"question": question, "solution": solution}
    return {"question": question, "steps": list(solution)}


def _length(row: Row) -> int:
    return len(row["question"]) + sum(len(text) for text in row.get("steps") or [row.get("solution", "")])
