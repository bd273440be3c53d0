"""Reads JSONL by byte range. A line that cannot be read is set aside and does not affect the others."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from surefoot.data.columns import Columns
from surefoot.data.records import MAX_LINE_BYTES, line_entry
from surefoot.errors import InputError

if TYPE_CHECKING:
    import pyarrow

SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
JSON_COLUMN = {b"surefoot": b"json"}
"""Marks a column of JSON text in the schema: its values have no common type."""
MAX_FIELDS = 200
SHOWN_BYTES = 4096
CHUNK = 1024


@dataclass(frozen=True, slots=True)
class Line:
    """One line that is not blank: an object, or what is wrong with it."""

    number: int
    """From 0."""
    start: int
    end: int
    data: dict[str, Any] | None
    error: str = ""
    raw: str = ""


def read_lines(stream: IO[bytes], *, start: int = 0, end: int | None = None, number: int = 0) -> Iterator[Line]:
    """Yield the lines of a stream that begin between the byte offsets `start` and `end`."""
    stream.seek(start)
    at = start
    while end is None or at < end:
        raw = stream.readline(MAX_LINE_BYTES)
        if not raw:
            return
        begin, at = at, at + len(raw)
        if len(raw) == MAX_LINE_BYTES and not raw.endswith(b"\n"):
            while (rest := stream.readline(1 << 20)) and not (at := at + len(rest), rest.endswith(b"\n"))[1]:
                pass
            yield _bad(number, begin, at, raw[:SHOWN_BYTES], f"The line is longer than {MAX_LINE_BYTES >> 20} MiB.")
        elif raw.strip():
            yield _parse(raw.removeprefix(codecs.BOM_UTF8) if begin == 0 else raw, number, begin, at)
        number += 1


def _parse(raw: bytes, number: int, start: int, end: int) -> Line:
    entry = line_entry(raw, number + 1)
    if entry.error is not None:
        return _bad(number, start, end, raw, f"The line {entry.error}")
    if not isinstance(entry.data, dict):
        return _bad(number, start, end, raw, f"The line is {type(entry.data).__name__}, not an object.")
    if SURROGATE.search(raw):
        try:
            json.dumps(entry.data, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            return _bad(number, start, end, raw, "The line contains half of a surrogate pair, which is not text.")
    return Line(number, start, end, entry.data)


def _bad(number: int, start: int, end: int, raw: bytes, error: str) -> Line:
    return Line(number, start, end, None, error, raw.decode(errors="backslashreplace").rstrip("\n"))


def row_error(data: dict[str, Any], columns: Columns) -> str | None:
    """Return why a row cannot be scored, or None."""
    try:
        return None if columns.items(data) else f"`{columns.completions}` is empty."
    except InputError as error:
        return str(error)


class SchemaBuilder:
    """Finds one Arrow type per key of many objects. Keys whose values have no common type become JSON text."""

    def __init__(self) -> None:
        self._types: dict[str, pyarrow.DataType | None] = {}
        self._names: dict[str, None] = {}
        self._chunk: list[dict[str, Any]] = []

    @property
    def names(self) -> list[str]:
        """The keys of all objects."""
        return list(self._names)

    def add(self, data: dict[str, Any], *, is_valid: bool) -> None:
        """Look at one object. One that cannot be scored has no say in the types."""
        self._names |= dict.fromkeys(data)
        if is_valid:
            self._chunk.append(data)
        if len(self._chunk) == CHUNK:
            self._merge()

    def _merge(self) -> None:
        import pyarrow as pa

        for name in dict.fromkeys(name for data in self._chunk for name in data):
            before = self._types.get(name, pa.null())
            found = None if before is None else _type([data.get(name) for data in self._chunk])
            self._types[name] = None if before is None or found is None else common_type(before, found)
        self._chunk = []

    def schema(self) -> pyarrow.Schema:
        """Return the schema of everything seen."""
        import pyarrow as pa

        self._merge()
        return pa.schema([typed_field(name, found) for name, found in self._types.items()])


def _type(values: list[Any]) -> pyarrow.DataType | None:
    import pyarrow as pa

    try:
        found = pa.array(values).type
    except (pa.ArrowException, OverflowError, UnicodeError, TypeError, ValueError):
        return None
    return found if _is_storable(found) else None


def _is_storable(found: pyarrow.DataType) -> bool:
    """Whether Parquet can hold the type, and whether it is a sensible one: objects with any keys are not."""
    import pyarrow as pa

    if pa.types.is_struct(found):
        return 0 < found.num_fields <= MAX_FIELDS and all(_is_storable(each.type) for each in found)
    if pa.types.is_list(found):
        return _is_storable(found.value_type)
    return True


def common_type(first: pyarrow.DataType, second: pyarrow.DataType) -> pyarrow.DataType | None:
    """Return the type that holds the values of both, or None."""
    import pyarrow as pa

    schemas = [pa.schema([("value", each)]) for each in (first, second)]
    try:
        found = pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except pa.ArrowException:
        return None
    return found if _is_storable(found) else None


def typed_field(name: str, found: pyarrow.DataType | None) -> pyarrow.Field:
    """Return a column of this type, or of JSON text if there is none."""
    import pyarrow as pa

    if found is None:
        return pa.field(name, pa.string(), metadata=JSON_COLUMN)
    return pa.field(name, pa.string() if pa.types.is_null(found) else found)


def is_json(field: pyarrow.Field) -> bool:
    """Whether a column holds JSON text in place of values without a common type."""
    return bool(field.metadata) and field.metadata.get(b"surefoot") == b"json"


def objects_table(objects: Sequence[dict[str, Any]], schema: pyarrow.Schema) -> pyarrow.Table:
    """Return objects as a table with a schema of `SchemaBuilder`."""
    import pyarrow as pa

    try:
        return pa.table([_column(objects, field) for field in schema], schema=schema)
    except (pa.ArrowException, OverflowError) as error:
        raise InputError(f"The input has changed since the job was planned: {error}") from error


def _column(objects: Iterable[dict[str, Any]], field: pyarrow.Field) -> pyarrow.Array:
    import pyarrow as pa

    values = [each.get(field.name) for each in objects]
    if is_json(field):
        values = [None if value is None else json.dumps(value, ensure_ascii=False) for value in values]
    return pa.array(values, field.type)


def plain_rows(table: pyarrow.Table, names: Iterable[str]) -> list[dict[str, Any]]:
    """Return some columns as objects, with JSON text decoded."""
    chosen = table.select([name for name in dict.fromkeys(names) if name in table.column_names])
    encoded = [each.name for each in chosen.schema if is_json(each)]
    rows: list[dict[str, Any]] = chosen.to_pylist() if chosen.num_columns else [{} for _ in range(len(table))]
    for row in rows:
        for name in encoded:
            row[name] = None if row[name] is None else json.loads(row[name])
    return rows
