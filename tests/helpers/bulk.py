"""Input and output of bulk jobs."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import surefoot


def sums(questions: int = 6, solutions: int = 3) -> list[dict[str, Any]]:
    """Rows of word problems. The last solution of each question is wrong."""
    rows = []
    for number in range(questions):
        for which in range(solutions):
            right = (number + 2) * 4
            result = right + (which == solutions - 1)
            rows.append(
                {
                    "id": f"{number}-{which}",
                    "question": f"Tom has {number + 2} bags of 4 apples. How many apples does he have?",
                    "solution": f"He has {number + 2} * 4 = {result} apples{'.' * which}.\nThe answer is {result}.",
                    "answer": right,
                }
            )
    return rows


def write_jsonl(path: Path, rows: Iterable[dict[str, Any] | str]) -> Path:
    """Write objects, and strings as they are, one per line."""
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def write_parquet(path: Path, rows: list[dict[str, Any]], **options: Any) -> Path:
    """Write rows as Parquet."""
    pq.write_table(pa.Table.from_pylist(rows), path, **options)
    return path


def run_job(source: Path, out: Path, options: dict[str, Any]) -> None:
    """Run a job: for processes that are killed."""
    logging.disable()
    surefoot.bulk(source, out, **options)


def die(unit: object) -> None:
    """End the worker process, as the system does for lack of memory."""
    os._exit(9)


def parts(out: Path) -> list[Path]:
    """The parts of a job in their order."""
    return sorted(out.glob("part-*"))


def results(out: Path) -> list[dict[str, Any]]:
    """All rows of all parts in their order."""
    rows: list[dict[str, Any]] = []
    for part in parts(out):
        if part.suffix == ".jsonl":
            rows += [json.loads(line) for line in part.read_text(encoding="utf-8").splitlines()]
        else:
            with pq.ParquetFile(part) as file:
                rows += file.read(use_threads=False).to_pylist()
    return rows


def errors(out: Path) -> list[dict[str, Any]]:
    """All rows that were set aside."""
    files = sorted((out / "_surefoot" / "errors").glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def content(out: Path) -> dict[str, bytes]:
    """Every file that a user of the output may read, by its path."""
    files = [*parts(out), *sorted((out / "_surefoot" / "errors").iterdir())]
    return {str(file.relative_to(out)): file.read_bytes() for file in files}
