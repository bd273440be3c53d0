"""Regrouping: rows of one group come together, groups in the order of their first row, with bounded memory."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import surefoot
from helpers.bulk import errors, parts, results, sums, write_jsonl, write_parquet
from surefoot.errors import JobError
from surefoot.jobs import grouping


def shuffled(seed: int, questions: int = 40) -> list[dict[str, Any]]:
    rows = sums(questions, solutions=3)
    random.Random(seed).shuffle(rows)
    return rows


def grouped(rows: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    """The same by Python's dict, which keeps the order of first insertion."""
    groups: dict[Any, list[dict[str, Any]]] = {}
    for at, row in enumerate(rows):
        value = row.get(key)
        groups.setdefault(("none", at) if value is None else value, []).append(row)
    return [row for group in groups.values() for row in group]


@pytest.mark.parametrize(("bucket_rows", "partition_bytes"), [(2_000_000, 64 << 20), (7, 2_000), (1, 500)])
@pytest.mark.parametrize("seed", [0, 1])
def test_groups_come_together(
    seed: int,
    bucket_rows: int,
    partition_bytes: int,
    tmp_path: Path,
    scorer: surefoot.Scorer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grouping, "BUCKET_ROWS", bucket_rows)
    monkeypatch.setattr(grouping, "PARTITION_BYTES", partition_bytes)
    rows = shuffled(seed)
    sources = [
        write_jsonl(tmp_path / "a.jsonl", [*rows[:50], "{bad", *rows[50:70]]),
        write_parquet(tmp_path / "b.parquet", rows[70:]),
    ]
    report = surefoot.bulk(sources, tmp_path / "out", model=scorer, group_by="question", unit_rows=5)
    found = results(tmp_path / "out")
    assert [row["id"] for row in found] == [row["id"] for row in grouped(rows, "question")]
    # Every row still knows where it comes from.
    places = {row["id"]: (row["prm_source"], row["prm_row"]) for row in found}
    for at, row in enumerate(rows):
        expected = (str(sources[0]), at + (at >= 50)) if at < 70 else (str(sources[1]), at - 70)
        assert places[row["id"]] == expected
    assert (report.rows, report.bad_rows) == (120, 1)
    assert [row["row"] for row in errors(tmp_path / "out")] == [50]
    for part in parts(tmp_path / "out"):  # whole questions
        with pq.ParquetFile(part) as file:
            questions = file.read(use_threads=False)["question"].to_pylist()
        assert all(questions.count(question) == 3 for question in questions)
    assert not (tmp_path / "out" / "_surefoot" / "input" / "sorting").exists()
    # Run again: nothing is planned or scored anew.
    assert surefoot.bulk(sources, tmp_path / "out", model=scorer, group_by="question", unit_rows=5).resumed_units > 0


def test_grouping_by_another_column(tmp_path: Path, scorer: surefoot.Scorer) -> None:
    rows = [row | {"topic": at % 3 or None} for at, row in enumerate(shuffled(2, questions=5))]
    source = write_jsonl(tmp_path / "in.jsonl", rows)
    surefoot.bulk(source, tmp_path / "out", model=scorer, group_by="topic")
    assert [row["id"] for row in results(tmp_path / "out")] == [row["id"] for row in grouped(rows, "topic")]


def test_the_best_of_scattered_solutions(tmp_path: Path, mini: surefoot.Scorer) -> None:
    """Best of 1 groups by itself: solutions of one question that are far apart compete."""
    rows = shuffled(3, questions=6)
    source = write_jsonl(tmp_path / "in.jsonl", rows)
    surefoot.bulk(source, tmp_path / "all", model=mini)
    surefoot.bulk(source, tmp_path / "best", model=mini, best_of=1, rank_by="min", unit_rows=4)
    scores = {row["id"]: row["prm_min"] for row in results(tmp_path / "all")}
    best: dict[str, str] = {}
    for row in rows:
        before = best.get(row["question"])
        # Scores differ in the last digits with the unit; solutions of mini here differ by more.
        if before is None or scores[row["id"]] > scores[before] + 1e-4:
            best[row["question"]] = row["id"]
    assert {row["question"]: row["id"] for row in results(tmp_path / "best")} == best


def test_a_grouped_job_cannot_be_extended(tmp_path: Path, scorer: surefoot.Scorer) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", shuffled(4, questions=4))
    surefoot.bulk(source, tmp_path / "out", model=scorer, group_by="question")
    with pytest.raises(JobError, match="cannot be extended"):
        surefoot.bulk(source, tmp_path / "out", model=scorer, group_by="question", extend=True)
