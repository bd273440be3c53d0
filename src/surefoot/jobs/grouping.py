"""Brings the rows of each group together, wherever they are in the input, with bounded memory.

It is an external sort by the first row of each group, so groups keep the order in which they first appear:

1. The hash of every row's group goes to disk, in buckets that fit into memory. A bucket tells the first row per group.
2. Rows are distributed to partitions by the first row of their group. Each partition is sorted in memory.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from surefoot.data.files import write_file
from surefoot.jobs.folder import OWN
from surefoot.jobs.jsonl import plain_rows
from surefoot.jobs.plan import Plan, Unit, key_of, scan_source
from surefoot.jobs.rows import ROW, SOURCE, BadRow, RowReader, UnitRows
from surefoot.jobs.settings import JobSettings
from surefoot.jobs.sources import Source
from surefoot.jobs.staging import FOLDER, write_batches
from surefoot.jobs.unit import error_line, write_lines

if TYPE_CHECKING:
    import pyarrow

BUCKET_ROWS = 2_000_000
PARTITION_BYTES = 64 << 20
MAX_PARTITIONS = 256
BINS = 65_536
PAIR = np.dtype([("group", np.uint64), ("row", np.int64)])


def regroup(plan: Plan, settings: JobSettings, out: Path) -> tuple[Plan, int]:
    """Return a plan over a regrouped copy of the input, and the number of rows that cannot be read."""
    work = out / OWN / "input" / "sorting"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    reader = RowReader(plan.sources, plan.schema, settings, out)
    size, bad = _write_hashes(plan, settings, reader, work)
    lines = [error_line(plan.sources[each.source], each) for each in bad]
    if lines:
        write_lines(out, f"{OWN}/errors/input.jsonl", lines)
    copies = _sort(plan, settings, reader, size, work, out) if size.rows else []
    shutil.rmtree(work)
    units: list[Unit] = []
    # Rows keep the numbers of their true sources; the copies come after those in the list.
    sources = list(plan.sources)
    for copy in copies:
        scan = scan_source(copy, replace(settings, sample=None), out)
        for start, end, first, rows in scan.ranges:
            units.append(Unit(len(units), len(sources), first, rows, start, end))
        sources.append(copy)
    return Plan(tuple(sources), plan.schema, tuple(units)), len(lines)


@dataclass(frozen=True)
class _Size:
    rows: int
    bytes: int
    buckets: int


def _write_hashes(plan: Plan, settings: JobSettings, reader: RowReader, work: Path) -> tuple[_Size, list[BadRow]]:
    buckets = max(1, -(-plan.rows // BUCKET_ROWS))
    rows = size = 0
    bad: list[BadRow] = []
    with ExitStack() as stack:
        files = [stack.enter_context((work / f"hashes-{at}").open("wb")) for at in range(buckets)]
        for unit in plan.units:
            read = reader.read(unit)
            bad += read.bad
            pairs = np.empty(len(read.rows), PAIR)
            pairs["group"] = [_hash(key, rows + at) for at, key in enumerate(_keys(read, settings))]
            pairs["row"] = np.arange(rows, rows + len(pairs))
            for at, file in enumerate(files):
                file.write(pairs[pairs["group"] % np.uint64(buckets) == at].tobytes())
            rows += len(pairs)
            size += read.table.nbytes
    return _Size(rows, size, buckets), bad


def _keys(read: UnitRows, settings: JobSettings) -> list[str | None]:
    names = [settings.key, settings.key.partition(".")[0]]
    return [key_of(row, settings.key) for row in plain_rows(read.table, names)]


def _hash(key: str | None, row: int) -> int:
    """A row without a key is a group of its own."""
    text = f"row {row}" if key is None else f"key {key}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def _first_rows(size: _Size, work: Path) -> list[Any]:
    """Per bucket, its rows and the first row of the group of each, in ascending order."""
    found = []
    for at in range(size.buckets):
        pairs = np.fromfile(work / f"hashes-{at}", PAIR)
        _, first, group = np.unique(pairs["group"], return_index=True, return_inverse=True)
        np.stack([pairs["row"], pairs["row"][first[group]]], 1).tofile(work / f"first-{at}")
        rows = len(pairs)
        del pairs
        path = work / f"first-{at}"
        found.append(np.memmap(path, np.int64, "r", shape=(rows, 2)) if rows else np.empty((0, 2), np.int64))
    return found


class _Lookup:
    """The first row of the group of every row, for ranges of rows in ascending order."""

    def __init__(self, buckets: list[Any]) -> None:
        self._buckets, self._at = buckets, [0] * len(buckets)

    def range(self, start: int, end: int) -> NDArray[np.int64]:
        first = np.empty(end - start, np.int64)
        for number, bucket in enumerate(self._buckets):
            stop = int(np.searchsorted(bucket[:, 0], end))
            rows = np.asarray(bucket[self._at[number] : stop])
            first[rows[:, 0] - start] = rows[:, 1]
            self._at[number] = stop
        return first


def _sort(plan: Plan, settings: JobSettings, reader: RowReader, size: _Size, work: Path, out: Path) -> list[Source]:
    import pyarrow as pa

    buckets = _first_rows(size, work)
    partitions = min(MAX_PARTITIONS, max(1, -(-size.bytes // PARTITION_BYTES)))
    cuts = _cuts(_Lookup(buckets), size.rows, partitions)
    schema = pa.schema([*plan.schema, (SOURCE, pa.int32()), (ROW, pa.int64())])
    sorting = schema.append(pa.field("first", pa.int64()))
    lookup, at = _Lookup(buckets), 0
    with ExitStack() as stack:
        writers = [stack.enter_context(pa.ipc.new_stream(str(work / f"rows-{p}"), sorting)) for p in range(len(cuts))]
        for unit in plan.units:
            read = reader.read(unit)
            first = lookup.range(at, at + len(read.rows))
            at += len(read.rows)
            columns = [pa.array(read.sources, pa.int32()), pa.array(read.rows, pa.int64()), pa.array(first)]
            table = pa.table([*read.table.columns, *columns], schema=sorting)
            owner = np.searchsorted(cuts, first, side="right") - 1
            for partition in np.unique(owner):
                writers[partition].write_table(table.take(np.flatnonzero(owner == partition)))
    copies = []
    for partition in range(len(cuts)):
        copy = f"{FOLDER}/grouped-{partition:06d}.parquet"
        rows = _sorted_rows(work / f"rows-{partition}", schema)
        write_file(out, copy, partial(write_batches, schema=schema, batches=rows))
        (work / f"rows-{partition}").unlink()
        copies.append(Source(copy, "parquet", staged=copy))
    return copies


def _cuts(lookup: _Lookup, rows: int, partitions: int) -> NDArray[np.int64]:
    """The first row of each partition, so that all have about as many rows."""
    bins = np.zeros(BINS, np.int64)
    for start in range(0, rows, BUCKET_ROWS):
        first = lookup.range(start, min(rows, start + BUCKET_ROWS))
        bins += np.bincount(first * BINS // rows, minlength=BINS)
    wanted = np.arange(1, partitions) * rows // partitions
    edges = np.searchsorted(np.cumsum(bins), wanted, side="left") + 1
    starts = -(-edges * rows // BINS)
    return np.unique(np.concatenate([[0], starts[starts < rows]]))


def _sorted_rows(path: Path, schema: pyarrow.Schema) -> Iterator[pyarrow.Table]:
    import pyarrow as pa

    with pa.OSFile(str(path)) as stream:
        table = pa.ipc.open_stream(stream).read_all()
    order = np.argsort(table["first"].to_numpy(), kind="stable")
    yield table.drop_columns(["first"]).take(pa.array(order)).cast(schema)
