"""Results as tables: the schema, the values, null for what is missing. Expected values were calculated by hand."""

from __future__ import annotations

import builtins
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

import surefoot
from surefoot.core.arrow import BATCH_ROWS, score_schema, score_table
from surefoot.core.result import SolutionScore, StepScore
from surefoot.core.solution import Span
from surefoot.errors import InputError, MissingDependencyError

SCORED = SolutionScore(
    (StepScore("½ = 0.5", 0, 7, 0.5, "scored", 0, raw=0.75), StepScore("So 2.", 9, 14, 0.25, "scored", 2, spread=0.1)),
    "prm",
    answer="2",
    warnings=("A step contains the marker.",),
    outside=(Span(14, 17),),
    tokens=21,
    seconds=0.5,
    calibration="temperature-1",
)
PARTIAL = SolutionScore(
    (
        StepScore("One.", 0, 4, 0.9, "scored", 0),
        StepScore("Two.", 5, 9, None, "over_length", 1),
        StepScore("The answer is 3", 10, 12, 0.125, "scored", 2, "answer"),
    ),
    "prm",
    reason="Too long.",
    tokens=8,
)
UNSCORED = SolutionScore((), "prm", reason="The solution has no steps.")
MARGIN = SolutionScore((StepScore("One.", 0, 4, -0.5, "scored", 0),), "other", scale="margin", tokens=3)
RESULTS = [SCORED, PARTIAL, UNSCORED, MARGIN]

COLUMNS: dict[str, list[Any]] = {
    "status": ["scored", "partial", "unscored", "scored"],
    "reason": [None, "Too long.", "The solution has no steps.", None],
    "mean": [0.375, None, None, -0.5],
    "min": [0.25, None, None, -0.5],
    "final": [0.25, 0.125, None, -0.5],
    "product": [0.125, None, None, None],
    "geometric_mean": [0.3535533905932738, None, None, None],  # the square root of 1 / 8
    "first_error": [0, None, None, 0],
    "correct_prefix": [0.0, None, None, 0.0],
    "answer": ["2", None, None, None],
    "step_scores": [[0.5, 0.25], [0.9, None, 0.125], [], [-0.5]],
    "steps": [],
    "warnings": [["A step contains the marker."], [], [], []],
    "unscored_chars": [3, 4, 0, 0],
    "tokens": [21, 8, 0, 3],
    "generated_tokens": [0, 0, 0, 0],
    "calls": [0, 0, 0, 0],
    "model": ["prm", "prm", "prm", "other"],
    "scale": ["probability", "probability", "probability", "margin"],
    "calibration": ["temperature-1", None, None, None],
}
STEPS = [
    {"text": "One.", "start": 0, "end": 4, "score": 0.9, "status": "scored", "kind": "body"},
    {"text": "Two.", "start": 5, "end": 9, "score": None, "status": "over_length", "kind": "body"},
    {"text": "The answer is 3", "start": 10, "end": 12, "score": 0.125, "status": "scored", "kind": "answer"},
]
STEPS = [step | {"raw": None, "spread": None, "members": [], "label_mass": None} for step in STEPS]
STEP_TYPE = (
    "struct<{}start: int64, end: int64, score: double, status: string, kind: string, raw: double, spread: double, "
    "members: list<item: struct<model: string, score: double, reason: string>>, label_mass: double>"
)
TYPES = {
    **dict.fromkeys(COLUMNS, "string"),
    **dict.fromkeys(("mean", "min", "final", "product", "geometric_mean", "correct_prefix"), "double"),
    "first_error": "int32",
    "step_scores": "list<item: double>",
    "warnings": "list<item: string>",
    "unscored_chars": "int64",
    **dict.fromkeys(("tokens", "generated_tokens", "calls"), "int64"),
}


@pytest.mark.parametrize("prefix", ["", "surefoot_"])
@pytest.mark.parametrize(("step_text", "text"), [(True, "text: string, "), (False, "")])
@pytest.mark.parametrize("results", [RESULTS, []], ids=["results", "empty"])
def test_the_schema(results: list[SolutionScore], prefix: str, step_text: bool, text: str) -> None:
    schema = score_schema(prefix=prefix, step_text=step_text)
    table = score_table(results, prefix=prefix, step_text=step_text)
    table.validate(full=True)
    assert table.schema.equals(schema, check_metadata=True)
    assert schema.names == [prefix + name for name in COLUMNS]
    expected = TYPES | {"steps": f"list<item: {STEP_TYPE.format(text)}>"}
    assert {field.name: str(field.type) for field in schema} == {prefix + name: expected[name] for name in COLUMNS}
    assert [field.name for field in schema if not field.nullable] == [prefix + "status"]
    for field in [*schema, *schema.field(prefix + "steps").type.value_type]:
        description = field.metadata[b"description"].decode()
        assert description.endswith(".")
        assert "\n" not in description


def test_values_and_what_is_missing() -> None:
    table = surefoot.to_arrow(iter(RESULTS))
    for name, column in COLUMNS.items():
        if name != "steps":
            assert table[name].to_pylist() == column, name
    steps = table["steps"].to_pylist()
    assert steps[1] == STEPS
    assert [step["raw"] for step in steps[0]] == [0.75, None]
    assert [step["spread"] for step in steps[0]] == [None, 0.1]
    assert steps[2] == []
    without = score_table(RESULTS, prefix="p_", step_text=False)["p_steps"].to_pylist()
    assert without[1] == [{name: value for name, value in step.items() if name != "text"} for step in STEPS]


