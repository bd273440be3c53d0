"""Fitting calibrations: against brute force, against a known distortion, and on questions not seen."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.cli.main import main
from surefoot.core.calibration import Calibration, Isotonic, Logistic
from surefoot.core.intervals import Numbers
from surefoot.errors import InputError, OptionError
from surefoot.evaluate import calibrate, read_labelled
from surefoot.evaluate.calibration_fit import fit_isotonic, fit_logistic, pool

Row = dict[str, Any]


def logit(chance: Numbers) -> Numbers:
    found: Numbers = np.log(chance / (1 - chance))
    return found


def sigmoid(value: Numbers) -> Numbers:
    found: Numbers = 1 / (1 + np.exp(-value))
    return found


def brute(values: list[float], weights: list[float]) -> list[float]:
    """The max-min formula: the largest mean that ends here of the smallest that starts anywhere before."""

    def mean(first: int, last: int) -> float:
        return float(np.average(values[first : last + 1], weights=weights[first : last + 1]))

    count = len(values)
    return [max(min(mean(a, b) for b in range(at, count)) for a in range(at + 1)) for at in range(count)]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 3)), min_size=1, max_size=8))
def test_pooling_is_the_nearest_rising_curve(pairs: list[tuple[int, int]]) -> None:
    values, weights = [value / 4 for value, _ in pairs], [float(weight) for _, weight in pairs]
    blocks = pool(np.array(values), np.array(weights))
    found = [block.mean for block in blocks for _ in range(block.start, block.end)]
    assert found == pytest.approx(brute(values, weights))
    assert [block.start for block in blocks] == [0, *(block.end for block in blocks[:-1])]


@pytest.mark.parametrize(("slope", "bias"), [(0.4, 0.0), (2.0, 0.0), (0.7, -1.5), (1.0, 1.0)])
def test_a_known_distortion_is_found(slope: float, bias: float) -> None:
    generator = np.random.default_rng(3)
    scores = generator.beta(2, 1, 40_000)
    right = (generator.random(len(scores)) < sigmoid(slope * logit(scores) + bias)).astype(float)
    found = fit_logistic(scores, right)
    assert (found.slope, found.bias) == pytest.approx((slope, bias), abs=0.05)
    if bias == 0.0:
        assert fit_logistic(scores, right, bias=False).slope == pytest.approx(slope, abs=0.05)


def test_an_isotonic_map_comes_near_any_rising_one() -> None:
    generator = np.random.default_rng(3)
    scores = generator.random(40_000)
    right = (generator.random(len(scores)) < scores**3).astype(float)
    found = fit_isotonic(scores, right)
    for score in (0.2, 0.5, 0.8, 0.95):
        assert found(score) == pytest.approx(score**3, abs=0.03)


def test_isotonic_by_hand() -> None:
    """0.4 and 0.6 disagree, so they share 1/2; 0 and 1 keep 1/(4 + 2) away. A thousandth is the raw score's."""
    found = fit_isotonic(np.array([0.2, 0.4, 0.6, 0.9]), np.array([0.0, 1.0, 0.0, 1.0]))
    assert found.scores == (0.0, 0.2, 0.4, 0.6, 0.9, 1.0)
    plain = (1 / 6, 1 / 6, 1 / 2, 1 / 2, 5 / 6, 5 / 6)
    assert found.values == pytest.approx([0.999 * a + 0.001 * b for a, b in zip(plain, found.scores, strict=True)])
    assert found(0.3) == pytest.approx(0.999 * (1 / 6 + 1 / 2) / 2 + 0.0003)
    assert found(0.45) < found(0.55)
    assert found(0.99) < found(1.0) < 1.0


def test_scores_without_a_mistake_have_a_finite_map() -> None:
    scores, right = np.array([0.1, 0.2, 0.8, 0.9]), np.array([0.0, 0.0, 1.0, 1.0])
    found = fit_logistic(scores, right)
    assert np.isfinite(found.slope)
    assert found(0.9) > 0.5 > found(0.1)
    saturated = fit_logistic(np.array([0.0, 0.0, 1.0, 1.0]), right)
    assert 0 < saturated(0.0) < 0.5 < saturated(1.0) < 1


