"""What counts as a solution: texts, lists, and the arrays of the libraries that people keep them in."""

from __future__ import annotations

import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import surefoot
from helpers.serving import served
from surefoot.core.solution import read_solution
from surefoot.data.items import read_record
from surefoot.errors import InputError

QUESTION = "What is 2 + 3?"
STEPS = ["2 + 3 = 5.", "½ of it is 2.5.", "So the answer is 5."]
LISTS = pa.array([STEPS, ["Another."]])

ARRAYS: dict[str, Any] = {
    "tuple": tuple(STEPS),
    "numpy objects": np.array(STEPS, dtype=object),
    "numpy text": np.array(STEPS),
    "numpy strings": [np.str_(step) for step in STEPS],
    "numpy view": np.array([*STEPS, "Dropped."], dtype=object)[:-1],
    "arrow array": pa.array(STEPS),
    "arrow large strings": pa.array(STEPS, pa.large_string()),
    "arrow string views": pa.array(STEPS, pa.string_view()),
    "arrow dictionary": pa.array(STEPS).dictionary_encode(),
    "arrow chunks": pa.chunked_array([STEPS[:1], STEPS[1:]]),
    "arrow list": LISTS[0],
    "arrow large list": pa.array([STEPS], pa.large_list(pa.string()))[0],
    "arrow fixed list": pa.array([STEPS], pa.list_(pa.string(), 3))[0],
    "arrow slice": LISTS.slice(0, 1)[0].values,
    "pandas series": pd.Series(STEPS),
    "pandas objects": pd.Series(STEPS, dtype=object),
    "pandas strings": pd.Series(STEPS, dtype="string"),
    "pandas arrow": pd.Series(STEPS, dtype=pd.ArrowDtype(pa.string())),
    "pandas categories": pd.Series(STEPS, dtype="category"),
    "pandas index": pd.Index(STEPS),
    "pandas array": pd.array(STEPS, dtype="string"),
    "pandas series with other labels": pd.Series(STEPS, index=[7, 5, 3]),
}

A_LIST = "pass a str, or a list with one str per step"
WRONG: list[tuple[Any, str]] = [
    ({"a": "b"}, f"of type dict; {A_LIST}"),
    ({"a"}, f"of type set; {A_LIST}"),
    (None, f"of type NoneType; {A_LIST}"),
    (3, f"of type int; {A_LIST}"),
    (iter(STEPS), f"of type list_iterator; {A_LIST}"),
    (b"text", "is bytes; decode it to str first"),
    (pa.scalar(b"text"), "is bytes; decode it to str first"),
    (np.array(3), f"of type ndarray; {A_LIST}"),
    (pa.scalar(3), f"of type Int64Scalar; {A_LIST}"),
    (pa.scalar(None, pa.list_(pa.string())), f"of type ListScalar; {A_LIST}"),
    (pa.array([{"a": "b"}])[0], f"of type StructScalar; {A_LIST}"),
    (pd.DataFrame({"steps": STEPS}), f"of type DataFrame; {A_LIST}"),
    (np.ndarray, f"of type type; {A_LIST}"),
    (np.array([STEPS, STEPS], dtype=object), "Step 0 of the list is of type list"),
    (np.array([STEPS, STEPS]), "Step 0 of the list is of type list"),
    (LISTS, "Step 0 of the list is of type list"),
    (pd.Series([STEPS]), "Step 0 of the list is of type list"),
    (pa.table({"steps": STEPS}), "Step 0 of the list is of type dict"),
    (np.array([0.5, 1.0]), "Step 0 of the list is of type float"),
    (torch.tensor([0.5]), "Step 0 of the list is of type float"),
    (pd.Series([1, 2]), "Step 0 of the list is of type int"),
    (pa.array([1, 2]), "Step 0 of the list is of type int"),
    (array.array("i", [1]), "Step 0 of the list is of type int"),
    (np.array([b"text"]), "Step 0 of the list is of type bytes; every step must be a str. Decode it first."),
    (pa.array(["One.", None]), "Step 1 of the list is of type NoneType"),
    (np.array(["One.", None], dtype=object), "Step 1 of the list is of type NoneType"),
    (pd.Series(["One.", None], dtype="string"), "Step 1 of the list is of type NAType"),
    (pd.Series(["One.", np.nan], dtype=object), "Step 1 of the list is of type float"),
    (np.ma.array(["One.", "Two."], mask=[False, True]), "Step 1 of the list is of type NoneType"),
]