def test_the_values_are_those_of_to_dict(mini: surefoot.Scorer) -> None:
    results = mini.score_many([("What is 2 + 3?", "Step 1: 2 + 3 = 6.\nFinal Answer: 6"), ("What is 1 + 1?", "")])
    for row, result in zip(surefoot.to_arrow(results).to_pylist(), results, strict=True):
        data = result.to_dict()
        assert row.pop("step_scores") == result.step_scores
        for step in data["steps"]:
            del step["index"]
        assert row == {name: data[name] for name in row}
        left_out = {"outside", "skipped", "empty_steps", "split", "seconds", "recommended", "precision"}
        assert set(data) - set(row) == left_out


def test_tables_survive_parquet(tmp_path: Path) -> None:
    table = surefoot.to_arrow(RESULTS)
    pq.write_table(table, tmp_path / "scores.parquet")
    back = pq.read_table(tmp_path / "scores.parquet")
    assert back.equals(table)
    assert back.schema.equals(table.schema)
    assert back.schema.field("mean").metadata[b"description"] == table.schema.field("mean").metadata[b"description"]
    assert back.to_pylist() == table.to_pylist()


def test_equal_results_give_equal_tables() -> None:
    """However long they took, and however many there are."""
    again = [replace(result, seconds=result.seconds + 1.0) for result in RESULTS]
    assert surefoot.to_arrow(again).equals(surefoot.to_arrow(RESULTS))
    many = surefoot.to_arrow(RESULTS * BATCH_ROWS)
    assert many.num_rows == len(RESULTS) * BATCH_ROWS
    assert many.slice(many.num_rows - len(RESULTS)).equals(surefoot.to_arrow(RESULTS))


def test_nan_is_null() -> None:
    """A model's NaN never becomes a score, but a result may come from elsewhere."""
    step = StepScore("One.", 0, 4, math.nan, "not_finite", 0, raw=math.nan)
    table = surefoot.to_arrow([SolutionScore((step,), "prm")])
    assert table["step_scores"].to_pylist() == [[None]]
    assert table["steps"].to_pylist()[0][0] == STEPS[0] | {"score": None, "status": "not_finite"}
    assert table["mean"].to_pylist() == [None]


def test_data_frames() -> None:
    frame = surefoot.to_pandas(RESULTS)
    assert list(frame.columns) == list(COLUMNS)
    dtypes = {
        "string": pd.StringDtype(),
        "double": pd.Float64Dtype(),
        "int32": pd.Int32Dtype(),
        "int64": pd.Int64Dtype(),
    }
    for name, column in COLUMNS.items():
        assert frame[name].dtype == (dtypes[TYPES[name]] if TYPES[name] in dtypes and name != "steps" else object)
        if name != "steps":
            assert [None if cell is pd.NA else cell for cell in frame[name]] == column, name
    assert frame["steps"][1] == STEPS
    assert frame["mean"].mean() == pytest.approx(-0.0625)  # of 0.375 and -0.5: missing numbers do not count
    pd.testing.assert_series_equal(surefoot.to_pandas([]).dtypes, frame.dtypes)
    assert len(surefoot.to_pandas([])) == 0


def test_data_frames_survive_parquet(tmp_path: Path) -> None:
    frame = surefoot.to_pandas(RESULTS)
    frame.to_parquet(tmp_path / "scores.parquet")
    back = pd.read_parquet(tmp_path / "scores.parquet")
    pd.testing.assert_series_equal(back.dtypes, frame.dtypes)
    numbers = ["mean", "first_error", "tokens", "answer"]
    pd.testing.assert_frame_equal(back[numbers], frame[numbers])


def test_the_steps_of_one_solution() -> None:
    table = PARTIAL.to_arrow()
    assert table.column_names == [
        "index",
        "text",
        "start",
        "end",
        "score",
        "status",
        "kind",
        "raw",
        "spread",
        "members",
        "label_mass",
    ]
    assert table.to_pylist() == [{"index": index} | step for index, step in enumerate(STEPS)]
    assert SCORED.to_arrow()["index"].to_pylist() == [0, 2]
    assert all(field.metadata[b"description"] for field in table.schema)
    assert UNSCORED.to_arrow().schema.equals(table.schema, check_metadata=True)
    frame = PARTIAL.to_pandas()
    assert frame["score"].isna().tolist() == [False, True, False]
    assert frame["score"].dtype == pd.Float64Dtype()
    assert frame["end"].tolist() == [4, 9, 12]


def test_one_result_is_not_a_list() -> None:
    for convert in (surefoot.to_arrow, surefoot.to_pandas):
        with pytest.raises(InputError, match=r"got SolutionScore. For the steps of one result call its method"):
            convert(SCORED)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("missing", "call", "advice"),
    [
        ("pyarrow", surefoot.to_arrow, 'pyarrow .*pip install "surefoot\\[bulk\\]"'),
        ("pyarrow", surefoot.to_pandas, 'pyarrow .*pip install "surefoot\\[bulk\\]"'),
        ("pandas", surefoot.to_pandas, 'pandas .*pip install "surefoot\\[bulk\\]" pandas'),
    ],
)
def test_missing_packages(missing: str, call: Any, advice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name == missing:
            raise ImportError(f"No module named {name!r}")
        return original(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingDependencyError, match=advice):
        call(RESULTS)


def test_results_of_json_give_the_same_table() -> None:
    read = [SolutionScore.from_dict(json.loads(result.to_json())) for result in RESULTS]
    assert surefoot.to_arrow(read).equals(surefoot.to_arrow(RESULTS))
