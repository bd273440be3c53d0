"""Reading data: formats, label bases, and what is said about a bad row."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from surefoot.errors import InputError, MissingDependencyError
from surefoot.evaluate import read_prmbench, read_processbench, read_rollouts
from surefoot.evaluate.rows import without_prefix

GOOD = {
    "id": "gsm8k-0",
    "generator": "G",
    "problem": "p",
    "steps": ["a", "b"],
    "final_answer_correct": False,
    "label": 1,
}


def jsonl(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_json_jsonl_and_gzip_are_the_same(tmp_path: Path) -> None:
    rows = [GOOD, {**GOOD, "id": "gsm8k-1", "label": -1, "problem": "é"}]
    text = json.dumps(rows, indent=1, ensure_ascii=False)
    (tmp_path / "one.json").write_text(text, encoding="utf-8")
    jsonl(tmp_path / "two.jsonl", *rows)
    (tmp_path / "three.jsonl.gz").write_bytes(gzip.compress((tmp_path / "two.jsonl").read_bytes()))
    (tmp_path / "four.json").write_text("\ufeff \n" + text, encoding="utf-8")
    found = [read_processbench(tmp_path / name) for name in ("one.json", "two.jsonl", "three.jsonl.gz", "four.json")]
    assert [row.split for rows in found for row in rows] == ["one"] * 2 + ["two"] * 2 + ["three"] * 2 + ["four"] * 2
    for rows_read in found:
        assert [(row.id, row.label, row.problem, row.generator) for row in rows_read] == [
            ("gsm8k-0", 1, "p", "G"),
            ("gsm8k-1", -1, "é", "G"),
        ]


def test_a_folder_is_a_set_of_splits(tmp_path: Path) -> None:
    jsonl(tmp_path / "math.jsonl", GOOD)
    jsonl(tmp_path / "gsm8k.jsonl", GOOD, GOOD)
    (tmp_path / "README.md").write_text("not data")
    assert [row.split for row in read_processbench(tmp_path)] == ["gsm8k", "gsm8k", "math"]
    assert [row.split for row in read_processbench(tmp_path, splits=["math"])] == ["math"]
    with pytest.raises(InputError, match="has no split omnimath. It has: gsm8k, math"):
        read_processbench(tmp_path, splits=["omnimath"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="contains no .json or .jsonl file"):
        read_processbench(tmp_path / "empty")


def test_line_separators_inside_a_string_end_no_line(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text(json.dumps({**GOOD, "problem": "a\u2028b\x85c"}, ensure_ascii=False) + "\n", encoding="utf-8")
    assert read_processbench(file)[0].problem == "a\u2028b\x85c"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": 2}, "label is 2; expected the 0-based index of the first incorrect of 2 steps, or -1"),
        ({"label": -2}, "label is -2"),
        ({"label": True}, "label is True"),
        ({"label": None}, "label is None"),
        ({"steps": []}, "expected `steps` as a non-empty list of texts"),
        ({"steps": "a b"}, "expected `steps`"),
        ({"steps": ["a", 3]}, "expected `steps`"),
        ({"problem": 4}, "`problem` is int; expected text"),
        ({"problem": None}, "expected `problem`. Its fields are: id, generator"),
        ({"generator": 7}, "generator is 7; expected text, or null"),
        ({"generator": ["G"]}, "generator is ['G']; expected text, or null"),
        ({"final_answer_correct": "false"}, "final_answer_correct is 'false'; expected true, false or null"),
        ({"final_answer_correct": 1}, "final_answer_correct is 1; expected true, false or null"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    file = jsonl(tmp_path / "x.jsonl", GOOD, {**GOOD, **change})
    with pytest.raises(InputError) as error:
        read_processbench(file)
    assert str(error.value).startswith(f"{file}, line 2: ")
    assert message in str(error.value)


def test_a_bad_item_of_a_list_is_named(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text(json.dumps([GOOD, {**GOOD, "label": 9}]))
    with pytest.raises(InputError, match=r"x.json, item 1 \(from 0\): label is 9"):
        read_processbench(file)
    file.write_text(json.dumps([GOOD, 3]))
    with pytest.raises(InputError, match=r"item 1 \(from 0\): expected an object, found int"):
        read_processbench(file)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[{}", "is not JSON"),
        (b'{"a": 1}\nnonsense\n', "line 2 is not JSON"),
        (b"\xff\xfe", "cannot be read"),
        (b"\x1f\x8bnot gzip", "cannot be read"),
        (gzip.compress(b"[]" * 999, mtime=0)[:12] + b"\xff" * 9, "cannot be read"),
        (b"[" * 200_000, "is not JSON"),
        (gzip.compress(b"[]" * 999, mtime=0)[:-9], "cannot be read"),
    ],
)
def test_broken_files(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "x.json"
    file.write_bytes(content)
    with pytest.raises(InputError, match=message):
        list(read_rollouts(file) if b'"a"' not in content else read_processbench_raw(file))


def read_processbench_raw(file: Path) -> list[Any]:
    from surefoot.data.records import read_records

    return list(read_records(file))


def test_what_is_neither_file_nor_hub_id() -> None:
    with pytest.raises(InputError, match="is not a file, a folder or a Hub id"):
        read_processbench("no such file.json")


def test_the_hub_needs_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingDependencyError, match=r'pip install "surefoot\[datasets\]"'):
        read_processbench("Qwen/ProcessBench")


def test_the_hub_gives_its_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package hands out a mapping from split to rows; that shape is all that is used of it."""

    class Datasets:
        @staticmethod
        def load_dataset(name: str) -> dict[str, list[dict[str, Any]]]:
            if name != "Qwen/ProcessBench":
                raise OSError("offline")
            return {"gsm8k": [GOOD], "math": [{**GOOD, "label": 7}]}

    monkeypatch.setitem(sys.modules, "datasets", Datasets)
    with pytest.raises(InputError, match=r"Qwen/ProcessBench, split math, item 0 \(from 0\): label is 7"):
        read_processbench("Qwen/ProcessBench")
    with pytest.raises(InputError, match="loading it from the Hub failed: offline"):
        read_processbench("other/one")


