"""Reads the rows of one unit as a table with the schema of the job, and sets the others aside."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot.jobs.jsonl import is_json, objects_table, read_lines, row_error
from surefoot.jobs.parquet import ParquetReader
from surefoot.jobs.plan import Unit, key_of
from surefoot.jobs.settings import JobSettings
from surefoot.jobs.sources import Source, open_source

if TYPE_CHECKING:
    import pyarrow

SOURCE, ROW = "__surefoot_source", "__surefoot_row"
"""Where the rows of a regrouped copy come from."""


@dataclass(frozen=True)
class BadRow:
    """A row that cannot be scored, and why."""

    source: int
    row: int
    reason: str
    raw: Any
    """The line as text, or the row as an object."""


@dataclass
class UnitRows:
    """The rows of a unit."""

    table: pyarrow.Table
    sources: list[int]
    """The source of each row of the table."""
    rows: list[int]
    """Its number there."""
    bad: list[BadRow] = field(default_factory=list)


class RowReader:
    """Reads units. Keeps the file of the last unit open."""

    def __init__(self, sources: Sequence[Source], schema: pyarrow.Schema, settings: JobSettings, out: Path) -> None:
        self._sources, self._schema, self._settings, self._out = sources, schema, settings, out
        self._sampler = settings.sampler()
        self._open: tuple[int, ParquetReader] | None = None

    def read(self, unit: Unit) -> UnitRows:
        """Return the rows of a unit that belong to the sample."""
        source = self._sources[unit.source]
        found = self._jsonl(unit, source) if source.kind == "jsonl" and not _is_regrouped(source) else None
        return found or self._parquet(unit, source)

    def _path(self, source: Source) -> str:
        return str(self._out / source.staged) if source.staged else source.path

    def _jsonl(self, unit: Unit, source: Source) -> UnitRows:
        rows, objects, bad = [], [], []
        with open_source(self._path(source)) as stream:
            for line in read_lines(stream, start=unit.start, end=unit.end, number=unit.first):
                if line.data is None:
                    bad.append(BadRow(unit.source, line.number, line.error, line.raw))
                elif self._is_wanted(line.data):
                    # Before the table is made: bad rows have no say in the types of its columns.
                    if reason := row_error(line.data, self._settings.columns):
                        bad.append(BadRow(unit.source, line.number, reason, line.data))
                    else:
                        rows.append(line.number)
                        objects.append(line.data)
        return UnitRows(objects_table(objects, self._schema), [unit.source] * len(rows), rows, bad)

    def _parquet(self, unit: Unit, source: Source) -> UnitRows:
        import pyarrow as pa

        if self._open is None or self._open[0] != unit.source:
            self._open = (unit.source, ParquetReader(open_source(self._path(source)), source.path))
        table = self._open[1].read(unit.start, unit.end)
        rows = list(range(unit.start, unit.end))
        sources = [unit.source] * len(rows)
        if ROW in table.column_names:
            sources, rows = table[SOURCE].to_pylist(), table[ROW].to_pylist()
            table = table.drop_columns([SOURCE, ROW])
        elif self._settings.sample is not None:
            key = self._settings.key if self._settings.key in table.column_names else self._settings.key.split(".")[0]
            keep = [at for at, row in enumerate(table.select([key]).to_pylist()) if self._is_wanted(row)]
            table, rows, sources = (
                table.take(pa.array(keep, pa.int64())),
                [rows[at] for at in keep],
                [sources[at] for at in keep],
            )
        return UnitRows(conform(table, self._schema), sources, rows)

    def _is_wanted(self, row: dict[str, Any]) -> bool:
        key = key_of(row, self._settings.key)
        return key is None or self._sampler(key)


def _is_regrouped(source: Source) -> bool:
    return source.staged is not None and source.staged.endswith(".parquet")


def conform(table: pyarrow.Table, schema: pyarrow.Schema) -> pyarrow.Table:
    """Return a table with the schema of the job: the columns of all sources, in its order and types."""
    import pyarrow as pa

    columns = []
    for each in schema:
        if each.name not in table.column_names:
            columns.append(pa.nulls(len(table), each.type))
        elif is_json(each) and not is_json(table.schema.field(each.name)):
            values = table[each.name].to_pylist()
            columns.append(
                pa.array([None if value is None else json.dumps(value, ensure_ascii=False) for value in values])
            )
        else:
            columns.append(table[each.name].cast(each.type))
    return pa.table(columns, schema=schema)
