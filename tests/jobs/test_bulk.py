"""Bulk jobs: what is read, what is written, what is rejected. See test_faults.py for crashes."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import surefoot
from helpers.bulk import content, errors, parts, results, sums, write_jsonl, write_parquet
from surefoot.errors import InputError, JobError, OptionError

ROWS = sums()


def zstd(path: Path, text: str) -> Path:
    with pa.output_stream(str(path), compression="zstd") as stream:
        stream.write(text.encode())
    return path


def ipc(path: Path, *, stream: bool) -> Path:
    table = pa.Table.from_pylist(ROWS)
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=5)
    return path


def lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def memory_file(folder: Path) -> str:
    with fsspec.open("memory://bulk/rows.jsonl", "w") as stream:
        stream.write(lines(ROWS))
    return "memory://bulk/rows.jsonl"


INPUTS: dict[str, Callable[[Path], Any]] = {
    "jsonl": lambda folder: write_jsonl(folder / "rows.jsonl", ROWS),
    "jsonl without a line end": lambda folder: (folder / "rows.jsonl").write_text(lines(ROWS)[:-1]) and folder,
    "jsonl with a byte order mark": lambda folder: (folder / "r.jsonl").write_text("\ufeff" + lines(ROWS)) and folder,
    "gzip": lambda folder: (folder / "rows.jsonl.gz").write_bytes(gzip.compress(lines(ROWS).encode())) and folder,
    "gzip of two members": lambda folder: (
        (folder / "rows.jsonl.gz").write_bytes(
            gzip.compress(lines(ROWS[:5]).encode()) + gzip.compress(lines(ROWS[5:]).encode())
        )
        and folder
    ),
    "zstd": lambda folder: zstd(folder / "rows.jsonl.zst", lines(ROWS)),
    "parquet": lambda folder: write_parquet(folder / "rows.parquet", ROWS),
    "parquet in small row groups": lambda folder: write_parquet(folder / "rows.parquet", ROWS, row_group_size=4),
    "arrow file": lambda folder: ipc(folder / "rows.arrow", stream=False),
    "arrow stream": lambda folder: ipc(folder / "rows.arrow", stream=True),
    "several files": lambda folder: [
        write_jsonl(folder / "a.jsonl", ROWS[:7]),
        write_parquet(folder / "b.parquet", ROWS[7:]),
    ],
    "glob": lambda folder: write_jsonl(folder / "rows-1.jsonl", ROWS) and str(folder / "*-?.jsonl"),
    "file URL": lambda folder: write_parquet(folder / "rows.parquet", ROWS).as_uri(),
    "folder URL": lambda folder: write_jsonl(folder / "rows.jsonl", ROWS).parent.as_uri(),
    "another file system": memory_file,
}


@pytest.mark.parametrize("name", INPUTS)
def test_every_kind_of_input_gives_the_same_results(name: str, tmp_path: Path, scorer: surefoot.Scorer) -> None:
    (folder := tmp_path / "in").mkdir()
    report = surefoot.bulk(INPUTS[name](folder), tmp_path / "out", model=scorer, unit_rows=4)
    found = results(tmp_path / "out")
    assert (report.rows, report.results, report.kept, report.bad_rows) == (18, 18, 18, 0)
    assert [{name: row[name] for name in ROWS[0]} for row in found] == ROWS  # all columns, in the order of the input
    for row, given in zip(found, ROWS, strict=True):
        alone = scorer.score(given["question"], given["solution"])
        assert row["prm_step_scores"] == pytest.approx(alone.step_scores, abs=1e-5)
        assert (row["prm_status"], row["prm_answer"], row["prm_model"]) == ("scored", alone.answer, scorer.name)
        spans = [(step["start"], step["end"]) for step in row["prm_steps"]]
        assert [given["solution"][start:end] for start, end in spans] == [step.text for step in alone.steps]


def test_a_hub_data_set_is_streamed(tmp_path: Path, scorer: surefoot.Scorer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data set with the layout of the hub, in a folder: `datasets` reads both with the same code."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "maker" / "sums" / "data").mkdir(parents=True)
    write_parquet(tmp_path / "maker" / "sums" / "data" / "test-00000-of-00001.parquet", ROWS)
    from surefoot.jobs import sources, staging

    hub = sources.Source(f"{tmp_path / 'maker' / 'sums'}::test", "hub")
    monkeypatch.setattr("surefoot.jobs.bulk.find_sources", lambda *args, **options: [hub])
    report = surefoot.bulk("maker/sums", tmp_path / "out", model=scorer, data_split="test")
    assert report.rows == 18
    assert [row["id"] for row in results(tmp_path / "out")] == [row["id"] for row in ROWS]
    assert staging.FOLDER in str(next((tmp_path / "out" / "_surefoot" / "input").iterdir()))
    monkeypatch.undo()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InputError, match="cannot be read from the hub"):
        surefoot.bulk("nobody/nothing", tmp_path / "other", model=scorer)


CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": ROWS[0]["question"]}]
SHAPES: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "other names": (
        {"problem": ROWS[0]["question"], "response": ROWS[0]["solution"]},
        {"question": "problem", "solution": "response"},
    ),
    "a path": ({"a": {"b": [{"c": ROWS[0]["question"]}]}, "solution": ROWS[0]["solution"]}, {"question": "a.b.0.c"}),
    "one conversation": (
        {"messages": [*CHAT, {"role": "assistant", "content": ROWS[0]["solution"]}]},
        {"question": "messages", "solution": "messages"},
    ),
    "a longer conversation": (
        {
            "messages": [
                {"role": "user", "content": "Hello?"},
                {"role": "assistant", "content": "Hello."},
                *CHAT,
                {"role": "assistant", "content": ROWS[0]["solution"]},
            ]
        },
        {"question": "messages", "solution": "messages"},
    ),
    "prompt and completion": (
        {"prompt": CHAT, "completion": [{"role": "assistant", "content": ROWS[0]["solution"]}]},
        {"question": "prompt", "solution": "completion"},
    ),
    "steps": ({"question": ROWS[0]["question"], "steps": ROWS[0]["solution"].split("\n")}, {}),
    "steps of another name": ({"question": ROWS[0]["question"], "s": ROWS[0]["solution"].split("\n")}, {"steps": "s"}),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.parametrize("name", SHAPES)
def test_the_shapes_of_a_row(name: str, kind: str, tmp_path: Path, scorer: surefoot.Scorer) -> None:
    row, columns = SHAPES[name]
    write = write_jsonl if kind == "jsonl" else write_parquet
    surefoot.bulk(write(tmp_path / f"in.{kind}", [row]), tmp_path / "out", model=scorer, columns=columns)
    (found,) = results(tmp_path / "out")
    expected = scorer.score(ROWS[0]["question"], ROWS[0]["solution"].split("\n"))
    assert found["prm_step_scores"] == pytest.approx(expected.step_scores, abs=1e-5)
    assert {key: found[key] for key in row} == row


def test_a_row_with_several_completions_becomes_several_results(tmp_path: Path, scorer: surefoot.Scorer) -> None:
    rows = [
        {"question": "What is 2 + 3?", "samples": ["2 + 3 = 5.", "2 + 3 = 6.", "It is 5."]},
        {"question": "What is 1 + 1?", "samples": []},
        {"question": "What is 1 + 2?", "samples": ["1 + 2 = 3."]},
    ]
    source = write_jsonl(tmp_path / "in.jsonl", rows)
    report = surefoot.bulk(source, tmp_path / "out", model=scorer, columns={"completions": "samples"})
    found = results(tmp_path / "out")
    assert [(row["prm_row"], row["prm_completion"], row["samples"]) for row in found] == [
        (0, 0, "2 + 3 = 5."),
        (0, 1, "2 + 3 = 6."),
        (0, 2, "It is 5."),
        (2, 0, "1 + 2 = 3."),
    ]
    assert (report.rows, report.results, report.bad_rows) == (2, 4, 1)
    assert errors(tmp_path / "out")[0]["reason"] == "`samples` is empty."


BAD = [
    ("{not json", "The line is not JSON"),
    ("[1, 2]", "not an object"),
    ('{"question": "\\ud800", "solution": "x"}', "surrogate"),
    ('{"solution": "x"}', "`question` is missing"),
    ('{"question": "x", "solution": "y", "steps": ["z"]}', "both `solution` and `steps`"),
    ('{"question": "x"}', "neither `solution` nor `steps`"),
    ('{"question": 3, "solution": "x"}', "`question` is int"),
    ('{"question": "x", "solution": ["a", "b"]}', "A list of steps is read with"),
    ('{"question": "x", "steps": ["a", 3]}', "contains int"),
]


def test_bad_rows_are_set_aside_with_a_reason(tmp_path: Path, scorer: surefoot.Scorer) -> None:
    mixed: list[dict[str, Any] | str] = [
        row for pair in zip(ROWS, [line for line, _ in BAD], strict=False) for row in pair
    ]
    source = write_jsonl(tmp_path / "in.jsonl", ["", *mixed, "  "])
    report = surefoot.bulk(source, tmp_path / "out", model=scorer, unit_rows=4)
    assert (report.rows, report.bad_rows) == (len(BAD), len(BAD))
    found = errors(tmp_path / "out")
    for (line, reason), at in zip(BAD, range(2, 100, 2), strict=False):
        row = next(row for row in found if row["row"] == at)
        assert reason in row["reason"]
        assert row["place"] == f"{source}, line {at + 1}"
        assert row["raw"] in (line, json.loads(line) if isinstance(row["raw"], dict) else line)
    # Every line is in exactly one part or one errors file, and bad rows do not change the types of columns.
    assert sorted([row["prm_row"] for row in results(tmp_path / "out")] + [row["row"] for row in found]) == list(
        range(1, 2 * len(BAD) + 1)
    )
    assert all(isinstance(row["id"], str) for row in results(tmp_path / "out"))


def test_chat_messages_that_are_not_what_they_look_like(tmp_path: Path, scorer: surefoot.Scorer) -> None:
    contents = [5, ["text"], [{"type": "text", "text": 3}]]
    rows = [
        {"question": [{"role": "user", "content": each}], "solution": "So it is 5."}
        for each in ("What is it?", *contents)
    ]
    report = surefoot.bulk(write_jsonl(tmp_path / "in.jsonl", rows), tmp_path / "out", model=scorer)
    assert (report.rows, report.bad_rows) == (1, 3)
    reasons = [row["reason"] for row in errors(tmp_path / "out")]
    assert ["not text or a list of parts" in reason for reason in reasons] == [True, True, False]
    assert reasons[2] == "A message has a part whose text is not a string."


def test_parquet_whose_text_is_not_text(tmp_path: Path, scorer: surefoot.Scorer) -> None:
    wrong = pa.array([b"What \xff?"]).view(pa.string())
    pq.write_table(pa.table({"question": wrong, "solution": ["x"]}), tmp_path / "in.parquet")
    with pytest.raises(InputError, match="text that is not UTF-8"):
        surefoot.bulk(tmp_path / "in.parquet", tmp_path / "out", model=scorer)


def test_bad_rows_of_parquet(tmp_path: Path, scorer: surefoot.Scorer) -> None:
    rows = [*ROWS[:2], {"question": None, "solution": "x", "id": "bad"}, *ROWS[2:4]]
    report = surefoot.bulk(write_parquet(tmp_path / "in.parquet", rows), tmp_path / "out", model=scorer)
    assert (report.rows, report.bad_rows) == (4, 1)
    (bad,) = errors(tmp_path / "out")
    assert (bad["row"], bad["reason"], bad["raw"]["id"]) == (2, "`question` is null.", "bad")


def test_a_line_that_is_too_long_does_not_fill_the_memory(tmp_path: Path, scorer: surefoot.Scorer) -> None:
    with (tmp_path / "in.jsonl").open("w") as stream:
        stream.write(json.dumps(ROWS[0]) + "\n")
        stream.write('{"question": "' + "x" * (40 << 20) + '"}\n')
        stream.write(json.dumps(ROWS[1]) + "\n")
    report = surefoot.bulk(tmp_path / "in.jsonl", tmp_path / "out", model=scorer)
    assert (report.rows, report.bad_rows) == (2, 1)
    (bad,) = errors(tmp_path / "out")
    assert (bad["row"], len(bad["raw"])) == (1, 4096)
    assert "longer than 16 MiB" in bad["reason"]


def test_too_many_errors_stop_the_job(tmp_path: Path, scorer: surefoot.Scorer) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", [*ROWS[:4], "bad", *ROWS[4:8], "worse", *ROWS[8:]])
    with pytest.raises(JobError, match="2 rows cannot be read, and max_errors=1"):
        surefoot.bulk(source, tmp_path / "out", model=scorer, unit_rows=3, max_errors=1)
    report = surefoot.bulk(source, tmp_path / "out", model=scorer, unit_rows=3, max_errors=2)
    assert report.resumed_units > 0
    assert (report.rows, report.bad_rows) == (18, 2)


def test_an_unscored_solution_is_a_result_with_a_reason(tmp_path: Path, scorer: surefoot.Scorer) -> None:
    rows = [{"question": "What is 2 + 3?", "solution": ""}, {"question": "x", "solution": "y " * 600_000}]
    report = surefoot.bulk(write_jsonl(tmp_path / "in.jsonl", rows), tmp_path / "out", model=scorer)
    found = results(tmp_path / "out")
    assert (report.rows, report.unscored, report.bad_rows) == (2, 2, 0)
    assert [row["prm_reason"] for row in found] == [
        "The solution has no steps.",
        "The solution has 1,200,000 characters; the limit is 1,000,000.",
    ]
    assert all(row["prm_mean"] is None and row["prm_first_error"] is None for row in found)


VALUES: list[tuple[str, list[Any], Any]] = [
    ("text", ["a", None, "é"], pa.string()),
    ("whole", [1, None, -(2**53)], pa.int64()),
    ("number", [1, 2.5, None], pa.float64()),
    ("flag", [True, None, False], pa.bool_()),
    ("list", [[], ["a"], None], pa.list_(pa.string())),
    ("nested", [[{"a": 1}], [{"a": 2, "b": "x"}], []], None),
    ("nothing", [None, None, None], pa.string()),
]
MIXED: list[tuple[str, list[Any]]] = [
    ("mixed", [1, "a", None]),
    ("large", [2**80, 1, 0]),
    ("empty", [{}, {}, {}]),
    ("any", [{"a": 1}, {"a": "x"}, [1]]),
]
COLUMNS = [*((name, values) for name, values, _ in VALUES), *MIXED]


def test_the_types_of_jsonl_columns(tmp_path: Path, scorer: surefoot.Scorer) -> None:
    rows = [ROWS[at] | {name: values[at] for name, values in COLUMNS} for at in range(3)]
    source = write_jsonl(tmp_path / "in.jsonl", rows)
    surefoot.bulk(source, tmp_path / "parquet", model=scorer, unit_rows=1)
    schemas = {pq.read_schema(part) for part in parts(tmp_path / "parquet")}
    (schema,) = schemas  # the same in every part
    for name, _, kind in VALUES:
        assert kind is None or schema.field(name).type == kind
    found = results(tmp_path / "parquet")
    assert [row["number"] for row in found] == [1.0, 2.5, None]
    # Values without a common type are JSON text in Parquet, and themselves in JSONL.
    assert [row["mixed"] for row in found] == ["1", '"a"', None]
    surefoot.bulk(source, tmp_path / "jsonl", model=scorer, unit_rows=1, format="jsonl")
    for row, given in zip(results(tmp_path / "jsonl"), rows, strict=True):
        for name, _ in COLUMNS:
            expected = [{"b": None} | each for each in given[name]] if name == "nested" else given[name]
            assert row[name] == expected, name


def test_the_types_of_parquet_columns_are_kept(tmp_path: Path, scorer: surefoot.Scorer) -> None:
    table = pa.Table.from_pylist(ROWS[:3])
    extra = {
        "decimal": pa.array([1, 2, None], pa.decimal128(10, 2)),
        "time": pa.array([0, None, 2], pa.timestamp("us", tz="UTC")),
        "bytes": pa.array([b"a", None, b"\xff"], pa.binary()),
        "small": pa.array([1, None, 3], pa.int8()),
        "words": pa.array([["a"], [], None], pa.list_(pa.string())),
        "category": pa.array(["x", "y", "x"]).dictionary_encode(),
    }
    for name, column in extra.items():
        table = table.append_column(name, column)
    pq.write_table(table, tmp_path / "in.parquet")
    surefoot.bulk(tmp_path / "in.parquet", tmp_path / "out", model=scorer)
    found = pq.read_table(parts(tmp_path / "out")[0])
    for name, column in extra.items():
        assert found.schema.field(name).type.equals(column.type), name
        assert found[name].to_pylist() == column.to_pylist()
    with pytest.raises(OptionError, match="'bytes' is binary, which JSON cannot hold"):
        surefoot.bulk(tmp_path / "in.parquet", tmp_path / "jsonl", model=scorer, format="jsonl")


def test_files_with_other_columns(tmp_path: Path, scorer: surefoot.Scorer) -> None:
    first = write_jsonl(tmp_path / "a.jsonl", [ROWS[0] | {"x": 1}])
    second = write_jsonl(tmp_path / "b.jsonl", [ROWS[1] | {"x": 2.5, "y": "z"}])
    surefoot.bulk([first, second], tmp_path / "out", model=scorer)
    assert [(row["x"], row["y"]) for row in results(tmp_path / "out")] == [(1.0, None), (2.5, "z")]
    third = write_parquet(tmp_path / "c.parquet", [ROWS[2] | {"x": "text"}])
    with pytest.raises(InputError, match=r"Column 'x' is string in .*c.parquet and double"):
        surefoot.bulk([first, second, third], tmp_path / "other", model=scorer)


WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no such column": ({"columns": {"question": "problem"}}, OptionError, "no column 'problem'. It has: id, question"),
    "two kinds of solutions": ({"columns": {"steps": "a", "solution": "b"}}, OptionError, "give one of them"),
    "no such group": ({"group_by": "topic"}, OptionError, "no column 'topic'"),
    "a taken name": ({"prefix": "", "reward": None, "columns": {"solution": "solution"}}, OptionError, "prefix=..."),
    "a bad filter": ({"filter": "min >"}, OptionError, "min >"),
    "an unknown name": ({"filter": "minn > 0"}, OptionError, "min"),
    "an ambiguous name": ({"filter": "answer == '3'"}, OptionError, "Write row.answer or score.answer"),
    "no such recipe": ({"reward": "best"}, OptionError, "There is no recipe 'best'"),
    "best of nothing": ({"best_of": 0}, OptionError, "keeps nothing"),
    "an unknown rank": ({"best_of": 1, "rank_by": "luck"}, OptionError, "rank_by='luck'"),
    "a rank without use": ({"rank_by": "min"}, OptionError, "no effect"),
    "no reward to rank by": ({"best_of": 1, "rank_by": "reward"}, OptionError, "needs a reward"),
    "a sample of nothing": ({"sample": 0.0}, OptionError, "not a fraction"),
    "an unknown format": ({"format": "csv"}, OptionError, "Choose one of: parquet, jsonl"),
    "an empty unit": ({"unit_rows": 0}, OptionError, "is empty"),
    "an unknown place": ({"on": "slurm"}, OptionError, "Choose local, ray"),
    "too much at once": ({"fresh": True, "extend": True}, OptionError, "exclude each other"),
    "a scorer for several workers": ({"workers": 2}, OptionError, "in this process only"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_fails_before_anything_is_scored(name: str, tmp_path: Path, scorer: surefoot.Scorer) -> None:
    options, kind, message = WRONG[name]
    source = write_jsonl(tmp_path / "in.jsonl", ROWS)
    with pytest.raises(kind) as raised:
        surefoot.bulk(source, tmp_path / "out", model=scorer, **options)
    assert message in str(raised.value)
    assert not parts(tmp_path / "out")


def test_input_and_output_that_cannot_be_used(tmp_path: Path, scorer: surefoot.Scorer) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", ROWS)
    (tmp_path / "empty").mkdir()
    (tmp_path / "rows.csv").write_text("a,b\n")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 no")
    (tmp_path / "broken.jsonl.gz").write_bytes(gzip.compress(b"x" * 1000)[:15])
    for given, message in [
        (tmp_path / "nothing.jsonl", "is not a file"),
        (tmp_path / "empty", "contains no"),
        (tmp_path / "rows.csv", "unknown ending"),
        (tmp_path / "broken.parquet", "is not a Parquet file"),
        (tmp_path / "broken.jsonl.gz", "cannot be read"),
        (tmp_path / "*.txt", "No file matches"),
        ("file:///nowhere/in.jsonl", "does not exist"),
        ("strange://x/in.jsonl", "cannot be opened"),
        ([source, source], "given twice"),
        ([], "No input"),
    ]:
        with pytest.raises(InputError, match=message):
            surefoot.bulk(given if isinstance(given, list) else str(given), tmp_path / "out", model=scorer)
    outs: list[tuple[Path | str, str]] = [
        (source, "is a file"),
        (tmp_path, "is not empty and holds no bulk job"),
        ("s3://bucket/out", "is a URL"),
    ]
    for out, message in outs:
        with pytest.raises((JobError, OptionError), match=message):
            surefoot.bulk(source, out, model=scorer)
    assert not (Path.cwd() / "s3:").exists()


def test_filter_reward_and_selection(tmp_path: Path, mini: surefoot.Scorer) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", ROWS)
    options: dict[str, Any] = {"model": mini, "columns": {"gold": "answer"}, "reward": "outcome+process"}
    surefoot.bulk(source, tmp_path / "all", **options)
    scored = results(tmp_path / "all")
    # By hand: the last solution of each question is wrong.
    assert [row["prm_correct"] for row in scored] == [True, True, False] * 6
    for row in scored:
        assert row["prm_reward"] == pytest.approx(0.7 * row["prm_correct"] + 0.3 * row["prm_min"])
    report = surefoot.bulk(source, tmp_path / "kept", **options, filter="min > 0.2 and score.answer == gold")
    expected = [row for row in scored if row["prm_min"] > 0.2 and row["prm_correct"]]
    assert results(tmp_path / "kept") == expected
    assert (report.results, report.kept) == (18, len(expected))
    assert 0 < len(expected) < 18
    surefoot.bulk(source, tmp_path / "best", **options, best_of=1, rank_by="reward")
    best = [max(scored[at : at + 3], key=lambda row: row["prm_reward"])["id"] for at in range(0, 18, 3)]
    assert [row["id"] for row in results(tmp_path / "best")] == best


def test_another_selection_needs_no_model(tmp_path: Path, mini: surefoot.Scorer) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", ROWS)
    out = tmp_path / "out"
    surefoot.bulk(source, out, model=mini, unit_rows=4)
    scored = results(out)
    for limit in (0.5, 0.2):
        report = surefoot.bulk([], out, model="no/model", refilter=True, filter=f"min > {limit}")
        assert results(out) == [row for row in scored if row["prm_min"] > limit]
        assert report.kept == len(results(out))
        os.unlink(source) if source.exists() else None  # the input is not needed either
    surefoot.bulk([], out, refilter=True, filter="false")
    assert results(out) == []
    assert len(parts(out)) == report.units  # a unit without rows has a part, too
    surefoot.bulk([], out, refilter=True, format="jsonl")
    assert results(out) == scored
    assert {part.suffix for part in parts(out)} == {".jsonl"}
    surefoot.bulk([], out, refilter=True)
    assert results(out) == scored
    with pytest.raises(JobError, match=r"only the selection.*recipe: None -> 'min'"):
        surefoot.bulk([], out, refilter=True, reward="min")
    with pytest.raises(JobError, match="needs the rows of each question together"):
        surefoot.bulk([], out, refilter=True, best_of=1)
    with pytest.raises(JobError, match="There is no job"):
        surefoot.bulk([], tmp_path / "nothing", refilter=True, filter="min > 0")


def test_a_filter_that_fails_on_a_row_keeps_the_scores(tmp_path: Path, scorer: surefoot.Scorer) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", ROWS)
    with pytest.raises(JobError, match="The scores are kept"):
        surefoot.bulk(source, tmp_path / "out", model=scorer, filter="id > 3")
    report = surefoot.bulk([], tmp_path / "out", refilter=True, filter="id == '0-1'")
    assert [row["id"] for row in results(tmp_path / "out")] == ["0-1"]
    assert report.resumed_units == 1


def test_a_sample_contains_whole_questions(tmp_path: Path, scorer: surefoot.Scorer) -> None:
    rows = sums(questions=60, solutions=2)
    for kind, write in (("jsonl", write_jsonl), ("parquet", write_parquet)):
        source = write(tmp_path / f"in.{kind}", rows)
        report = surefoot.bulk(source, tmp_path / kind, model=scorer, sample=0.3, unit_rows=10)
        found = results(tmp_path / kind)
        questions = [row["question"] for row in found]
        assert all(questions.count(question) == 2 for question in questions)
        assert 12 < report.rows < 72  # 36 expected; a binomial of 60 questions stays within this in all but 1 of 10,000
    assert [row["id"] for row in results(tmp_path / "jsonl")] == [row["id"] for row in results(tmp_path / "parquet")]
    surefoot.bulk(tmp_path / "in.jsonl", tmp_path / "other", model=scorer, sample=0.3, seed=1)
    assert {row["id"] for row in results(tmp_path / "other")} != {row["id"] for row in found}


def test_units_hold_whole_questions(tmp_path: Path, scorer: surefoot.Scorer) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", sums(questions=5, solutions=7))
    surefoot.bulk(source, tmp_path / "out", model=scorer, unit_rows=4)
    assert [pq.ParquetFile(part).metadata.num_rows for part in parts(tmp_path / "out")] == [7] * 5
    # Up to a limit: one question must not fill the memory.
    same = [row | {"question": "What is it?"} for row in sums(questions=5, solutions=7)]
    surefoot.bulk(write_jsonl(tmp_path / "same.jsonl", same), tmp_path / "same", model=scorer, unit_rows=2)
    assert [pq.ParquetFile(part).metadata.num_rows for part in parts(tmp_path / "same")] == [16, 16, 3]


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "an option": ({"options": surefoot.ReadOptions(split="lines")}, "options.split: 'auto' -> 'lines'"),
    "a column": ({"columns": {"gold": "answer"}}, "columns.gold: None -> 'answer'"),
    "a recipe": ({"reward": "min"}, "recipe: None -> 'min'"),
    "the unit": ({"unit_rows": 5}, "unit_rows: 4 -> 5"),
    "the filter": ({"filter": "min > 0.5"}, "refilter=True"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_option_is_named(name: str, tmp_path: Path, scorer: surefoot.Scorer) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", ROWS)
    options, message = CHANGES[name]
    surefoot.bulk(source, tmp_path / "out", model=scorer, unit_rows=4)
    before = content(tmp_path / "out")
    with pytest.raises(JobError) as raised:
        surefoot.bulk(source, tmp_path / "out", **dict[str, Any]({"model": scorer, "unit_rows": 4} | options))
    assert message in str(raised.value)
    assert content(tmp_path / "out") == before
    surefoot.bulk(source, tmp_path / "out", **dict[str, Any]({"model": scorer, "fresh": True} | options))


def test_a_changed_input_or_model_is_named(tmp_path: Path, scorer: surefoot.Scorer, mini: surefoot.Scorer) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", ROWS)
    out = tmp_path / "out"
    surefoot.bulk(source, out, model=scorer, unit_rows=4)
    parts(out)[-1].unlink()
    with pytest.raises(JobError, match=r"not the one of the finished units \(name: .*'mini'; fingerprint: "):
        surefoot.bulk(source, out, model=mini, unit_rows=4)
    times = source.stat().st_atime_ns, source.stat().st_mtime_ns + 1_000_000
    os.utime(source, ns=times)
    with pytest.raises(JobError, match=r"in\.jsonl was modified"):
        surefoot.bulk(source, out, model=scorer, unit_rows=4)
    write_jsonl(source, ROWS[:-1])
    with pytest.raises(JobError, match=r"in\.jsonl had \d+ bytes and has \d+"):
        surefoot.bulk(source, out, model=scorer, unit_rows=4)
    other = write_jsonl(tmp_path / "other.jsonl", ROWS)
    with pytest.raises(JobError, match=r"in\.jsonl is missing; .*other\.jsonl is new"):
        surefoot.bulk(other, out, model=scorer, unit_rows=4)


def test_a_job_can_be_extended(tmp_path: Path, scorer: surefoot.Scorer) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", ROWS[:9])
    out = tmp_path / "out"
    surefoot.bulk(source, out, model=scorer, unit_rows=4)
    before = content(out)
    write_jsonl(source, ROWS[:15])
    more = write_parquet(tmp_path / "more.parquet", ROWS[15:])
    with pytest.raises(JobError, match="continue with extend=True"):
        surefoot.bulk([source, more], out, model=scorer, unit_rows=4)
    report = surefoot.bulk([source, more], out, model=scorer, unit_rows=4, extend=True)
    assert (report.rows, report.resumed_units) == (18, len(before))
    assert [row["id"] for row in results(out)] == [row["id"] for row in ROWS]
    assert [row["prm_row"] for row in results(out)] == [*range(15), *range(3)]
    assert {name: content(out)[name] for name in before} == before  # finished parts are not touched
    # Again, with nothing new.
    assert surefoot.bulk([source, more], out, model=scorer, unit_rows=4, extend=True).rows == 18


def test_only_growth_extends_a_job(tmp_path: Path, scorer: surefoot.Scorer) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", ROWS[:9])
    out = tmp_path / "out"
    surefoot.bulk(source, out, model=scorer)
    for rows, message in [
        (ROWS[:8], "It had"),
        ([*ROWS[1:9], *ROWS], "Its old rows are not what they were"),
        ([*ROWS[:9], ROWS[10] | {"new": 1}], "other columns"),
    ]:
        with pytest.raises(JobError, match=message):
            surefoot.bulk(write_jsonl(source, rows), out, model=scorer, extend=True)
    with pytest.raises(JobError, match="missing"):
        surefoot.bulk(write_jsonl(tmp_path / "b.jsonl", ROWS), out, model=scorer, extend=True)
    half = tmp_path / "half.jsonl"
    half.write_text(lines(ROWS[:2])[:-1])
    surefoot.bulk(half, tmp_path / "half", model=scorer)
    half.write_text(lines(ROWS[:3]))
    with pytest.raises(JobError, match="last line was not complete"):
        surefoot.bulk(half, tmp_path / "half", model=scorer, extend=True)


def test_a_fresh_job_deletes_only_its_own_files(tmp_path: Path, scorer: surefoot.Scorer) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", ROWS)
    surefoot.bulk(source, tmp_path / "out", model=scorer, unit_rows=3)
    (tmp_path / "out" / "notes.txt").write_text("mine")
    surefoot.bulk(source, tmp_path / "out", model=scorer, unit_rows=100, fresh=True)
    assert len(parts(tmp_path / "out")) == 1
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"


def test_the_schema_is_documented(tmp_path: Path, scorer: surefoot.Scorer) -> None:
    source = write_jsonl(tmp_path / "in.jsonl", ROWS)
    surefoot.bulk(source, tmp_path / "out", model=scorer, columns={"gold": "answer"}, reward="min", step_text=True)
    schema = pq.read_schema(parts(tmp_path / "out")[0])
    page = (Path(__file__).parents[2] / "docs" / "bulk.md").read_text(encoding="utf-8")
    for field in schema:
        if field.name.startswith("prm_"):
            assert b"description" in field.metadata, field.name
            assert f"| `{field.name}` |" in page, field.name
    (first, *_) = results(tmp_path / "out")
    assert [step["text"] for step in first["prm_steps"]] == first["solution"].split("\n")


def test_the_job_does_not_store_secrets(tmp_path: Path, scorer: surefoot.Scorer) -> None:
    from helpers.serving import served
    from surefoot.serve import Settings

    source = write_jsonl(tmp_path / "in.jsonl", ROWS)
    with served([scorer], Settings(api_key="very-secret-key")) as (url, _):
        surefoot.bulk(source, tmp_path / "out", model=url, load={"api_key": "very-secret-key"})
    assert [row["prm_status"] for row in results(tmp_path / "out")] == ["scored"] * 18
    for path in (tmp_path / "out").rglob("*"):
        assert not path.is_file() or b"very-secret-key" not in path.read_bytes()
    local = scorer.score(ROWS[0]["question"], ROWS[0]["solution"])
    assert results(tmp_path / "out")[0]["prm_step_scores"] == pytest.approx(local.step_scores, abs=1e-5)


def test_a_service_that_fails_loses_nothing(tmp_path: Path, scorer: surefoot.Scorer) -> None:
    from helpers.serving import served

    source = write_jsonl(tmp_path / "in.jsonl", ROWS)
    with served([scorer]) as (url, _):
        surefoot.bulk(source, tmp_path / "out", model=url, unit_rows=9)
        parts(tmp_path / "out")[1].unlink()
    with pytest.raises(surefoot.SurefootError):
        surefoot.bulk(source, tmp_path / "out", model=url, unit_rows=9, load={"patience": 0.1})
    assert len(parts(tmp_path / "out")) == 1