def test_our_labelled_files_are_processbench_rows(tmp_path: Path) -> None:
    ours = {"id": "0", "source": "mr-gsm8k", "problem": "p", "steps": ["a"], "label": 0, "labeler": "human"}
    (row,) = read_processbench(jsonl(tmp_path / "mr-gsm8k.jsonl", ours))
    assert (row.split, row.label, row.generator, row.answer_correct) == ("mr-gsm8k", 0, None, None)


# --- PRMBench ------------------------------------------------------------------------------------------------------

OFFICIAL = {
    "idx": "circular_1",
    "classification": "circular",
    "original_question": "oq",
    "modified_question": "mq",
    "original_process": ["1. o"],
    "modified_process": ["1. a", "2. b", "3. c"],
    "error_steps": [2, 3],
}


def test_official_indices_count_from_one(tmp_path: Path) -> None:
    (row,) = read_prmbench(jsonl(tmp_path / "x.jsonl", OFFICIAL))
    assert (row.problem, row.steps, sorted(row.errors)) == ("mq", ("a", "b", "c"), [1, 2])
    with pytest.raises(InputError, match="this format counts steps from 1"):
        read_prmbench(jsonl(tmp_path / "y.jsonl", {**OFFICIAL, "error_steps": [0]}))


def test_ours_count_from_zero(tmp_path: Path) -> None:
    ours = {
        "id": "1",
        "classification": "circular",
        "problem": "q",
        "steps": ["a", "b"],
        "error_steps": [1],
        "label": 1,
    }
    (row,) = read_prmbench(jsonl(tmp_path / "x.jsonl", ours))
    assert sorted(row.errors) == [1]
    with pytest.raises(InputError, match="label is 1 and error_steps is .2.; the label has to be the smallest"):
        read_prmbench(jsonl(tmp_path / "y.jsonl", {**ours, "error_steps": [2]}))


def test_indices_past_the_end_are_counted_and_left_out(tmp_path: Path) -> None:
    (row,) = read_prmbench(jsonl(tmp_path / "x.jsonl", {**OFFICIAL, "error_steps": [3, 4, 9]}))
    assert (sorted(row.errors), row.out_of_range) == ([2], 2)


