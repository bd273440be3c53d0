"""A calibration in use: with a real, small model, its cache, its sessions and its command line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import surefoot
from surefoot import evaluate
from surefoot.cli.main import main
from surefoot.core.calibration import Calibration, FittedOn, Isotonic, Logistic, Map
from surefoot.display.terminal import show
from surefoot.errors import CalibrationError, OptionError
from surefoot.scoring.check import check
from surefoot.scoring.local import load_local
from surefoot.scoring.score_cache import ScoreCache

QUESTION = "What is 2 + 3 * 4?"
STEPS = ["3 * 4 = 12.", "2 + 12 = 15.", "So it is 15."]
MAPS: list[Map] = [Logistic(0.3, -0.4), Logistic(2.0), Isotonic((0.1, 0.4, 0.9), (0.05, 0.3, 0.6))]


def calibration(scorer: surefoot.Scorer, found: Map = MAPS[0]) -> Calibration:
    return Calibration(found, scorer.name, scorer.fingerprint, FittedOn(2, 5, "0" * 64))


@pytest.fixture(scope="module")
def file(scorer: surefoot.Scorer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("calibration") / "calibration.json"
    calibration(scorer).write(path)
    return path


@pytest.fixture(scope="module")
def calibrated(checkpoint: Path, file: Path) -> surefoot.Scorer:
    return load_local(checkpoint, calibration=file)


@pytest.mark.parametrize("found", MAPS, ids=str)
@given(first=st.floats(0, 1), second=st.floats(0, 1))
def test_order_stays_and_no_score_becomes_zero_or_one(found: Map, first: float, second: float) -> None:
    low, high = sorted((first, second))
    assert 0.0 < found(low) <= found(high) < 1.0
    if high - low > 1e-3 and not (isinstance(found, Isotonic) and (high <= 0.1 or low >= 0.9)):
        assert found(low) < found(high)


def test_every_verb_is_calibrated(scorer: surefoot.Scorer, calibrated: surefoot.Scorer) -> None:
    raw = scorer.score(QUESTION, STEPS)
    item = (QUESTION, STEPS)
    results = [
        calibrated.score(*item),
        calibrated.score_many([item])[0],
        next(iter(calibrated.score_stream([item]))),
        calibrated.session(QUESTION).score([STEPS])[0],
    ]
    for result in results:
        assert [step.raw for step in result.steps] == pytest.approx(raw.step_scores, abs=1e-5)
        assert result.step_scores == [MAPS[0](step.raw) for step in result.steps if step.raw is not None]
        assert result.calibration == calibrated.calibration
        assert result.mean != pytest.approx(raw.mean, abs=1e-3)
    assert f"calibrated: {results[0].calibration}" in show(results[0])
    assert raw.calibration is None
    assert all(step.raw is None for step in raw.steps)


def test_no_score_stays_no_score(calibrated: surefoot.Scorer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrated, "pipeline", replace(calibrated.pipeline, max_tokens=60))
    result = calibrated.score(QUESTION, ["word " * 80])
    assert (result.steps[0].score, result.steps[0].raw) == (None, None)
    stream = list(calibrated.score_stream([(3, "x")]))  # type: ignore[list-item]
    assert stream[0].status == "unscored"


def test_the_cache_holds_raw_scores(
    scorer: surefoot.Scorer, calibrated: surefoot.Scorer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One model with this calibration, with none and with another shares its entries."""
    with ScoreCache(tmp_path / "scores.sqlite") as cache:
        first = calibrated.with_cache(cache).score_many([(QUESTION, STEPS)])[0]
        raw = scorer.with_cache(cache).score_many([(QUESTION, STEPS)])[0]
        other = replace(calibrated.pipeline, calibration=calibration(scorer, MAPS[2]))
        monkeypatch.setattr(calibrated, "pipeline", other)
        third = calibrated.with_cache(cache).score_many([(QUESTION, STEPS)])[0]
        assert (cache.hits, cache.misses) == (2, 1)
    stored = [step.raw for step in first.steps]
    assert raw.step_scores == stored == [step.raw for step in third.steps]
    assert len({tuple(each.step_scores) for each in (first, raw, third)}) == 3


def test_another_model_is_refused(checkpoint: Path, scorer: surefoot.Scorer, file: Path) -> None:
    strange = replace(calibration(scorer), model="another", fingerprint="f" * 64)
    with pytest.raises(CalibrationError, match=r"fitted on another .* Fit one with `surefoot calibrate`"):
        load_local(checkpoint, calibration=strange)
    with pytest.raises(CalibrationError, match="precomputed scores"):
        load_local(checkpoint, calibration=replace(strange, fingerprint=None))
    with pytest.raises(CalibrationError, match="depends on dtype and quantization"):
        load_local(checkpoint, dtype="bfloat16", calibration=file)
    allowed = load_local(checkpoint, calibration=strange.for_any_model())
    assert allowed.score(QUESTION, STEPS).calibration == strange.name