@pytest.mark.parametrize("method", ["temperature", "isotonic"])
def test_scores_that_say_the_opposite_are_refused(method: Any) -> None:
    rows = [row(number, score, score < 0.5) for number, score in enumerate([0.1, 0.2, 0.8, 0.9])]
    with pytest.raises(InputError, match="not more often correct"):
        calibrate(None, rows, method=method)


def row(question: int, score: float, right: bool, **more: Any) -> Row:
    return {"problem": f"q{question}", "steps": ["a"], "label": -1 if right else 0, "scores": [score], **more}


def overconfident(questions: int = 300, each: int = 4) -> list[Row]:
    """Logits three times too large."""
    generator = np.random.default_rng(5)
    rows = []
    for question in range(questions):
        for chance in sigmoid(generator.normal(0.7, 1.0, each)):
            score = float(sigmoid(3 * logit(np.array(chance))))
            rows.append(row(question, score, bool(generator.random() < chance)))
    return rows


@pytest.mark.parametrize("method", ["temperature", "isotonic"])
def test_both_mend_overconfidence_on_questions_not_seen(method: Any) -> None:
    result = calibrate(None, overconfident(), method=method, draws=200)
    assert result.after is not None
    assert result.before.ece > 0.1
    assert result.after.ece < 0.05
    assert result.after.log_loss < result.before.log_loss - 0.1
    assert result.after.steps == result.before.steps == 1200
    assert (result.questions, result.folds) == (300, 5)
    if isinstance(result.calibration.map, Logistic):
        assert result.calibration.map.slope == pytest.approx(1 / 3, abs=0.05)
    assert f"{100 * result.after.ece:.1f} [" in str(result)
    json.dumps(result.to_dict())


def test_what_was_learnt_by_heart_does_not_count() -> None:
    """Each question has a score of its own that tells nothing; fitted and measured on the same, it seems to tell."""
    generator = np.random.default_rng(1)
    rows = []
    for question, score in enumerate(np.linspace(0.3, 0.7, 80)):
        rows += [row(question, float(score), bool(generator.random() < 0.5))] * 10
    result = calibrate(None, rows, method="isotonic", draws=0)
    assert result.after is not None
    values = np.array([result.calibration.map(each["scores"][0]) for each in rows])
    right = np.array([each["label"] == -1 for each in rows])
    by_heart = float(-np.log(np.where(right, values, 1 - values)).mean())
    assert result.after.log_loss > by_heart + 0.005


def without_use(questions: int = 12) -> list[Row]:
    """Calibrated scores, and too few of them to fit a curve with many knots."""
    generator = np.random.default_rng(4)
    chances = generator.uniform(0.05, 0.95, (questions, 3))
    return [
        row(question, float(chance), bool(generator.random() < chance))
        for question, each in enumerate(chances)
        for chance in each
    ]


def test_a_map_that_makes_scores_worse_is_said(caplog: pytest.LogCaptureFixture) -> None:
    result = calibrate(None, without_use(), method="isotonic", draws=0)
    assert result.after is not None
    assert result.after.log_loss > result.before.log_loss
    assert result.worse
    assert result.to_dict()["worse"] is True
    (note,) = result.notes
    assert "worse than raw ones on held-out questions" in note
    assert f"log-loss {result.before.log_loss:.4f} before, {result.after.log_loss:.4f} after" in note
    assert "Use the raw scores, or fit again on more data or with the method temperature." in note
    assert [record.getMessage() for record in caplog.records] == [note]
    caplog.clear()
    assert not calibrate(None, overconfident(), draws=0).worse
    assert not caplog.records