@pytest.fixture(scope="module")
def client(scorer: surefoot.Scorer) -> Iterator[surefoot.Client]:
    with served([scorer]) as (url, _), surefoot.connect(url) as client:
        yield client


@pytest.mark.parametrize("steps", ARRAYS.values(), ids=list(ARRAYS))
def test_arrays_are_lists_of_steps(steps: Any) -> None:
    assert list(read_solution(steps)) == STEPS
    assert [step.text for step in surefoot.split(steps).steps] == STEPS


@pytest.mark.parametrize(
    ("wrong", "message"), WRONG, ids=[f"{at} {type(row[0]).__name__}" for at, row in enumerate(WRONG)]
)
def test_what_is_no_solution(wrong: Any, message: str) -> None:
    with pytest.raises(InputError) as error:
        read_solution(wrong)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (np.str_("One."), "One."),
        (pa.scalar("One."), "One."),
        (np.array("One."), "One."),
        (pd.Series(["One."])[0], "One."),
    ],
)
def test_texts_of_other_libraries(text: Any, expected: str) -> None:
    assert read_solution(text) == expected
    assert read_record({"question": text, "solution": text}) == (expected, expected)


def test_records() -> None:
    for name in ("numpy objects", "arrow list", "pandas series"):
        question, steps = read_record({"question": pa.scalar(QUESTION), "steps": ARRAYS[name]})
        assert (question, list(steps)) == (QUESTION, STEPS)
    for wrong, message in (
        ({"steps": np.array(3)}, "`steps` is ndarray, not a list of strings."),
        ({"steps": "text"}, "`steps` is str, not a list of strings."),
        ({"solution": np.array(STEPS)}, "`solution` is ndarray, not a string."),
        ({"steps": np.array([1.0])}, "Step 0 of the list is of type float"),
    ):
        with pytest.raises(InputError, match=message):
            read_record({"question": QUESTION, **wrong})
    with pytest.raises(InputError, match="The question is ndarray, not a string"):
        read_record({"question": np.array([QUESTION]), "steps": STEPS})


def test_the_list_column_of_a_parquet_file(scorer: surefoot.Scorer, client: surefoot.Client, tmp_path: Path) -> None:
    """As pandas and pyarrow read it, for everything that scores."""
    file = tmp_path / "solutions.parquet"
    pq.write_table(pa.table({"question": [QUESTION] * 2, "steps": LISTS}), file)
    frame, table = pd.read_parquet(file), pq.read_table(file)
    assert isinstance(frame["steps"][0], np.ndarray)
    expected = scorer.score_many([(QUESTION, STEPS), (QUESTION, ["Another."])])
    scores = [result.step_scores for result in expected]
    for items in (
        list(zip(frame["question"], frame["steps"], strict=True)),
        list(zip(table["question"], table["steps"], strict=True)),
    ):
        for found in (
            scorer.score_many(items),
            list(scorer.score_stream(items)),
            [scorer.score(*item) for item in items],
            scorer.session(QUESTION).score([steps for _, steps in items]),
            client.score_many(items),
            list(client.score_stream(items)),
            client.session(QUESTION).score([steps for _, steps in items]),
            [surefoot.compute_reward(*item, model=scorer, recipe="min").score for item in items],
        ):
            assert len(found) == 2
            for one, other in zip(found, scores, strict=True):
                assert one is not None
                assert one.step_scores == pytest.approx(other, abs=1e-5)
            assert found[0] is not None
            assert [step.text for step in found[0].steps] == STEPS
