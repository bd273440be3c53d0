"""`--model` more than once: the same ensemble in every command. Expected scores are numpy's of the members' own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import surefoot
from helpers.bulk import parts, sums, write_jsonl
from helpers.serving import QUESTION, SOLUTION, served
from surefoot.cli.main import main
from surefoot.core.calibration import Calibration, FittedOn, Logistic
from surefoot.core.labels import LabelledSolution
from surefoot.core.search_result import SearchResult
from surefoot.serve.settings import Settings

KEY = "a-key-for-this-test"
RIGHT = "3 * 4 = 12.\n\n2 + 12 = 14.\n\nThe answer is \\boxed{14}."
WRONG = "2 + 3 = 5.\n\n5 * 4 = 20.\n\nThe answer is \\boxed{20}."


@pytest.fixture(autouse=True)
def score_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUREFOOT_CACHE", str(tmp_path / "scores.sqlite"))


@pytest.fixture(scope="module")
def service(scorer: surefoot.Scorer) -> Iterator[str]:
    with served([scorer], Settings(api_key=KEY)) as (url, _):
        yield url


@pytest.fixture
def key(tmp_path: Path) -> str:
    (tmp_path / "key").write_text(KEY)
    return str(tmp_path / "key")


def table(members: list[surefoot.Scorer], item: tuple[str, Any]) -> np.ndarray[Any, Any]:
    return np.array([member.score(*item).step_scores for member in members], dtype=float)


def test_score(
    service: str, key: str, mini: surefoot.Scorer, scorer: surefoot.Scorer, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = table([mini, scorer], (QUESTION, SOLUTION))
    command = ["score", "--question", QUESTION, "--solution", SOLUTION, "--model", "mini", "--model", service]
    command += ["--api-key", key, "--dtype", "float32", "--json"]
    for options, scores in (([], expected.mean(axis=0)), (["--combine", "min"], expected.min(axis=0))):
        assert main([*command, *options]) == 0
        steps = json.loads(capsys.readouterr().out)["steps"]
        assert [step["score"] for step in steps] == pytest.approx(scores, abs=1e-5)
        assert [step["spread"] for step in steps] == pytest.approx(expected.std(axis=0, ddof=1), abs=1e-5)
        assert [len(step["members"]) for step in steps] == [2] * len(steps)


def test_calibrated_members(
    checkpoint: Path,
    mini: surefoot.Scorer,
    scorer: surefoot.Scorer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = []
    for name, model in (("mini", mini), ("small", scorer)):
        fitted = Calibration(Logistic(1.0, 0.7), name, model.fingerprint, FittedOn(1, 1, ""))
        fitted.write(tmp_path / f"{name}.json")
        files += ["--calibration", str(tmp_path / f"{name}.json")]
    command = ["score", "--question", QUESTION, "--solution", SOLUTION, "--model", "mini", "--model", str(checkpoint)]
    assert main([*command, *files, "--combine", "calibrated", "--json"]) == 0
    raw = table([mini, scorer], (QUESTION, SOLUTION))
    expected = 1 / (1 + np.exp(-(np.log(raw / (1 - raw)) + 0.7)))
    steps = json.loads(capsys.readouterr().out)["steps"]
    assert [step["score"] for step in steps] == pytest.approx(expected.mean(axis=0), abs=1e-5)
    assert main([*command, *files[:2]]) == 2
    assert "--calibration: belongs to one model" in capsys.readouterr().err
    assert main([*command[:6], "mini", *files]) == 2
    assert "--calibration: a list is for a list of models" in capsys.readouterr().err


def test_eval(
    service: str, key: str, mini: surefoot.Scorer, scorer: surefoot.Scorer, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    rows: list[dict[str, Any]] = [
        {
            "id": f"gsm8k-{number}",
            "problem": f"What is {number} + 1?",
            "steps": [f"{number} + 1 = {number + 1 + number % 2}.", "Done."],
            "label": -(1 - number % 2),
        }
        for number in range(6)
    ]
    data = write_jsonl(tmp_path / "rows.jsonl", rows)
    means = [table([mini, scorer], (row["problem"], row["steps"])).mean(axis=0) for row in rows]
    threshold = float(np.median(means)) + 1e-4
    command = ["eval", "processbench", "--data", str(data), "--model", "mini", "--model", service]
    command += ["--threshold", str(threshold), "--api-key", key, "--json", "--quiet", "--draws", "0"]
    assert main(command) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["model"] == f"mean(mini, {scorer.name})"
    (split,) = result["splits"]
    predicted = [next((at for at, score in enumerate(mean) if score <= threshold), -1) for mean in means]
    hits = [found == row["label"] for found, row in zip(predicted, rows, strict=True)]
    assert split["error"]["hits"] == sum(hit for hit, row in zip(hits, rows, strict=True) if row["label"] >= 0)
    assert split["correct"]["hits"] == sum(hit for hit, row in zip(hits, rows, strict=True) if row["label"] < 0)
    assert (tmp_path / "scores.sqlite").is_file(), "the member in this process has a score cache"


def test_bulk(checkpoint: Path, mini: surefoot.Scorer, scorer: surefoot.Scorer, tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "rows.jsonl", sums(questions=2, solutions=2))
    command = ["bulk", str(source), str(tmp_path / "out"), "--model", "mini", "--model", str(checkpoint)]
    assert main([*command, "--combine", "min", "--quiet"]) == 0
    rows = [row for part in parts(tmp_path / "out") for row in pq.read_table(part).to_pylist()]
    for row in rows:
        expected = table([mini, scorer], (row["question"], row["solution"])).min(axis=0)
        assert row["prm_step_scores"] == pytest.approx(expected, abs=1e-5)
    assert len(rows) == 4
    assert main([*command, "--quiet"]) == 2, "another rule is another job"


@pytest.fixture
def rollouts(tmp_path: Path) -> str:
    rows = [{"question": QUESTION, "solution": text} for text in (RIGHT, RIGHT, WRONG)]
    return str(write_jsonl(tmp_path / "rollouts.jsonl", rows))


def test_search(
    rollouts: str, checkpoint: Path, mini: surefoot.Scorer, scorer: surefoot.Scorer, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["search", "--ask", QUESTION, "--generator", rollouts, "--strategy", "best-of-n", "-n", "8", "--json"]
    assert main([*command, "--model", "mini", "--model", str(checkpoint)]) == 0
    result = SearchResult.from_dict(json.loads(capsys.readouterr().out))
    assert {node.answer for node in result.finished} == {"14", "20"}
    for node in result.finished:
        expected = table([mini, scorer], (QUESTION, [step.text for step in node.steps]))
        assert [step.spread for step in node.steps] == pytest.approx(expected.std(axis=0, ddof=1), abs=1e-5)


def test_label(
    rollouts: str,
    checkpoint: Path,
    mini: surefoot.Scorer,
    scorer: surefoot.Scorer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With --certain 0, only the spread decides whether a verdict is taken. One that finds no error in a solution with
    a wrong answer never is."""
    questions = write_jsonl(tmp_path / "q.jsonl", [{"question": QUESTION, "answer": "14", "responses": [RIGHT, WRONG]}])
    lowest = table([mini, scorer], (QUESTION, WRONG.split("\n\n"))).min(axis=0)
    command = ["label", str(questions), "--generator", rollouts, "--completions", "responses", "--quiet", "--json"]
    command += ["--screen", "mini", "--screen", str(checkpoint), "--combine", "min", "--certain", "0"]
    for spread, screened in (("1", 1 + bool((lowest <= 0.5).any())), ("0", 0)):
        out = tmp_path / spread
        assert main([*command, "--out", str(out), "--max-spread", spread]) == 0
        assert json.loads(capsys.readouterr().out)["screened"] == screened
        lines = (out / "labels.jsonl").read_text().splitlines()
        verdicts = [LabelledSolution.from_dict(json.loads(line)).screen for line in lines]
        assert [each and each.model for each in verdicts] == [f"min(mini, {checkpoint})"] * 2
        assert verdicts[1] is not None
        assert verdicts[1].scores == pytest.approx(lowest, abs=1e-5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["score", "--combine", "min", "--question", "q", "--solution", "s"], "--combine and --missing-member are for"),
        (["score", "--model", "mini", "--missing-member", "skip", "--question", "q", "--solution", "s"],
         "are for an ensemble. Name several models."),
        (["score", "--model", "mini", "--model", "mini", "--question", "q", "--solution", "s"], "are the same model"),
        (["score", "--model", "mini", "--model", "no model", "--question", "q", "--solution", "s"],
         "'no model' is neither"),
        (["score", "--model", "mini", "--model", "x/y", "--family", "qwen", "--question", "q", "--solution", "s"],
         "--family: belongs to one model, and several members could take it: mini, x/y."),
        (["score", "--model", "http://127.0.0.1:9", "--model", "http://127.0.0.1:8", "--api-key", "KEY", "--question",
          "q", "--solution", "s"], "belongs to one model, and several members could take it"),
        (["score", "--model", "http://127.0.0.1:9", "--model", "http://127.0.0.1:8", "--threads", "1", "--question",
          "q", "--solution", "s"], "--threads is for a model in this process"),
        (["eval", "processbench", "--scores", "prm", "--combine", "min", "--data", "x"], "are for an ensemble"),
        (["calibrate", "--model", "mini", "--model", "http://127.0.0.1:9", "--data", "x"],
         "A calibration belongs to one model. Calibrate each model of the ensemble on its own"),
        (["label", "q.jsonl", "--generator", "g", "--out", "o", "--judge", "mini", "--combine", "min"],
         "are for an ensemble"),
        (["label", "--review", "labels", "--model", "mini", "--combine", "min"], "are for an ensemble"),
        (["label", "--review", "labels", "--export", "x", "--combine", "min"], "--combine is for the page"),
    ],
)  # fmt: skip
def test_wrong_calls(words: list[str], message: str, key: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([key if word == "KEY" else word for word in words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
