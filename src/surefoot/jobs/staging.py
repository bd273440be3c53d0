"""Copies input without random access into the job's folder: compressed JSONL, Arrow streams, data sets of the hub."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot.data.files import write_file
from surefoot.errors import InputError, MissingDependencyError
from surefoot.jobs.sources import Source, open_source

if TYPE_CHECKING:
    import pyarrow

FOLDER = "_surefoot/input"
GROUP_ROWS = 4096


def stage(source: Source, number: int, out: Path) -> Source:
    """Return the source with a copy that can be read by ranges, if it needs one."""
    if (source.kind == "jsonl" and source.compression is None) or source.kind == "parquet":
        return source
    copy = f"{FOLDER}/{number:06d}.{'jsonl' if source.kind == 'jsonl' else 'parquet'}"
    if source.kind == "jsonl":
        write_file(out, copy, lambda path: _decompress(source, path))
    elif source.kind == "arrow":
        write_file(out, copy, lambda path: write_batches(path, *_arrow_batches(source)))
    else:
        write_file(out, copy, lambda path: write_batches(path, *_hub_batches(source)))
    return replace(source, staged=copy)


def write_batches(
    path: Path, schema: pyarrow.Schema, batches: Iterator[pyarrow.RecordBatch] | Iterator[pyarrow.Table]
) -> None:
    """Write batches of rows as Parquet with small row groups."""
    import pyarrow.parquet as pq

    with pq.ParquetWriter(path, schema, compression="zstd", write_page_checksum=True) as writer:
        for batch in batches:
            writer.write(batch, row_group_size=GROUP_ROWS)


def _decompress(source: Source, path: Path) -> None:
    import pyarrow as pa

    try:
        with (
            open_source(source.path) as packed,
            pa.input_stream(packed, compression=source.compression) as stream,
            path.open("wb") as copy,
        ):
            shutil.copyfileobj(stream, copy, 1 << 20)
    except (pa.ArrowException, EOFError) as error:
        raise InputError(f"{source.path} cannot be read: {error}") from error
    except OSError as error:
        if error.errno is None:  # Arrow's errors about damaged data
            raise InputError(f"{source.path} cannot be read: {error}") from error
        raise


def _arrow_batches(source: Source) -> tuple[pyarrow.Schema, Iterator[pyarrow.RecordBatch]]:
    import pyarrow as pa

    stream = open_source(source.path)
    try:
        try:
            opened: Any = pa.ipc.open_file(stream)
            return opened.schema, (opened.get_batch(at) for at in range(opened.num_record_batches))
        except pa.ArrowInvalid:
            stream.seek(0)
            opened = pa.ipc.open_stream(stream)
            return opened.schema, iter(opened)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{source.path} is not an Arrow file: {error}") from error


def _hub_batches(source: Source) -> tuple[pyarrow.Schema, Iterator[pyarrow.Table]]:
    try:
        import datasets
    except ImportError as error:
        raise MissingDependencyError(
            f"{source.path.split(':')[0]!r} is not a local file, and reading it from the hub needs the package "
            'datasets. Run: pip install "surefoot[datasets]"'
        ) from error
    name, subset, split = source.path.rsplit(":", 2)
    try:
        rows = datasets.load_dataset(name, subset or None, split=split, streaming=True)
        features = rows.features or rows._resolve_features().features
        return features.arrow_schema, rows.with_format("arrow").iter(batch_size=GROUP_ROWS)
    except Exception as error:  # whatever the hub, the network or the data set's files raise
        raise InputError(f"The data set {name} cannot be read from the hub: {error}") from error
