"""Reliability curves and the expected calibration error, by hand."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from surefoot.core.intervals import Bootstrap
from surefoot.errors import OptionError
from surefoot.evaluate import processbench, reliability
from surefoot.evaluate.reliability import LabelledScore, labelled_scores


def test_the_steps_whose_truth_is_known() -> None:
    steps = ("a", "b", " ", "c", "d")
    scores = (0.9, 0.8, None, 0.3, 0.2)
    assert labelled_scores(steps, scores, 3) == [(0.9, True), (0.8, True), (0.3, False)]
    assert labelled_scores(steps, scores, -1) == [(0.9, True), (0.8, True), (0.3, True), (0.2, True)]
    assert labelled_scores(steps, scores, 0) == [(0.9, False)]
    assert labelled_scores(steps, (0.9, None, None, None, 0.2), 3) == [(0.9, True)]


SOLUTIONS: list[list[LabelledScore]] = [
    [(0.9, True), (0.8, True), (0.6, False)],
    [(0.2, False)],
    [(0.7, True), (0.1, True)],
]


def test_a_curve_by_hand() -> None:
    """Below 0.5: scores 0.2 and 0.1, one of two right: 0.35 off. From 0.5: mean 0.75, 3 of 4 right: 0 off."""
    found = reliability(SOLUTIONS, bins=2)
    assert found is not None
    low, high = found.bins
    assert (low.low, low.high, low.count, high.count) == (0.0, 0.5, 2, 4)
    assert (low.score, low.accuracy) == pytest.approx((0.15, 0.5))
    assert (high.score, high.accuracy) == pytest.approx((0.75, 0.75))
    assert found.ece == pytest.approx(0.35 * 2 / 6)
    assert (found.steps, found.solutions) == (6, 3)
    surprise = [0.9, 0.8, 1 - 0.6, 1 - 0.2, 0.7, 0.1]
    assert found.log_loss == pytest.approx(-np.mean(np.log(surprise)))
    assert found.ece_interval is None


def test_an_edge_belongs_to_the_bin_above_and_one_to_the_last() -> None:
    found = reliability([[(0.3, True), (0.7, True), (1.0, True), (0.0, False)]])
    assert found is not None
    assert [at for at, each in enumerate(found.bins) if each.count] == [0, 3, 7, 9]
    assert found.bins[1].score is None
    assert found.bins[1].accuracy is None
    assert math.isfinite(found.log_loss)


def test_bins_with_the_same_number_of_steps() -> None:
    scores = [0.9, 0.91, 0.92, 0.93, 0.94, 0.95, 0.96, 0.97]
    found = reliability([[(score, True)] for score in scores], bins=4, kind="mass")
    assert found is not None
    assert [each.count for each in found.bins] == [2, 2, 2, 2]
    assert found.ece == pytest.approx(1 - np.mean(scores))
    alike = reliability([[(0.5, True)] * 9], bins=4, kind="mass")
    assert alike is not None
    assert sum(each.count for each in alike.bins) == 9


def test_the_interval_is_over_solutions() -> None:
    """Steps of a solution are alike here, so twenty solutions are all the evidence, however many steps they have."""
    generator = np.random.default_rng(0)
    right = generator.random(20) < 0.6
    short, long = ([[(0.6, bool(each))] * count for each in right] for count in (1, 50))
    intervals = []
    for solutions in (short, long):
        found = reliability(solutions, bootstrap=Bootstrap(400, 1))
        assert found is not None
        assert found.ece_interval is not None
        (full,) = [each for each in found.bins if each.count]
        assert full.interval is not None
        assert full.accuracy is not None
        assert full.interval.low < full.accuracy < full.interval.high
        intervals.append(found.ece_interval)
    assert intervals[0] == pytest.approx(intervals[1])


# Wilson's 95% intervals: with z = 1.959964, 0 of n ends at z^2 / (n + z^2), and 1 of 2 is 0.5 +- 0.4055.
WILSON: list[tuple[list[list[bool]], float, float]] = [
    ([[False], [False]], 0.0, 0.657620),
    ([[True], [True]], 0.342380, 1.0),
    ([[True], [False]], 0.094531, 0.905469),
    ([[False, False]], 0.0, 0.793451),  # both steps are of one solution, which counts as one observation
    ([[True] * 50, [False] * 50], 0.094531, 0.905469),  # copies are no evidence
    ([[True, False], [True, False]], 0.150039, 0.849961),  # as different as four independent steps
]


@pytest.mark.parametrize(("labels", "low", "high"), WILSON)
def test_the_intervals_of_a_bin_are_wilsons(labels: list[list[bool]], low: float, high: float) -> None:
    found = reliability([[(0.75, each) for each in solution] for solution in labels], bootstrap=Bootstrap(20))
    assert found is not None
    (full,) = [each for each in found.bins if each.count]
    assert full.interval == pytest.approx((low, high), abs=1e-5)
    assert all(each.interval is None for each in found.bins if not each.count)


def test_no_step_correct_is_not_certainty() -> None:
    rows = [{"problem": "p", "steps": ["a"], "label": 0, "scores": [0.05]} for _ in range(2)]
    assert "0.0 [0.0-65.8]" in str(processbench(None, rows))


def test_the_brier_score_by_hand() -> None:
    found = reliability([[(0.9, True), (0.4, False)], [(0.2, True)]])
    assert found is not None
    assert found.brier == pytest.approx((0.1**2 + 0.4**2 + 0.8**2) / 3)


@pytest.mark.parametrize("excess", [0.0, 0.03, 0.1])
def test_the_interval_of_the_ece_holds_the_true_one(excess: float) -> None:
    """Scores above 0.2 that are too high by so much; the true ECE is that. Of 60 samples nearly all should hold it."""
    generator = np.random.default_rng(11)
    held = 0
    for sample in range(60):
        scores = generator.uniform(0.2, 1.0, (100, 4))
        right = generator.random(scores.shape) < scores - excess
        solutions = [list(zip(*each, strict=True)) for each in zip(scores.tolist(), right.tolist(), strict=True)]
        found = reliability(solutions, bootstrap=Bootstrap(200, sample))
        assert found is not None
        assert found.ece_interval is not None
        assert found.ece_interval.low <= found.ece <= found.ece_interval.high
        held += found.ece_interval.low <= excess <= found.ece_interval.high
    assert held >= 51


def test_what_is_no_probability_has_no_curve() -> None:
    assert reliability([[(-0.2, True)]]) is None
    assert reliability([[], []]) is None
    with pytest.raises(OptionError):
        reliability(SOLUTIONS, bins=0)
    with pytest.raises(OptionError):
        reliability(SOLUTIONS, kind="other")  # type: ignore[arg-type]


def test_it_stands_in_the_result() -> None:
    rows = [
        {"problem": "p", "steps": ["a", "b", "c"], "label": 1, "scores": [0.9, 0.2, 0.1]},
        {"problem": "p", "steps": ["a", "b"], "label": -1, "scores": [0.8, 0.7]},
    ]
    result = processbench(None, rows)
    assert result.reliability is not None
    assert result.reliability.steps == 4
    assert result.reliability.ece == pytest.approx((0.1 + 0.2 + 0.2 + 0.3) / 4)
    assert "Calibration: ECE 20.0 [" in str(result)
    plain = json.loads(json.dumps(result.to_dict()))
    assert plain["reliability"]["bins"][9]["count"] == 1
    assert plain["calibration"] is None
    margins = [row | {"scores": [-0.5] * len(row["steps"])} for row in rows]  # type: ignore[arg-type]
    assert processbench(None, margins).reliability is None