def test_only_probabilities_and_only_once(scorer: surefoot.Scorer) -> None:
    result = scorer.score(QUESTION, STEPS)
    found = calibration(scorer)
    with pytest.raises(CalibrationError, match="scale 'margin'"):
        found.apply(replace(result, scale="margin"))
    with pytest.raises(CalibrationError, match="already calibrated"):
        found.apply(found.apply(result))


def test_what_is_written_is_read(scorer: surefoot.Scorer, tmp_path: Path) -> None:
    for found in MAPS:
        whole = calibration(scorer, found)
        whole.for_any_model().write(tmp_path / "c.json")
        assert Calibration.read(tmp_path / "c.json") == whole
    names = {calibration(scorer, found).name for found in MAPS}
    assert len(names) == len(MAPS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "format 2 is unknown"),
        ({"scale": "margin"}, "cannot be calibrated"),
        ({"method": "magic"}, "the method 'magic' is unknown"),
        ({"parameters": {"slope": -1, "bias": 0}}, "above 0"),
        ({"parameters": {"slope": "x", "bias": 0}}, "is not a calibration"),
        ({"parameters": {}}, "is not a calibration"),
        ({"method": "isotonic", "parameters": {"scores": [0.1], "values": [0.1]}}, "at least two"),
        ({"method": "isotonic", "parameters": {"scores": [0.1, 0.2], "values": [0.2, 0.1]}}, "must be increasing"),
        ({"method": "isotonic", "parameters": {"scores": [0.1, 0.2], "values": [0.2, 1.0]}}, "must be increasing"),
    ],
)
def test_damaged_files(scorer: surefoot.Scorer, tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps(calibration(scorer).to_dict() | change))
    with pytest.raises(CalibrationError, match=message):
        Calibration.read(path)


@pytest.mark.parametrize("text", ["", "[]", "{", '"x"'])
def test_files_that_are_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.json"
    path.write_text(text)
    with pytest.raises(CalibrationError, match="calibration"):
        Calibration.read(path)
    with pytest.raises(CalibrationError, match="Cannot read"):
        Calibration.read(tmp_path / "missing.json")


# --- from labelled data to calibrated scores ------------------------------------------------------------------------

WORDS = ("We add 2 and 3.", "That gives 5.", "So we have 6 in all.", "Hence x = 7.", "The answer is \\boxed{5}.")


def labelled(scorer: surefoot.Scorer) -> list[dict[str, Any]]:
    """Labels that the random model knows a little of: a step with a low score is more often wrong."""
    rows: list[dict[str, Any]] = []
    for number in range(40):
        question = f"Problem {number}: what is {number} + 5?"
        steps = [WORDS[(number + at) % 5] for at in range(1 + number % 4)]
        scores = scorer.score(question, steps).step_scores
        rows.append({"problem": question, "steps": steps, "scores": scores})
    middle = median(score for row in rows for score in row["scores"])
    for number, row in enumerate(rows):
        wrong = [at for at, score in enumerate(row.pop("scores")) if score < middle * (0.5 + 0.4 * (number % 3))]
        row["label"] = wrong[0] if wrong else -1
    return rows


def test_end_to_end_from_the_command_line(
    checkpoint: Path,
    scorer: surefoot.Scorer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SUREFOOT_CACHE", str(tmp_path / "scores.sqlite"))
    rows = labelled(scorer)
    data, out = tmp_path / "data.jsonl", tmp_path / "calibration.json"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    model = ["--model", str(checkpoint)]
    assert main(["calibrate", *model, "--data", str(data), "--out", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["after"]["log_loss"] < found["before"]["log_loss"]
    assert found["calibration"]["fingerprint"] == scorer.fingerprint
    name = Calibration.read(out).name

    call = ["score", *model, "--question", rows[0]["problem"], "--solution", WORDS[0], "--json"]
    assert main([*call, "--calibration", str(out)]) == 0
    scored = json.loads(capsys.readouterr().out)
    assert scored["calibration"] == name
    assert scored["steps"][0]["score"] == pytest.approx(Calibration.read(out).map(scored["steps"][0]["raw"]))

    measured = ["eval", "processbench", *model, "--data", str(data), "--calibration", str(out)]
    measured.append("--json")
    assert main(measured) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["calibration"] == name
    assert result["reliability"]["log_loss"] < found["before"]["log_loss"]

    strange = replace(Calibration.read(out), fingerprint="f" * 64)
    strange.write(out)
    assert main([*call, "--calibration", str(out)]) == 2
    assert "--any-calibration" in capsys.readouterr().err
    assert main([*call, "--calibration", str(out), "--any-calibration"]) == 0
    assert main(["eval", "processbench", "--data", str(data), "--scores", "s", "--calibration", str(out)]) == 2


def test_published_scores_are_compared_with_raw_ones(calibrated: surefoot.Scorer) -> None:
    with pytest.raises(OptionError, match="without a calibration"):
        check(calibrated)


def test_a_calibrated_model_is_not_calibrated_again(calibrated: surefoot.Scorer) -> None:
    with pytest.raises(OptionError, match="loaded with a calibration"):
        evaluate.calibrate(calibrated, [{"problem": "p", "steps": ["a"], "label": 0}])
