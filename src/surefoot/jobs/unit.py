"""Scores one unit: reads its rows, writes the scored rows, the bad rows and the part, and reports what it wrote.

The order of the writes does not matter: a unit counts only once the journal names its files.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot.core.arrow import score_schema, score_table
from surefoot.core.protocols import Item, StepScorer
from surefoot.core.result import SolutionScore
from surefoot.data.files import FileSum, write_file
from surefoot.errors import JobError
from surefoot.jobs.folder import Entry, Job, ModelIdentity, errors_path
from surefoot.jobs.jsonl import is_json, plain_rows, row_error
from surefoot.jobs.plan import Unit
from surefoot.jobs.rows import BadRow, RowReader, UnitRows
from surefoot.jobs.selection import RECOMMENDED, select
from surefoot.jobs.settings import JobSettings
from surefoot.jobs.sources import Source
from surefoot.rewards.source import RewardSource, Sample
from surefoot.text.equality import same_answer

if TYPE_CHECKING:
    import pyarrow


def added_schema(settings: JobSettings) -> pyarrow.Schema:
    """Return the columns that a job adds to those of the input."""
    import pyarrow as pa

    def described(name: str, kind: pyarrow.DataType, text: str) -> pyarrow.Field:
        return pa.field(settings.prefix + name, kind, metadata={b"description": text.encode()})

    fields = [
        described("source", pa.string(), "The input file of the row."),
        described("row", pa.int64(), "The number of the row in its file, from 0; for JSONL, of the line."),
        described("completion", pa.int32(), "The number of the solution in its row, from 0."),
        *score_schema(prefix=settings.prefix, step_text=settings.step_text),
    ]
    if settings.columns.gold is not None:
        fields.append(described("correct", pa.bool_(), "Whether the answer equals the gold answer; null if unknown."))
    if settings.recipe is not None:
        fields.append(described("reward", pa.float64(), "The reward; null if a term is missing."))
        fields.append(described("reward_reason", pa.string(), "Why there is no reward."))
    return pa.schema(fields)


def model_identity(scorer: StepScorer) -> ModelIdentity:
    """Return what has to be equal for two scorers to give equal scores."""
    return ModelIdentity(scorer.name, scorer.fingerprint, scorer.scale, scorer.calibration)


class UnitScorer:
    """Scores the units of a job with one scorer."""

    def __init__(self, job: Job, scorer: StepScorer) -> None:
        self._job, self._scorer = job, scorer
        self._reader = RowReader(job.plan.sources, job.plan.schema, job.settings, job.out)
        self._identity = model_identity(scorer)

    def run(self, unit: Unit) -> Entry:
        """Score a unit and write its files."""
        started = time.perf_counter()
        job, settings = self._job, self._job.settings
        read = self._reader.read(unit)
        rows, items, golds, bad = _items(read, settings)
        results = list(self._scorer.score_stream(items, settings.options, window=max(1, len(items))))
        table = _scored_table(read, rows, results, golds, job)
        scored = write_table(job.out, job.scored_path(unit.number), table)
        entry = Entry(
            unit=unit.number,
            scored=scored,
            part=None,
            errors=_write_errors(job, unit.number, [*read.bad, *bad]),
            selection="",
            rows=len(read.rows) - len(bad),
            results=len(results),
            kept=0,
            unscored=sum(result.status == "unscored" for result in results),
            bad=len(read.bad) + len(bad),
            tokens=sum(result.tokens for result in results),
            seconds=0.0,
            model=self._identity,
        )
        return replace(write_part(job, entry), seconds=round(time.perf_counter() - started, 3))


def write_part(job: Job, entry: Entry) -> Entry:
    """Write the part of a scored unit, and return its entry with the part or with the reason why there is none.

    The part is always made from the scored file, so that it is the same whenever it is made.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    settings = job.settings
    if settings.direct and entry.scored.path == job.part_path(entry.unit):
        return replace(entry, part=entry.scored, selection=job.selection_id, kept=entry.results, problem=None)
    with pq.ParquetFile(job.out / entry.scored.path) as file:
        table = file.read(use_threads=False)
    added = added_schema(settings).names
    inputs = [name for name in table.column_names if name not in added]
    try:
        kept = select(table, settings, inputs, added)
    except JobError as error:
        return replace(entry, part=None, selection=job.selection_id, kept=0, problem=str(error))
    chosen = table.take(pa.array(kept, pa.int64()))
    path = job.part_path(entry.unit)
    part = write_table(job.out, path, chosen) if settings.format == "parquet" else _write_jsonl(job.out, path, chosen)
    return replace(entry, part=part, selection=job.selection_id, kept=len(kept), problem=None)


