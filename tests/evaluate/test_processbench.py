"""ProcessBench's metric, by hand."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from surefoot.core.threshold_sweep import Case, best_threshold, sweep
from surefoot.errors import InputError, OptionError
from surefoot.evaluate import ProcessBenchRow, processbench, report_html


def row(label: int, scores: list[float | None], split: str = "gsm8k", **more: Any) -> ProcessBenchRow:
    steps = tuple(f"step {number}" for number in range(len(scores)))
    return ProcessBenchRow("x", split, "p", steps, label, scores=tuple(scores), **more)


# label, scores, verdict at 0.5, outcome
TABLE: list[tuple[int, list[float | None], int | None, str | None]] = [
    (1, [0.9, 0.1, 0.2], 1, "right"),
    (1, [0.9, 0.9, 0.2], 2, "late"),
    (1, [0.2, 0.1, 0.2], 0, "early"),
    (1, [0.9, 0.9, 0.9], -1, "missed"),
    (0, [0.5, 0.9, 0.9], 0, "right"),  # a score at the threshold is not above it
    (-1, [0.51, 0.9], -1, "right"),
    (-1, [0.9, 0.5], 1, "rejected"),
    (-1, [0.7], -1, "right"),
    (2, [0.9, None, 0.1], None, None),
    (0, [0.1, None, None], 0, "right"),  # decided before the unscored step
    (-1, [0.9, None], None, None),
]


@pytest.mark.parametrize(("label", "scores", "verdict", "outcome"), TABLE)
def test_verdicts(label: int, scores: list[float | None], verdict: int | None, outcome: str | None) -> None:
    item = processbench(None, [row(label, scores)], draws=0).judgements[0]
    assert (item.predicted, item.outcome) == (verdict, outcome)


def test_the_whole_table_by_hand() -> None:
    """Erroneous with a verdict: 6, found 3. Correct with a verdict: 3, left alone 2. F1 = 2 * 1/2 * 2/3 / (7/6)."""
    result = processbench(None, [row(label, scores) for label, scores, _, _ in TABLE])
    split = result.split("gsm8k")
    assert (split.error.hits, split.error.total) == (3, 6)
    assert (split.correct.hits, split.correct.total) == (2, 3)
    assert split.f1 == pytest.approx(4 / 7)
    assert result.f1 == split.f1
    assert split.unscored == result.unscored == 2
    assert split.outcomes == {"right": 5, "early": 1, "late": 1, "missed": 1, "rejected": 1}
    assert "2 of 11 solutions have no prediction" in result.notes[0]
    positions = {name: (share.hits, share.total) for name, share in result.positions.items()}
    assert positions == {"1": (2, 2), "2": (1, 4), "3": (0, 0)}


def test_the_published_row_is_reproduced_from_counts() -> None:
    """GSM8K has 207 erroneous and 193 correct solutions: 149 and 186 of them give 72.0, 96.4 and 82.4."""
    rows = [row(0, [0.1 if number < 149 else 0.9]) for number in range(207)]
    rows += [row(-1, [0.9 if number < 186 else 0.1]) for number in range(193)]
    split = processbench(None, rows).split("gsm8k")
    numbers = (split.error.value, split.correct.value, split.f1)
    assert [round(100 * number, 1) for number in numbers if number is not None] == [72.0, 96.4, 82.4]
    assert split.f1_interval is not None
    assert split.f1_interval.low < 0.824 < split.f1_interval.high
    assert split.f1_interval.high - split.f1_interval.low == pytest.approx(0.08, abs=0.03)


@pytest.mark.parametrize(
    ("rows", "error", "correct"),
    [
        ([row(0, [0.1])], 1.0, None),
        ([row(-1, [0.9])], None, 1.0),
        ([row(0, [None])], None, None),
    ],
    ids=["only erroneous", "only correct", "nothing scored"],
)
def test_f1_needs_both_kinds(rows: list[ProcessBenchRow], error: float | None, correct: float | None) -> None:
    result = processbench(None, rows)
    split = result.splits[0]
    assert (split.error.value, split.correct.value) == (error, correct)
    assert split.f1 is None
    assert split.f1_interval is None
    assert result.f1 is None
    assert result.f1_interval is None
    assert "-" in str(result)


def test_f1_of_two_zeros_is_zero() -> None:
    result = processbench(None, [row(0, [0.9]), row(-1, [0.1])] * 9)
    assert result.f1 == 0.0
    assert result.splits[0].f1_interval == (0.0, 0.0)


def test_the_average_over_splits_is_plain_and_needs_all() -> None:
    good = [row(0, [0.1], "gsm8k"), row(-1, [0.9], "gsm8k")]
    half = [row(0, [0.1], "math"), row(0, [0.9], "math"), row(-1, [0.9], "math"), row(-1, [0.1], "math")] * 5
    result = processbench(None, half + good)
    assert [split.name for split in result.splits] == ["gsm8k", "math"]
    assert result.f1 == pytest.approx((1.0 + 0.5) / 2)
    assert processbench(None, [*half, *good, row(-1, [0.9], "own")]).f1 is None
    with pytest.raises(InputError, match="There is no split 'omnimath'. There are: gsm8k, math"):
        result.split("omnimath")


def test_blank_steps_are_neither_right_nor_wrong() -> None:
    blank = ProcessBenchRow("x", "s", "p", ("a", " ", "b"), 2, scores=(0.9, None, 0.1))
    assert processbench(None, [blank]).judgements[0].outcome == "right"
    empty = ProcessBenchRow("x", "s", "p", (" ",), -1, scores=(None,))
    assert processbench(None, [empty]).judgements[0].predicted is None


def test_right_answer_wrong_process() -> None:
    rows = [
        row(1, [0.9, 0.1], answer_correct=True),
        row(1, [0.1, 0.1], answer_correct=True),
        row(1, [0.9, 0.9], answer_correct=True),
        row(1, [0.9, 0.1], answer_correct=False),
        row(-1, [0.1, 0.1], answer_correct=True),
    ]
    result = processbench(None, rows)
    assert (result.hidden_errors_located.hits, result.hidden_errors_located.total) == (1, 3)
    assert (result.hidden_errors_detected.hits, result.hidden_errors_detected.total) == (2, 3)


def test_generators() -> None:
    rows = [
        row(0, [0.1], generator="b"),
        row(-1, [0.9], generator="b"),
        row(0, [0.9], generator="a"),
        row(-1, [0.9]),
    ]
    groups = {group.name: group.f1 for group in processbench(None, rows).generators}
    assert groups == {"a": None, "b": 1.0}
    assert list(groups) == ["a", "b"]


# --- the threshold -------------------------------------------------------------------------------------------------


def test_the_threshold_moves_the_verdict() -> None:
    rows = [row(0, [0.6, 0.9]), row(-1, [0.7, 0.8])]
    assert processbench(None, rows).f1 == 0.0
    assert processbench(None, rows, threshold=0.65).f1 == 1.0
    with pytest.raises(OptionError, match="threshold=nan"):
        processbench(None, rows, threshold=math.nan)


@pytest.mark.parametrize(
    ("options", "source", "label"),
    [
        ({}, "default", "threshold 0.5 (default)"),
        ({"threshold": 0.5}, "given", "threshold 0.5 (given)"),
        ({"tune_on": "all"}, "tuned", "threshold 0.65 (tuned on all)"),
    ],
)
def test_the_result_says_where_its_threshold_comes_from(options: dict[str, Any], source: str, label: str) -> None:
    result = processbench(None, [row(0, [0.6], "all"), row(-1, [0.7], "all")], draws=0, **options)
    assert result.threshold_source == result.to_dict()["threshold_source"] == source
    assert label in str(result)
    assert label.removeprefix("threshold ") in report_html(result)


def test_tuned_on_one_split_and_used_on_the_others() -> None:
    """On gsm8k anything in [0.6, 0.7) is best; on math that finds one of two."""
    rows = [
        row(0, [0.6, 0.9], "gsm8k"),
        row(-1, [0.7, 0.8], "gsm8k"),
        row(0, [0.3], "math"),
        row(0, [0.9], "math"),
        row(-1, [0.95], "math"),
    ]
    result = processbench(None, rows, tune_on="gsm8k")
    assert result.threshold == pytest.approx(0.65)
    assert result.tuned_on == "gsm8k"
    assert result.split("gsm8k").f1 == 1.0
    assert result.split("math").error.value == 0.5
    assert processbench(None, rows, tune_on="math").split("gsm8k").correct.value == 0.0


def test_a_split_that_no_threshold_helps() -> None:
    result = processbench(None, [row(1, [0.1, 0.9]), row(-1, [0.9])], tune_on="gsm8k")
    assert (result.threshold, result.tuned_on) == (0.5, None)
    assert "No threshold gives an F1 above 0 on gsm8k" in result.notes[0]
    with pytest.raises(InputError, match="tuned on 'math': no row"):
        processbench(None, [row(1, [0.1, 0.9])], tune_on="math")


def test_the_sweep_agrees_with_counting() -> None:
    """Every range, against the verdicts at its lower edge and at its middle."""
    import random

    random.seed(5)
    rows = []
    for _ in range(60):
        length = random.randint(1, 5)
        rows.append(row(random.randint(-1, length - 1), [random.randint(0, 9) / 10 for _ in range(length)]))
    ranges = processbench(None, rows, draws=0).sweep()
    assert len(ranges) > 5
    for each in ranges[1:-1]:
        for threshold in (each.low, (each.low + each.high) / 2):
            counted = processbench(None, rows, threshold=threshold, draws=0).splits[0]
            assert (counted.error.value, counted.correct.value) == (each.error, each.correct)
    best = best_threshold(
        [Case(tuple((at, score or 0.0) for at, score in enumerate(each.scores or ())), each.label) for each in rows]
    )
    assert best is not None
    top = max(each.f1 for each in ranges)
    assert processbench(None, rows, threshold=best, draws=0).f1 == pytest.approx(top)


def test_no_sweep_of_one_kind() -> None:
    assert sweep([Case(((0, 0.5),), -1)]) == []
    assert best_threshold([]) is None


# --- intervals, forms ----------------------------------------------------------------------------------------------


def many() -> list[ProcessBenchRow]:
    return [row(0, [0.1 if at % 3 else 0.9]) for at in range(60)] + [
        row(-1, [0.9 if at % 4 else 0.1]) for at in range(60)
    ]


def test_the_same_seed_gives_the_same_intervals() -> None:
    first, again, other = (processbench(None, many(), seed=seed) for seed in (1, 1, 2))
    assert first.f1_interval == again.f1_interval
    assert first.f1_interval != other.f1_interval
    assert processbench(None, many(), draws=0).f1_interval is None
    extra = [row(0, [0.1], "math"), row(-1, [0.9], "math")]
    assert processbench(None, many() + extra, seed=1).split("gsm8k") == first.split("gsm8k")


def test_intervals_hold_the_number_and_narrow() -> None:
    few, lots = processbench(None, many()), processbench(None, many() * 20)
    for result in (few, lots):
        assert result.f1 is not None
        assert result.f1_interval is not None
        assert result.f1_interval.low < result.f1 < result.f1_interval.high
    assert few.f1_interval is not None
    assert lots.f1_interval is not None
    ratio = (few.f1_interval.high - few.f1_interval.low) / (lots.f1_interval.high - lots.f1_interval.low)
    assert ratio == pytest.approx(20**0.5, rel=0.25)


@pytest.mark.parametrize(
    ("hits", "total", "interval"),
    [
        (0, 10, (0.0, 0.2775)),  # z^2 / (n + z^2), where draws would all be 0
        (10, 10, (0.7225, 1.0)),
        (39, 104, (0.2880, 0.4709)),
    ],
)
def test_a_share_has_wilsons_interval(hits: int, total: int, interval: tuple[float, float]) -> None:
    rows = [row(0, [0.1 if at < hits else 0.9]) for at in range(total)]
    result = processbench(None, rows)
    assert result.splits[0].error.interval == pytest.approx(interval, abs=1e-4)
    assert result.positions["1"].interval == result.splits[0].error.interval
    assert processbench(None, rows, draws=0).splits[0].error.interval is None


@pytest.mark.parametrize("options", [{"draws": -1}, {"seed": -1}])
def test_impossible_draws(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        processbench(None, many(), **options)


def test_mappings_do_as_rows() -> None:
    rows = [
        {"id": "gsm8k-3", "problem": "p", "steps": ["a", "b"], "label": 1, "mine": [0.9, 0.1]},
        {"id": "math-4", "problem": "p", "steps": ["a"], "label": -1, "mine": [0.9]},
    ]
    result = processbench(None, rows, scores="mine", name="Qwen/Qwen2.5-Math-PRM-7B")
    assert [split.name for split in result.splits] == ["gsm8k", "math"]
    text = str(result)
    assert "82.4" in text
    assert "80.0" in text  # the mean of what was published for these two splits
    assert "arXiv:2504.00891" in text
    data = json.loads(json.dumps(result.to_dict()))
    assert data["published"]["average"] == 73.5
    assert data["splits"][0]["error"] == {
        "value": 1.0,
        "hits": 1,
        "total": 1,
        "interval": [pytest.approx(0.2065, abs=1e-4), 1.0],
    }


def test_what_is_no_row() -> None:
    with pytest.raises(InputError, match="no rows to evaluate"):
        processbench(None, [])
    with pytest.raises(InputError, match=r"Row 1 \(from 0\) is int"):
        processbench(None, [{"problem": "p", "steps": ["a"], "label": 0}, 3])  # type: ignore[list-item]
    with pytest.raises(InputError, match="no precomputed scores"):
        processbench(None, [ProcessBenchRow("x", "s", "p", ("a",), 0)])
