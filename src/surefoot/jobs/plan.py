"""Cuts the input into units: ranges of rows that are scored together and written as one part.

A unit holds whole questions, because the solutions of a question share tokens. Units do not depend on who scores them,
so the same plan always gives the same scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot.data.columns import ABSENT, value_at
from surefoot.data.messages import is_conversation, question_of
from surefoot.errors import InputError, OptionError
from surefoot.jobs.jsonl import SchemaBuilder, common_type, is_json, read_lines, row_error, typed_field
from surefoot.jobs.parquet import ParquetReader
from surefoot.jobs.settings import JobSettings
from surefoot.jobs.sources import Source, open_source, tail_hash

if TYPE_CHECKING:
    import pyarrow

MAX_GROWTH = 8
"""A unit may grow to this many times `unit_rows` to keep a question whole; then the question is divided."""

Key = str | None
"""What the rows of a group share; None for a row that cannot be read."""


@dataclass(frozen=True)
class Unit:
    """A range of one source. `start` and `end` are byte offsets of JSONL and rows of Parquet."""

    number: int
    source: int
    first: int
    """The number of the first row in its file, from 0: for JSONL, its line."""
    rows: int
    """Rows to score: those of the sample."""
    start: int
    end: int


@dataclass(frozen=True)
class Plan:
    """The sources with their rows, the schema of their rows, and the units."""

    sources: tuple[Source, ...]
    schema: pyarrow.Schema
    units: tuple[Unit, ...]

    @property
    def rows(self) -> int:
        """The rows of all units."""
        return sum(unit.rows for unit in self.units)


def make_plan(sources: list[Source], settings: JobSettings, out: Path, first_unit: int = 0) -> Plan:
    """Read the input once and cut it into units, numbered from `first_unit`."""
    units: list[Unit] = []
    schemas: list[pyarrow.Schema] = []
    names: dict[str, None] = {}
    scanned: list[Source] = []
    for number, source in enumerate(sources):
        scan = scan_source(source, settings, out)
        for start, end, first, rows in scan.ranges:
            units.append(Unit(first_unit + len(units), number, first, rows, start, end))
        schemas.append(scan.schema)
        names |= dict.fromkeys(scan.names)
        scanned.append(replace(source, rows=scan.rows, tail=scan.tail))
    schema = merge_schemas(schemas, sources)
    settings.columns.require(names)
    if settings.key.partition(".")[0] not in names and settings.key not in names:
        raise OptionError(f"The input has no column {settings.key!r}. It has: {', '.join(names)}.")
    return Plan(tuple(scanned), schema, tuple(units))


@dataclass
class Scan:
    """What one pass over a source finds."""

    schema: pyarrow.Schema
    names: list[str]
    """All columns, also those of rows that cannot be scored."""
    ranges: list[tuple[int, int, int, int]]
    """Start, end, first row and rows of each unit."""
    rows: int
    tail: str = ""


def scan_source(source: Source, settings: JobSettings, out: Path, begin: int = 0, number: int = 0) -> Scan:
    """Read a source; JSONL from the byte `begin`, where the line `number` starts."""
    path = str(out / source.staged) if source.staged else source.path
    wanted = _sampled(settings.sampler())
    if source.kind == "jsonl":
        return _scan_jsonl(path, settings, wanted, begin, number)
    with open_source(path) as stream:
        reader = ParquetReader(stream, source.path)
        schema = reader.schema
    with open_source(path) as stream:
        top = settings.key if settings.key in schema.names else settings.key.partition(".")[0]
        keys = ParquetReader(stream, source.path, [top])
        cutter = Cutter(settings.unit_rows)
        rows = (data for batch in keys.batches() for data in batch.to_pylist()) if top in schema.names else ()
        for row, data in enumerate(rows):
            cutter.add(key_of(data, settings.key), row, row + 1, row, wanted)
    return Scan(schema, schema.names, cutter.finish(), reader.rows)


def _scan_jsonl(path: str, settings: JobSettings, wanted: Callable[[Key], bool], begin: int, number: int) -> Scan:
    builder, cutter = SchemaBuilder(), Cutter(settings.unit_rows)
    with open_source(path) as stream:
        for line in read_lines(stream, start=begin, number=number):
            key = None if line.data is None else key_of(line.data, settings.key)
            if line.data is not None:
                builder.add(line.data, is_valid=row_error(line.data, settings.columns) is None)
            cutter.add(key, line.start, line.end, line.number, wanted)
            number = line.number + 1
        size = stream.seek(0, 2)
    return Scan(builder.schema(), builder.names, cutter.finish(), number, f"{size} {number} {tail_hash(path, size)}")


class Cutter:
    """Cuts consecutive rows into ranges that hold whole groups."""

    def __init__(self, rows: int) -> None:
        self._most = rows
        self._ranges: list[tuple[int, int, int, int]] = []
        self._start = self._end = self._first = self._count = 0
        self._key: Key = None

    def add(self, key: Key, start: int, end: int, number: int, wanted: Callable[[Key], bool]) -> None:
        """Add the next row, which spans `start` to `end`."""
        if self._count >= self._most and (key is None or key != self._key or self._count >= MAX_GROWTH * self._most):
            self._close()
        if not self._count:
            self._start, self._first = start, number
        self._end, self._key = end, key
        self._count += wanted(key)

    def _close(self) -> None:
        if self._count:
            self._ranges.append((self._start, self._end, self._first, self._count))
        self._count = 0

    def finish(self) -> list[tuple[int, int, int, int]]:
        """Return all ranges."""
        self._close()
        return self._ranges


def _sampled(sampler: Callable[[str], bool]) -> Callable[[Key], bool]:
    # A row that cannot be read belongs to every sample, so that it is reported.
    return lambda key: key is None or sampler(key)


def key_of(row: Mapping[str, Any], name: str) -> Key:
    """Return what tells the group of a row: its question, or another value as text."""
    found = value_at(row, name)
    if found is ABSENT or found is None:
        return None
    if isinstance(found, str):
        return found
    if is_conversation(found):
        try:
            return question_of(found)
        except InputError:
            return None
    return repr(found)


def merge_schemas(schemas: Sequence[pyarrow.Schema], sources: Sequence[Source]) -> pyarrow.Schema:
    """Return one schema for the rows of all sources. A column that a source lacks is null there.

    Values of JSONL files that have no common type are kept as JSON text; other files have to agree.
    """
    import pyarrow as pa

    merged: dict[str, pyarrow.Field] = {}
    for schema, source in zip(schemas, sources, strict=True):
        for found in schema:
            before = merged.get(found.name, found)
            json_text = is_json(before) or is_json(found)
            common = None if json_text else common_type(before.type, found.type)
            if common is None and not json_text and any(each.kind != "jsonl" for each in sources):
                raise InputError(
                    f"Column {found.name!r} is {found.type} in {source.path} and {before.type} in the files before it. "
                    "Convert it, or run one job per type."
                )
            merged[found.name] = typed_field(found.name, common)
    return pa.schema(list(merged.values()))


def units_table(units: tuple[Unit, ...]) -> pyarrow.Table:
    """Return the units as a table."""
    import pyarrow as pa

    schema = pa.schema([(name, pa.int64()) for name in Unit.__dataclass_fields__])
    return pa.Table.from_pylist([asdict(unit) for unit in units], schema)


def read_units(table: pyarrow.Table) -> Iterator[Unit]:
    """Yield the units in a table."""
    for row in table.to_pylist():
        yield Unit(**row)
