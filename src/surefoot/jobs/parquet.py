"""Reads Parquet by row range: what follows the previous range is read on, so a large row group is decoded once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING

from surefoot.errors import InputError

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.parquet

BATCH_ROWS = 1024


class ParquetReader:
    """An open Parquet file. Reading ranges in ascending order is cheap; going back starts a row group again."""

    def __init__(self, stream: IO[bytes], name: str, columns: Sequence[str] | None = None) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._name, self._columns = name, columns
        try:
            self._file = pq.ParquetFile(stream, page_checksum_verification=True)
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{name} is not a Parquet file: {error}") from error
        self._starts = [0]
        for group in range(self._file.metadata.num_row_groups):
            self._starts.append(self._starts[-1] + self._file.metadata.row_group(group).num_rows)
        self._batches: Iterator[pyarrow.RecordBatch] = iter(())
        self._rest: pyarrow.RecordBatch | None = None
        self._at = self.rows

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self._starts[-1]

    @property
    def schema(self) -> pyarrow.Schema:
        """The schema without the metadata of the file."""
        return self._file.schema_arrow.remove_metadata()

    def read(self, start: int, end: int) -> pyarrow.Table:
        """Return the rows from `start` to `end`."""
        import pyarrow as pa

        if end > self.rows:
            raise InputError(f"{self._name} has {self.rows} rows; the job was planned with more. It has changed.")
        found: list[pyarrow.RecordBatch] = []
        try:
            self._seek(start)
            while self._at < end:
                batch = self._next()
                taken = batch.slice(0, end - self._at)
                self._rest = batch.slice(len(taken)) if len(taken) < len(batch) else None
                self._at += len(taken)
                found.append(taken)
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{self._name} cannot be read: {error}") from error
        schema = self.schema if self._columns is None else None
        table = pa.Table.from_batches([each.replace_schema_metadata(None) for each in found], schema)
        self._require_text(table)
        return table

    def _require_text(self, rows: pyarrow.Table | pyarrow.RecordBatch) -> None:
        """Parquet files may hold bytes in place of text, which Arrow only notices when they are used."""
        import pyarrow as pa

        try:
            rows.validate(full=True)
        except pa.ArrowInvalid as error:
            raise InputError(f"{self._name} has a column of text that is not UTF-8: {error}. Correct it.") from error

    def batches(self) -> Iterator[pyarrow.RecordBatch]:
        """Yield all rows."""
        for batch in self._iterate(0):
            self._require_text(batch)
            yield batch

    def _iterate(self, group: int) -> Iterator[pyarrow.RecordBatch]:
        groups = range(group, self._file.metadata.num_row_groups)
        # Arrow's own threads would compete with the model for the same cores.
        return self._file.iter_batches(BATCH_ROWS, groups, self._columns, use_threads=False)  # type: ignore[no-any-return]

    def _seek(self, start: int) -> None:
        group = next(at for at in reversed(range(len(self._starts))) if self._starts[at] <= start)
        if not self._starts[group] <= self._at <= start:
            self._batches, self._rest, self._at = self._iterate(group), None, self._starts[group]
        while self._at < start:
            batch = self._next()
            skipped = min(len(batch), start - self._at)
            self._rest = batch.slice(skipped) if skipped < len(batch) else None
            self._at += skipped

    def _next(self) -> pyarrow.RecordBatch:
        if self._rest is not None:
            batch, self._rest = self._rest, None
            return batch
        return next(self._batches)
