"""Large input: it is bounded, and what is too large is unscored with a reason."""

from __future__ import annotations

import gzip
import io
import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

import surefoot
from surefoot.cli.main import main
from surefoot.data.items import MAX_CHARS, MAX_LINE_ENDS, MAX_STEPS, over_limit
from surefoot.data.records import MAX_LINE_BYTES, file_entries, stream_entries

QUESTION = "What is 1 + 1?"

TOO_LARGE: list[tuple[str, str | list[str], str]] = [
    (QUESTION, "x" * (MAX_CHARS + 1), "The solution has 1,000,001 characters; the limit is 1,000,000."),
    (QUESTION, "a\n" * 2_500_000, "The solution has 5,000,000 characters; the limit is 1,000,000."),
    (QUESTION, "a\n" * 400_000, "The solution has 400,000 line ends; the limit is 100,000."),
    (QUESTION, "a\n" * 20_000, "The solution has 20,000 steps; the limit is 10,000."),
    (QUESTION, ["a"] * 20_000, "The solution has 20,000 steps; the limit is 10,000."),
    (QUESTION, ["x" * 600_000] * 2, "The solution has 1,200,000 characters; the limit is 1,000,000."),
    ("x" * (MAX_CHARS + 1), "2.", "The question has 1,000,001 characters; the limit is 1,000,000."),
]


@pytest.mark.parametrize(("question", "solution", "reason"), TOO_LARGE, ids=[row[2] for row in TOO_LARGE])
def test_what_is_too_large_is_unscored(
    scorer: surefoot.Scorer, question: str, solution: str | list[str], reason: str
) -> None:
    good = (QUESTION, "It is 2.")
    first, second = scorer.score_many([(question, solution), good])
    assert (first.status, first.steps, first.reason) == ("unscored", (), reason)
    assert second.status == "scored"
    assert scorer.score(question, solution).reason == reason
    assert [result.reason for result in scorer.score_stream([(question, solution), good])] == [reason, None]


def test_the_limits_themselves_are_allowed() -> None:
    assert over_limit("x" * MAX_CHARS, "x" * MAX_CHARS) is None
    assert over_limit(QUESTION, ["a"] * MAX_STEPS) is None
    assert over_limit(QUESTION, "a\n" * MAX_LINE_ENDS) is None
    assert over_limit(QUESTION, []) is None


@pytest.fixture
def huge(tmp_path: Path) -> Path:
    """A file with a line of 200 MB between two that are fine."""
    file = tmp_path / "huge.jsonl"
    with file.open("wb") as stream:
        stream.write(b'{"a": 1}\n')
        stream.truncate(200_000_000)  # a sparse file: zeros, no line end
        stream.seek(200_000_000)
        stream.write(b'\n{"a": 2}\n')
    return file


def peak(entries: Iterator[object]) -> float:
    tracemalloc.start()
    try:
        for _ in entries:
            pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_huge_line_is_an_error_and_takes_little_memory(huge: Path) -> None:
    found = [(entry.number, entry.data, entry.error) for entry in file_entries(huge)]
    assert found == [(1, {"a": 1}, None), (2, None, "is longer than 16 MiB."), (3, {"a": 2}, None)]
    assert peak(file_entries(huge)) < 4 * MAX_LINE_BYTES


def test_gzipped_lines_are_streamed() -> None:
    row = json.dumps({"a": "x" * 1000}).encode() + b"\n"
    packed = gzip.compress(b"\xef\xbb\xbf" + row * 8_000, 1)
    assert sum(1 for _ in stream_entries(io.BytesIO(packed), "a stream")) == 8_000
    assert peak(stream_entries(io.BytesIO(packed), "a stream")) < 4_000_000


def test_the_command_scores_the_other_lines(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"question": QUESTION, "solution": text} for text in ("It is 2.", "a\n" * 2_500_000, "It is 2.")]
    file = tmp_path / "in.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows) + "0" * (MAX_LINE_BYTES + 1) + "\n")
    assert main(["score", str(file), "--model", str(checkpoint), "--json"]) == 1
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["reason"] for row in found] == [
        None,
        "Line 2: The solution has 5,000,000 characters; the limit is 1,000,000.",
        None,
        "Line 4 is longer than 16 MiB.",
    ]