def test_originals_come_from_redundency_rows_and_repeats_are_dropped(tmp_path: Path) -> None:
    redundant = {**OFFICIAL, "classification": "redundency", "idx": "r"}
    rows = read_prmbench(jsonl(tmp_path / "x.jsonl", OFFICIAL, redundant, redundant, OFFICIAL))
    assert [(row.classification, row.problem) for row in rows] == [
        ("circular", "mq"),
        ("redundency", "mq"),
        ("correct", "oq"),
    ]
    other = {**OFFICIAL, "modified_process": ["x", "y", "z"]}
    assert len(read_prmbench(jsonl(tmp_path / "y.jsonl", OFFICIAL, other))) == 2
    again = {**redundant, "modified_process": ["x", "y", "z"]}
    found = read_prmbench(jsonl(tmp_path / "z.jsonl", redundant, again))
    assert [row.classification for row in found] == ["redundency", "correct", "redundency"]
    assert rows[2].steps == ("o",)
    assert not rows[2].errors


@pytest.mark.parametrize(
    ("step", "bare"),
    [
        ("1. a", "a"),
        (" 12. a ", "a"),
        ("Step 3. a", "a"),
        ("step3.a", "a"),
        ("0.25 of it", "0.25 of it"),
        ("Step 3: a", "Step 3: a"),
        ("a 1. b", "a 1. b"),
        ("30.", "30."),
        ("Step 4. ", "Step 4."),
        (" ", ""),
    ],
)
def test_step_prefixes(step: str, bare: str) -> None:
    assert without_prefix(step) == bare


# --- rollouts ------------------------------------------------------------------------------------------------------


def test_rollouts(tmp_path: Path) -> None:
    rows = read_rollouts(
        jsonl(
            tmp_path / "x.jsonl",
            {"problem_id": "7", "question": "q", "steps": ["a", "so \\boxed{4}"], "ground_truth": 4, "s": [0.1, None]},
            {"question": "q", "solution": "a\n\n#### 5", "is_correct": False, "s": [1, 0]},
            {"problem": "q", "solution": "a", "reference": "4", "final_answer": 4, "s": []},
            {"problem": "q", "solution": "nothing stated", "reference": "4", "s": []},
            {"problem_id": None, "problem": "r", "solution": "so \\boxed{4}", "reference": "4", "s": []},
            {"problem_id": 0, "problem": "t", "solution": "a", "reference": "4", "final_answer": " ", "s": []},
        ),
        scores="s",
    )
    assert [(row.group, row.answer, row.reference, row.label) for row in rows] == [
        ("7", "4", "4", None),
        ("q", "5", None, False),
        ("q", "4", "4", None),
        ("q", None, "4", None),
        ("r", "4", "4", None),
        ("0", None, "4", None),
    ]
    assert rows[0].scores == (0.1, None)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "q", "steps": ["a"]}, "expected the reference answer as `ground_truth` or `reference`"),
        ({"question": "q", "steps": ["a"], "is_correct": 1}, "is_correct is 1; expected true or false"),
        ({"question": "q", "is_correct": True}, "expected `solution`"),
        ({"question": "q", "steps": ["a"], "is_correct": True}, "expected `s` as a list of numbers"),
        ({"question": "q", "steps": ["a"], "is_correct": True, "s": [0.1, 0.2]}, "`s` has 2 scores for 1 steps"),
        ({"question": "q", "steps": ["a"], "is_correct": True, "s": [float("nan")]}, "list of numbers, with null for"),
        ({"question": "q", "steps": ["a"], "is_correct": True, "s": [True]}, "list of numbers"),
    ],
)
def test_bad_rollouts(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=r"line 1: ") as error:
        read_rollouts(jsonl(tmp_path / "x.jsonl", row), scores="s")
    assert message in str(error.value)


def test_one_id_is_one_problem(tmp_path: Path) -> None:
    rows = [{"problem_id": 3, "question": question, "steps": ["a"], "is_correct": True} for question in "qqr"]
    file = jsonl(tmp_path / "x.jsonl", *rows)
    with pytest.raises(InputError) as error:
        read_rollouts(file)
    assert str(error.value).startswith(
        f"{file}, line 3: problem_id is '3', which belongs to another problem at {file}, line 1"
    )
    nameless = [row | {"problem_id": None} for row in rows]
    assert [row.group for row in read_rollouts(jsonl(file, *nameless))] == ["q", "q", "r"]
