"""Scores that are no probabilities: what is not made of them, and how a report draws them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import surefoot
from helpers.small import CASES, change
from surefoot import evaluate
from surefoot.display.colour_scale import bucket
from surefoot.errors import InputError, OptionError
from surefoot.evaluate.registry import BENCHMARKS
from surefoot.evaluate.report_page.content import thresholds
from surefoot.scoring.local import load_local
from surefoot.scoring.score_cache import ScoreCache

ROWS: list[dict[str, Any]] = [
    {"problem": "What is 2 + 3?", "steps": ["We add.", f"That gives {number}."], "label": -1 if number == 5 else 1}
    for number in range(4, 8)
]


@pytest.fixture(scope="module")
def margins(tmp_path_factory: pytest.TempPathFactory) -> surefoot.Scorer:
    """A model of margins, moved so far up that all of them lie in 0..1, where no value betrays what they are."""
    (case,) = (case for case in CASES if case.model.endswith("PURE-PRM-7B"))
    folder = case.make(tmp_path_factory.mktemp("scale") / "PURE-PRM-7B")
    change(folder, lambda tensors: tensors.update({"score.bias": torch.tensor([0.0, 2.0])}))
    return load_local(folder)


def test_margins_are_not_calibrated_and_not_even_scored_for_it(margins: surefoot.Scorer, tmp_path: Path) -> None:
    with ScoreCache(tmp_path / "scores") as cache:
        with pytest.raises(InputError, match="on the scale 'margin'. Only probabilities can be calibrated"):
            evaluate.calibrate(margins.with_cache(cache), ROWS)
        assert cache.misses == 0


def test_margins_have_no_reliability_and_their_own_colours(margins: surefoot.Scorer) -> None:
    labelled = evaluate.processbench(margins, ROWS, draws=0)
    marked = [row | {"classification": "circular", "error_steps": [1], "label": 1} for row in ROWS]
    every = evaluate.prmbench(margins, marked, draws=0)
    answers = [row | {"reference": "5", "final_answer": "4"} for row in ROWS]
    best = evaluate.best_of_n(margins, answers, draws=0)
    scores = [score for item in labelled.judgements for score in item.scores if score is not None]
    assert len(scores) == 8
    assert all(0 < score < 1 for score in scores)
    assert labelled.reliability is every.reliability is None
    for result in (labelled, every, best):
        assert result.scale == result.to_dict()["scale"] == "margin"
        page = evaluate.report_html(result)
        shown = re.findall(r"class=\W*chip c(\d+)\W*>([\d.]+)<", page.replace("\\u003c", "<").replace("\\u003e", ">"))
        assert shown
        assert [int(place) for place, _ in shown] == [bucket(float(score), "margin") for _, score in shown]
        assert any(int(place) != bucket(float(score)) for place, score in shown)


def test_a_threshold_lies_on_the_scale(margins: surefoot.Scorer, tmp_path: Path) -> None:
    marked = [row | {"classification": "circular", "error_steps": [1], "label": 1} for row in ROWS]
    with ScoreCache(tmp_path / "scores") as cache:
        scorer = margins.with_cache(cache)
        for threshold in (-1.5, 1.5):
            message = f"threshold={threshold} is outside the scale: the scores are on the scale 'margin', from -1 to 1"
            with pytest.raises(OptionError, match=message):
                evaluate.processbench(scorer, ROWS, threshold=threshold)
            with pytest.raises(OptionError, match=message):
                evaluate.prmbench(scorer, marked, threshold=threshold)
        assert cache.misses == 0, "it was rejected before anything was scored"
    assert evaluate.processbench(margins, ROWS, threshold=-0.5, draws=0).threshold == -0.5


def test_the_scale_of_precomputed_scores_is_what_they_show() -> None:
    probabilities = [row | {"scores": [0.9, 0.2]} for row in ROWS]
    with pytest.raises(OptionError, match=r"from 0 to 1"):
        evaluate.processbench(None, probabilities, threshold=-0.5)
    others = [row | {"scores": [3.0, -2.0]} for row in ROWS]
    assert evaluate.processbench(None, others, threshold=-0.5, draws=0).threshold == -0.5


def test_the_thresholds_of_a_sweep() -> None:
    assert thresholds([0.4], 2, "probability", 0.5) == [0.0, 0.5, 1.0]
    assert thresholds([0.4, 2.0], 2, "probability", 0.5) == [0.0, 1.0, 2.0]
    assert thresholds([-6.0, -2.0, 4.0], 2, "log_ratio", 0.0) == [-6.0, -1.0, 4.0]
    assert thresholds([-0.4, -0.2], 2, "margin", 0.0) == pytest.approx([-0.4, -0.2, 0.0])
    assert thresholds([0.0], 2, "margin", 0.0) == [0.0, 0.5, 1.0]


def test_how_bad_a_mistake_is_counts_from_the_threshold() -> None:
    """Around 0: an error that was passed with 0.9 is worse than a right step that was blamed with -0.1."""
    pair: list[dict[str, Any]] = [
        {"problem": "p", "steps": ["a"], "label": 0, "error_steps": [0], "scores": [0.9]},
        {"problem": "p", "steps": ["b"], "label": -1, "error_steps": [], "scores": [-0.1]},
        {"problem": "p", "steps": ["c"], "label": -1, "error_steps": [], "scores": [0.1]},
    ]
    marked = [row | {"classification": "circular"} for row in pair]
    for page in (
        BENCHMARKS["processbench"].report(evaluate.processbench(None, pair, threshold=0.0)),
        BENCHMARKS["prmbench"].report(evaluate.prmbench(None, marked, threshold=0.0)),
    ):
        missed, blamed, right = (entry.severity for entry in page.entries)
        assert missed > blamed > right
