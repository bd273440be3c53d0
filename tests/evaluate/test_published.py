"""Published tables: their arithmetic, and whose row is whose."""

from __future__ import annotations

import pytest

from surefoot.core.threshold_sweep import harmonic_mean
from surefoot.evaluate.published import (
    PublishedProcessBench,
    prmbench_table,
    processbench_table,
    published_prmbench,
    published_processbench,
)

CELLS = [
    pytest.param(*cell, id=f"{row.model}-{split}")
    for row in processbench_table()
    for split, cell in row.splits.items()
    if cell[0] is not None
]


def fits(error: float, correct: float, f1: float, slack: float = 0.05) -> bool:
    """Whether numbers that round to the printed accuracies can have an F1 that rounds to the printed one."""
    low = harmonic_mean(error - slack, correct - slack)
    high = harmonic_mean(error + slack, correct + slack)
    return low - slack - 1e-9 <= f1 <= high + slack + 1e-9


@pytest.mark.parametrize(("error", "correct", "f1"), CELLS)
def test_every_cell_keeps_the_formula(error: float, correct: float, f1: float) -> None:
    assert fits(error, correct, f1)


# Typed by hand from the papers and repositories that the rows name as their source.
@pytest.mark.parametrize(
    ("name", "source", "average", "cells"),
    [
        (
            "peiyi9979/math-shepherd-mistral-7b-prm",
            "arXiv:2412.06559",
            31.5,
            {"gsm8k": (32.4, 91.7, 47.9), "omnimath": (14.2, 73.0, 23.8)},
        ),
        ("Skywork/Skywork-o1-Open-PRM-Qwen-2.5-7B", "arXiv:2412.06559", 42.1, {"math": (43.8, 69.2, 53.6)}),
        ("Qwen/Qwen2.5-Math-PRM-72B", "arXiv:2504.00891", 78.3, {"olympiadbench": (67.9, 82.0, 74.3)}),
        ("HuggingFaceH4/Qwen2.5-Math-1.5B-Instruct-PRM-0.2", "search-and-learn", 39.8, {"math": (38.22, 70.69, 49.61)}),
        ("infly/Universal-PRM-7B", "infly/Universal-PRM-7B", 74.3, {"gsm8k": (None, None, 85.8)}),
    ],
)
def test_processbench_rows(
    name: str, source: str, average: float, cells: dict[str, tuple[float | None, float | None, float]]
) -> None:
    row = published_processbench(name)
    assert row is not None
    assert source in row.source
    assert row.average == average
    assert {split: row.splits[split] for split in cells} == cells


@pytest.mark.parametrize(
    ("name", "source", "scores"),
    [
        ("Qwen/Qwen2.5-Math-PRM-7B", "ssmisya/PRMBench", (65.5, 52.1, 71.0, 75.5)),
        ("RLHFlow/Llama3.1-8B-PRM-Mistral-Data", "ssmisya/PRMBench", (54.4, 46.7, 57.5, 68.5)),
        ("sail/ActPRM-X", "sail-sg/ActPRM", (66.7, 54.5, 72.7, 75.6)),
    ],
)
def test_prmbench_rows(name: str, source: str, scores: tuple[float, ...]) -> None:
    row = published_prmbench(name)
    assert row is not None
    assert source in row.source
    assert tuple(row.scores.values()) == scores


def test_every_row_has_a_source() -> None:
    sources = [row.source for row in processbench_table()] + [row.source for row in prmbench_table()]
    assert all(sources)
    assert (len(processbench_table()), len(prmbench_table())) == (25, 18)


def test_the_row_that_everybody_quotes() -> None:
    assert round(harmonic_mean(72.0, 96.4), 1) == 82.4
    row = published_processbench("Qwen/Qwen2.5-Math-PRM-7B")
    assert row is not None
    assert row.splits["gsm8k"] == (72.0, 96.4, 82.4)


@pytest.mark.parametrize(
    ("error", "correct", "f1"), [(43.8, 62.2, 53.6), (10.9, 51.9, 16.9)], ids=["Skywork-7B", "RLHFlow-Deepseek"]
)
def test_misprints_of_the_copies_break_it(error: float, correct: float, f1: float) -> None:
    assert not fits(error, correct, f1)


@pytest.mark.parametrize("row", processbench_table(), ids=lambda row: row.model)
def test_the_average_is_plain(row: PublishedProcessBench) -> None:
    f1s = [cell.f1 for cell in row.splits.values()]
    assert len(f1s) == 4
    assert sum(f1s) / 4 == pytest.approx(row.average, abs=0.1 + 1e-9)


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("Qwen/Qwen2.5-Math-PRM-7B", "Qwen2.5-Math-PRM-7B"),
        ("/models/Qwen2.5-Math-PRM-72B/", "Qwen2.5-Math-PRM-72B"),
        ("C:\\models\\Qwen2.5-Math-7B-PRM800K", "Qwen2.5-Math-7B-PRM800K"),
        ("sail/ActPRM", "ActPRM"),
        ("sail/ActPRM-X", "ActPRM-X"),
        ("jinachris/Qwen2.5-Math-7B-PRM800K", None),
        ("axolotl-ai-co/Qwen2.5-Math-PRM-7B", None),
        ("some/other-model", None),
        ("", None),
    ],
)
def test_whose_row_it_is(name: str, model: str | None) -> None:
    row = published_processbench(name)
    assert (row and row.model) == model


@pytest.mark.parametrize(
    ("split", "f1"),
    [("gsm8k", 82.4), ("gsm8k_dev", 82.4), ("math-odd", 77.6), ("math500", None), ("mathematics", None), ("all", None)],
)
def test_a_part_of_a_split_has_the_row_of_the_split(split: str, f1: float | None) -> None:
    row = published_processbench("Qwen/Qwen2.5-Math-PRM-7B")
    assert row is not None
    cell = row.cell(split)
    assert (cell and cell.f1) == f1


@pytest.mark.parametrize(
    ("splits", "average"),
    [
        (["gsm8k", "math", "olympiadbench", "omnimath"], 73.5),
        (["gsm8k_dev", "math_dev"], (82.4 + 77.6) / 2),
        (["gsm8k", "mine"], None),
        ([], None),
    ],
)
def test_an_average_is_compared_with_that_of_the_same_splits(splits: list[str], average: float | None) -> None:
    row = published_processbench("Qwen/Qwen2.5-Math-PRM-7B")
    assert row is not None
    assert row.average_of(splits) == (None if average is None else pytest.approx(average))


def test_names_are_told_apart() -> None:
    """No name leads to another model's row."""
    for row in processbench_table():
        for name in row.names:
            assert published_processbench(name) is row
    for other in prmbench_table():
        for name in other.names:
            assert published_prmbench(name) is other


def test_binary_f1_is_never_listed_as_first_error_f1() -> None:
    """ThinkPRM's authors report, on ProcessBench, the F1 of a binary verdict on the whole solution, which need not
    locate the error. Next to first-error F1 such a number would mislead, so the table has no row of theirs."""
    assert not [row.model for row in processbench_table() if "thinkprm" in row.model.lower().replace("-", "")]
    for name in ("launch/ThinkPRM-1.5B", "launch/ThinkPRM-14B", "thinkprm-7b"):
        assert published_processbench(name) is None