def write_table(out: Path, path: str, table: pyarrow.Table) -> FileSum:
    """Write a table as Parquet with checksums."""
    import pyarrow.parquet as pq

    return write_file(
        out, path, lambda place: pq.write_table(table, place, compression="zstd", write_page_checksum=True)
    )


def _items(read: UnitRows, settings: JobSettings) -> tuple[list[int], list[Item], list[Any], list[BadRow]]:
    """Return what to score, with the row of each, and the rows that cannot be read."""
    columns = settings.columns
    names = [columns.question, columns.solution, columns.steps, columns.completions, columns.gold, "solution", "steps"]
    paths = [name for name in names if name is not None]
    rows: list[int] = []
    items: list[Item] = []
    golds: list[Any] = []
    bad: list[BadRow] = []
    for at, row in enumerate(plain_rows(read.table, [*paths, *(path.partition(".")[0] for path in paths)])):
        if reason := row_error(row, columns):
            bad.append(BadRow(read.sources[at], read.rows[at], reason, read.table.slice(at, 1).to_pylist()[0]))
            continue
        found = columns.items(row)
        rows += [at] * len(found)
        items += found
        golds += [columns.gold_answer(row)] * len(found)
    return rows, items, golds, bad


def _scored_table(
    read: UnitRows, rows: list[int], results: list[SolutionScore], golds: list[Any], job: Job
) -> pyarrow.Table:
    import pyarrow as pa

    settings = job.settings
    numbers = _numbers_in_row(rows)
    inputs = _unpack_completions(read.table.take(pa.array(rows, pa.int64())), numbers, settings)
    sources = [job.plan.sources[read.sources[at]].path for at in rows]
    columns: list[Any] = [
        pa.array(sources, pa.string()),
        pa.array([read.rows[at] for at in rows], pa.int64()),
        pa.array(numbers, pa.int32()),
        *score_table(results, prefix=settings.prefix, step_text=settings.step_text).columns,
    ]
    if settings.columns.gold is not None:
        columns.append(pa.array(map(_is_correct, results, golds), pa.bool_()))
    if settings.recipe is not None:
        source = RewardSource(None, settings.recipe)
        rewards = [source.reward(Sample("", "", gold), result) for result, gold in zip(results, golds, strict=True)]
        columns.append(pa.array([reward.value for reward in rewards], pa.float64()))
        columns.append(pa.array([reward.reason for reward in rewards], pa.string()))
    recommended = results[0].recommended if results else None
    schema = pa.schema([*inputs.schema, *added_schema(settings)], {RECOMMENDED: json.dumps(recommended).encode()})
    return pa.table([*inputs.columns, *columns], schema=schema)


def _numbers_in_row(rows: list[int]) -> list[int]:
    numbers: list[int] = []
    for at, row in enumerate(rows):
        numbers.append(numbers[-1] + 1 if at and rows[at - 1] == row else 0)
    return numbers


def _unpack_completions(table: pyarrow.Table, numbers: list[int], settings: JobSettings) -> pyarrow.Table:
    """Replace the list of completions by the one that the row is about."""
    import pyarrow as pa

    name = settings.columns.completions
    if name is None or name not in table.column_names:
        return table
    field = table.schema.field(name)
    values = [row[name][number] for row, number in zip(plain_rows(table, [name]), numbers, strict=True)]
    if is_json(field):
        values = [json.dumps(value, ensure_ascii=False) for value in values]
    else:
        field = field.with_type(field.type.value_type)
    return table.set_column(table.column_names.index(name), field, pa.array(values, field.type))


def _is_correct(result: SolutionScore, gold: Any) -> bool | None:
    if gold is None:
        return None
    return False if result.answer is None else same_answer(result.answer, str(gold))


def _write_errors(job: Job, unit: int, bad: list[BadRow]) -> FileSum | None:
    if not bad:
        return None
    lines = [error_line(job.plan.sources[each.source], each) for each in sorted(bad, key=lambda each: each.row)]
    return write_lines(job.out, errors_path(unit), lines)


def error_line(source: Source, bad: BadRow) -> dict[str, Any]:
    """Return a bad row as it is written to the errors of its unit."""
    what = f"line {bad.row + 1}" if source.kind == "jsonl" else f"row {bad.row}"
    return {
        "source": source.path,
        "row": bad.row,
        "place": f"{source.path}, {what}",
        "reason": bad.reason,
        "raw": bad.raw,
    }


def write_lines(out: Path, path: str, rows: Iterable[dict[str, Any]]) -> FileSum:
    """Write objects as JSONL."""

    def write(place: Path) -> None:
        with place.open("w", encoding="utf-8") as stream:
            stream.writelines(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows)

    return write_file(out, path, write)


def _write_jsonl(out: Path, path: str, table: pyarrow.Table) -> FileSum:
    return write_lines(out, path, plain_rows(table, table.column_names))