def test_a_map_that_makes_scores_worse_fails_the_command(tmp_path: Path) -> None:
    """The result is not lost: it is printed and written, with the warning on stderr."""
    data, out = tmp_path / "rows.jsonl", tmp_path / "calibration.json"
    data.write_text("".join(json.dumps(each) + "\n" for each in without_use()))
    call = ["calibrate", "--data", str(data), "--scores", "scores", "--out", str(out), "--method", "isotonic"]
    done = subprocess.run([sys.executable, "-m", "surefoot.cli", *call], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "surefoot: Calibrated scores are worse than raw ones" in done.stderr
    assert f"Wrote the calibration to {out}" in done.stderr
    assert "worse than raw ones" in done.stdout
    assert isinstance(Calibration.read(out).map, Isotonic)


def test_the_file_says_what_it_was_fitted_on() -> None:
    rows = overconfident(20)
    first = calibrate(None, rows, draws=0, name="model").calibration
    assert first.fitted_on.solutions == first.fitted_on.steps == 80
    assert (first.model, first.fingerprint) == ("model", None)
    assert calibrate(None, rows, draws=0).calibration.fitted_on == first.fitted_on
    rows[0]["steps"] = ["b"]
    assert calibrate(None, rows, draws=0).calibration.fitted_on.sha256 != first.fitted_on.sha256


def test_what_cannot_be_held_out_is_said() -> None:
    one = calibrate(None, [row(0, 0.2, False), row(0, 0.9, True)], draws=0)
    assert one.after is None
    assert "only one question" in one.notes[0]
    two = calibrate(None, [row(0, 0.2, False), row(1, 0.9, True)], draws=0)
    assert two.after is None
    assert "needs correct and incorrect ones" in two.notes[0]
    assert "after, 2 folds - - -" in " ".join(str(two).split())


def test_steps_without_a_score_do_not_count() -> None:
    rows = [*overconfident(20), row(0, 0.5, True) | {"steps": ["a", "b"], "scores": [0.5, None]}]
    result = calibrate(None, rows, draws=0)
    assert (result.unscored, result.before.steps) == (1, 81)


@pytest.mark.parametrize(
    ("change", "options", "error"),
    [
        ({"scores": [1.5]}, {}, InputError),
        ({}, {"folds": 1}, OptionError),
        ({}, {"method": "magic"}, OptionError),
        ({"label": 5}, {}, InputError),
    ],
)
def test_what_is_refused(change: Row, options: dict[str, Any], error: type[Exception]) -> None:
    rows = overconfident(5)
    rows[0] |= change
    with pytest.raises(error):
        calibrate(None, rows, **options)


def test_both_kinds_of_files_are_read(tmp_path: Path) -> None:
    place = tmp_path / "x.jsonl"
    bench = {"classification": "circular", "modified_question": "q", "modified_process": ["1. a", "2. b", "3. c"]}
    lines = [
        {"problem": "p", "steps": ["a", "b"], "label": 1},
        {**bench, "idx": "1", "error_steps": [2, 3]},
        {**bench, "idx": "2", "error_steps": [], "modified_process": ["1. d"]},
    ]
    place.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [(each.label, each.steps) for each in read_labelled(place)] == [
        (1, ("a", "b")),
        (1, ("a", "b", "c")),
        (-1, ("d",)),
    ]


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = []
    for number in range(2):
        files.append(tmp_path / f"{number}.jsonl")
        files[-1].write_text("".join(json.dumps(each) + "\n" for each in overconfident(30 + number)))
    out = tmp_path / "calibration.json"
    call = ["calibrate", "--data", *map(str, files), "--scores", "scores", "--out", str(out)]
    assert main([*call, "--method", "isotonic"]) == 0
    shown = capsys.readouterr()
    assert "before" in shown.out
    assert str(out) in shown.err
    assert isinstance(Calibration.read(out).map, Isotonic)
    assert main([*call, "--no-bias", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["calibration"] == json.loads(out.read_text())
    assert found["calibration"]["parameters"]["bias"] == 0.0
    assert found["after"]["ece"] < found["before"]["ece"]
    assert main([*call, "--no-bias", "--method", "isotonic"]) == 2
    assert main([*call[:-2], "--out", str(tmp_path / "no" / "folder.json")]) == 2
    assert "cannot be written" in capsys.readouterr().err
