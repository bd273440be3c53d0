"""ScoreBatch in real pipelines of Ray Data."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import surefoot
from helpers.ray_cluster import RayCluster, local_cluster
from surefoot.core.arrow import score_schema, score_table
from surefoot.errors import LoadError, OptionError
from surefoot.integrations.ray import ScoreBatch

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="uses /proc")

QUESTION = "What is 2 + 3?"
GOOD = [{"problem": QUESTION, "response": "2 + 3 = 5."}, {"problem": QUESTION, "response": "2 + 3 = 6."}]
BAD = [{"problem": None, "response": "2 + 3 = 5."}, {"problem": QUESTION, "response": None}]
COLUMNS = {"question": "problem", "solution": "response"}
ADDED = score_schema(prefix="prm_", step_text=False)


def scored(table: pa.Table, scorer: surefoot.Scorer, **options: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = ScoreBatch(scorer, **{"columns": COLUMNS} | options)(table).to_pylist()
    return rows


def test_scores_are_those_of_score_many(scorer: surefoot.Scorer) -> None:
    batch = pa.Table.from_pylist(GOOD)
    found = ScoreBatch(scorer, COLUMNS)(batch)
    alone = scorer.score_many([(row["problem"], row["response"]) for row in GOOD])
    expected = score_table(alone, prefix="prm_", step_text=False)
    assert found.select(batch.column_names).equals(batch)
    assert found.select(expected.column_names).equals(expected)
    assert found.schema.field("prm_min").metadata == expected.schema.field("prm_min").metadata


def not_utf8() -> pa.Table:
    """A text that is not UTF-8, after one that is. Arrow reads such texts from files without a check."""
    offsets, data = pa.array([0, 1, 2], pa.int32()).buffers()[1], pa.py_buffer(b"2\xff")
    response = pa.Array.from_buffers(pa.string(), 2, [None, offsets, data])
    return pa.table({"problem": pa.array([QUESTION] * 2), "response": response})


BATCHES: dict[str, tuple[pa.Table, dict[str, Any], list[str | None]]] = {
    "bad rows among others": (
        pa.Table.from_pylist([BAD[0], GOOD[0], BAD[1]]),
        {},
        ["`problem` is null.", None, "`response` is null."],
    ),
    "only bad rows": (pa.Table.from_pylist(BAD), {}, ["`problem` is null.", "`response` is null."]),
    "no rows": (pa.Table.from_pylist(GOOD).slice(0, 0), {}, []),
    "no rows and no columns": (pa.table({}), {}, []),
    "a column of nulls": (
        pa.table({"problem": pa.array([QUESTION]), "response": pa.nulls(1)}),
        {},
        ["`response` is null."],
    ),
    "an empty solution": (pa.Table.from_pylist([GOOD[0] | {"response": ""}]), {}, ["The solution has no steps."]),
    "numbers instead of texts": (
        pa.Table.from_pylist([{"problem": QUESTION, "response": 5}]),
        {},
        ["`response` is int, not text or chat messages."],
    ),
    "steps": (
        pa.table(
            {
                "question": pa.array([QUESTION] * 4),
                "steps": pa.array([["2 + 3 = 5."], [], ["2.", None], None], pa.list_(pa.string())),
            }
        ),
        {"columns": None},
        [
            None,
            "The solution has no steps.",
            "`steps` contains null; every step has to be text.",
            "The row has neither `solution` nor `steps`. It needs one of them.",
        ],
    ),
    "messages": (
        pa.table({"chat": [[{"role": "user", "content": QUESTION}, {"role": "assistant", "content": "5."}], []]}),
        {"columns": {"question": "chat", "solution": "chat"}},
        [None, "`chat` is list, not text or chat messages."],
    ),
    "messages with texts as parts": (
        pa.table({"chat": [[{"role": "user", "content": [QUESTION]}]]}),
        {"columns": {"question": "chat", "solution": "chat"}},
        ["The content of a message is list, not text or a list of parts."],
    ),
    "text that is not UTF-8": (
        not_utf8(),
        {},
        [None, "The row contains text that is not UTF-8: 'utf-8' codec can't decode byte 0xff in position 0: invalid "],
    ),
}


@pytest.mark.parametrize("name", BATCHES)
def test_a_row_never_raises(name: str, scorer: surefoot.Scorer) -> None:
    batch, options, reasons = BATCHES[name]
    found = ScoreBatch(scorer, **{"columns": COLUMNS} | options)(batch)
    assert found.schema == pa.schema([*batch.schema, *ADDED])
    assert found["prm_status"].to_pylist() == ["unscored" if reason else "scored" for reason in reasons]
    for reason, expected in zip(found["prm_reason"].to_pylist(), reasons, strict=True):
        assert reason is None if expected is None else reason.startswith(expected)
    assert set(found["prm_scale"].to_pylist()) <= {"probability"}


@pytest.mark.parametrize(
    ("options", "batch", "message"),
    [
        ({"columns": {"completions": "samples"}}, GOOD, "a row has one solution. Divide rows"),
        ({"columns": {"question": "q", "solution": "response"}}, GOOD, "no column 'q'. It has: problem, response"),
        ({"prefix": ""}, [GOOD[0] | {"min": 1}], "has a column 'min', too"),
    ],
)
def test_mistakes_raise(options: Any, batch: Any, message: str, scorer: surefoot.Scorer) -> None:
    with pytest.raises(OptionError, match=message):
        scored(pa.Table.from_pylist(batch), scorer, **options)


def test_other_batch_formats_raise(scorer: surefoot.Scorer) -> None:
    with pytest.raises(OptionError, match='A batch is dict. Pass batch_format="pyarrow"'):
        ScoreBatch(scorer)({"question": [QUESTION]})


def test_a_model_that_does_not_exist_raises() -> None:
    with pytest.raises(LoadError, match="nor a hub id"):
        ScoreBatch("/does/not/exist")


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with local_cluster(nodes=1, cpus=2) as running:
        ray.init(running.address, log_to_driver=False, logging_level="ERROR")
        yield running


def test_types_survive_a_pipeline(cluster: RayCluster, mini: surefoot.Scorer, tmp_path: Path) -> None:
    steps = [["2 + 3 = 5.", "So it is 5."], ["2 + 3 = 6."], None, []]
    kind = pa.list_(pa.string())
    rows = pa.table({"id": [0, 1, 2, 3], "problem": pa.array([QUESTION] * 4), "steps": pa.array(steps, kind)})
    bad = pa.table({"id": [4, 5], "problem": pa.nulls(2, pa.string()), "steps": pa.nulls(2, kind)})
    data = ray.data.from_arrow([rows, bad, rows.slice(0, 0)])  # a mixed block, an all-bad one and an empty one
    result = data.map_batches(
        ScoreBatch,
        fn_constructor_kwargs={
            "model": "mini",
            "columns": {"question": "problem", "steps": "steps"},
            "load": {"compile": False},
        },
        batch_format="pyarrow",
        batch_size=None,
        concurrency=1,
    )
    result.write_parquet(str(tmp_path / "out"))
    found = pa.concat_tables(pq.read_table(file) for file in sorted((tmp_path / "out").glob("*.parquet")))
    assert found.schema.equals(pa.schema([*rows.schema, *ADDED]))
    found = found.sort_by("id")
    assert found["steps"].to_pylist() == [*steps, None, None]
    assert found["prm_status"].to_pylist() == ["scored", "scored", *["unscored"] * 4]
    assert found["prm_reason"].to_pylist()[2:] == [
        "`steps` is null.",
        "The solution has no steps.",
        "`problem` is null.",
        "`problem` is null.",
    ]
    here = [mini.score(QUESTION, given).step_scores for given in steps[:2] if given is not None]
    assert found["prm_step_scores"].to_pylist()[:2] == [pytest.approx(each, abs=1e-5) for each in here]
    shutil.rmtree(tmp_path / "out")
