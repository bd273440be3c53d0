"""Decides which scored rows a part contains: the filter, then the best solutions per question."""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from surefoot.core.aggregation import AGGREGATIONS, find_aggregation
from surefoot.core.result import DEFAULT_AGGREGATION
from surefoot.data.columns import ABSENT, value_at
from surefoot.errors import JobError, OptionError
from surefoot.jobs.expression import EvaluationError, Expression, check_names, parse_expression
from surefoot.jobs.jsonl import plain_rows
from surefoot.jobs.plan import key_of
from surefoot.jobs.settings import REWARD, JobSettings

if TYPE_CHECKING:
    import pyarrow

RECOMMENDED = b"surefoot.recommended"
"""The key of the recommended aggregation in the metadata of a scored file."""


class Names:
    """What the names in a filter mean: fields of the result, columns of the input, and `gold`."""

    def __init__(self, settings: JobSettings, inputs: list[str], fields: list[str]) -> None:
        self._gold = settings.columns.gold
        self._prefix = settings.prefix
        self._inputs = set(inputs)
        self._fields = {name.removeprefix(settings.prefix) for name in fields}

    def check(self, expression: Expression) -> None:
        """Reject names that mean nothing or two things."""
        both = self._fields & self._inputs
        known = {f"row.{name}" for name in self._inputs} | {f"score.{name}" for name in self._fields}
        known |= (self._inputs | self._fields) - both
        if self._gold is not None:
            known.add("gold")
        for name in sorted(expression.names & both):
            raise OptionError(
                f"filter: {name!r} is a column of the input and a field of the result. Write row.{name} or "
                f"score.{name}."
            )
        check_names(expression, known)

    def column(self, name: str) -> str:
        """Return the column of the scored table, or the path into one, that a name means."""
        place, _, rest = name.partition(".")
        if place == "row" and rest:
            return rest
        if place == "score" and rest:
            return self._prefix + rest
        if name in self._fields:
            return self._prefix + name
        return self._gold if name == "gold" and self._gold is not None and name not in self._inputs else name


def check_filter(settings: JobSettings, inputs: list[str], fields: list[str]) -> None:
    """Parse the filter and check its names, before anything is scored."""
    if settings.selection.filter is not None:
        Names(settings, inputs, fields).check(parse_expression(settings.selection.filter))


def select(table: pyarrow.Table, settings: JobSettings, inputs: list[str], fields: list[str]) -> list[int]:
    """Return the indices of the rows to keep, in their order."""
    kept = list(range(len(table)))
    if settings.selection.filter is not None:
        expression = parse_expression(settings.selection.filter)
        names = Names(settings, inputs, fields)
        columns = {name: names.column(name) for name in expression.names}
        rows = plain_rows(table, [each for path in columns.values() for each in (path, path.partition(".")[0])])
        kept = [at for at in kept if _holds(expression, rows[at], columns, at)]
    if settings.selection.best_of is not None:
        kept = _best(table, settings, kept, settings.selection.best_of)
    return kept


def _holds(expression: Expression, row: Mapping[str, Any], columns: Mapping[str, str], at: int) -> bool:
    def value(name: str) -> Any:
        found = value_at(row, columns[name])
        return None if found is ABSENT else found

    try:
        return expression.evaluate(value) is True
    except EvaluationError as error:
        raise JobError(f"The filter fails on result {at} of this part: {error}") from error


def _best(table: pyarrow.Table, settings: JobSettings, kept: list[int], count: int) -> list[int]:
    ranks = _ranks(table, settings)
    keys = plain_rows(table, [settings.key, settings.key.partition(".")[0]])
    groups: dict[Any, list[int]] = {}
    for at in kept:
        if ranks[at] is not None:  # an unscored solution is never among the best
            key = key_of(keys[at], settings.key)
            groups.setdefault(at if key is None else key, []).append(at)
    best = [heapq.nsmallest(count, group, key=_descending(ranks)) for group in groups.values()]
    return sorted(at for group in best for at in group)


def _descending(ranks: list[float | None]) -> Callable[[int], tuple[float, int]]:
    return lambda at: (-(ranks[at] or 0.0), at)


def _ranks(table: pyarrow.Table, settings: JobSettings) -> list[float | None]:
    recommended = json.loads((table.schema.metadata or {}).get(RECOMMENDED, b"null"))
    name = settings.selection.rank_by or recommended or DEFAULT_AGGREGATION
    column = settings.prefix + name
    if name == REWARD or column in table.column_names:
        return list(table[column].to_pylist())
    scores = table[f"{settings.prefix}step_scores"].to_pylist()
    scales = table[f"{settings.prefix}scale"].to_pylist()
    aggregate = find_aggregation(name)
    return [
        None if AGGREGATIONS[name].needs_probabilities and scale != "probability" else aggregate.function(each)
        for each, scale in zip(scores, scales, strict=True)
    ]
