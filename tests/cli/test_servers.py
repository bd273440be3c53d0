"""`--model` with the address of a service: the same results as with the model in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import surefoot
from helpers.serving import served
from surefoot.cli.main import main
from surefoot.serve.settings import Settings

KEY = "a-key-for-this-test"


@pytest.fixture(scope="module")
def service(scorer: surefoot.Scorer) -> Iterator[str]:
    with served([scorer], Settings(api_key=KEY)) as (url, _):
        yield url


@pytest.fixture
def key(tmp_path: Path) -> str:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    return str(file)


@pytest.fixture
def data(tmp_path: Path, scorer: surefoot.Scorer) -> str:
    """Labels with which random weights agree a little, so that a calibration can be fitted."""
    asked = [(f"What is {number} + 1?", [f"{number} + 1 = {number + 1}."]) for number in range(12)]
    scores = [result.mean or 0.0 for result in scorer.score_many(asked)]
    middle = sorted(scores)[5]
    rows = [
        {"problem": question, "question": question, "steps": steps, "label": -1 if (score > middle) != (at == 3) else 0}
        for at, ((question, steps), score) in enumerate(zip(asked, scores, strict=True))
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def without(found: Any, *names: str) -> Any:
    """Plain data without the fields that tell models and moments apart; numbers to five digits."""
    if isinstance(found, dict):
        return {name: without(value, *names) for name, value in found.items() if name not in names}
    if isinstance(found, list):
        return [without(value, *names) for value in found]
    return round(found, 5) if isinstance(found, float) else found


@pytest.mark.parametrize(
    "command",
    [["score", "DATA"], ["eval", "processbench", "--data", "DATA"], ["calibrate", "--data", "DATA", "--out", "OUT"]],
    ids=lambda command: command[0],
)
def test_a_service_gives_the_results_of_the_model(
    command: list[str], service: str, key: str, data: str, checkpoint: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("SUREFOOT_CACHE", str(tmp_path / "scores.sqlite"))
    names = {"DATA": data, "OUT": str(tmp_path / "calibration.json")}
    call = [*(names.get(word, word) for word in command), "--json", "--quiet"]
    found = []
    for model in (["--model", str(checkpoint)], ["--model", service, "--api-key", key]):
        assert main([*call, *model]) == 0
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        found.append(without(rows, "model", "seconds"))
    assert found[0] == found[1]
    assert len(found[0]) == (12 if command[0] == "score" else 1)


@pytest.mark.parametrize(
    ("given", "message"),
    [({"solution": "s", "steps": ["s"]}, "both `solution` and `steps`"), ({}, "neither `solution` nor `steps`")],
)
def test_the_service_and_the_command_reject_the_same_items(
    given: dict[str, Any], message: str, service: str, checkpoint: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    item = {"question": "q", **given}
    (tmp_path / "line.jsonl").write_text(json.dumps(item))
    assert main(["score", str(tmp_path / "line.jsonl"), "--model", str(checkpoint), "--json"]) == 1
    result = json.loads(capsys.readouterr().out)
    assert (result["status"], result["steps"]) == ("unscored", [])
    assert message in result["reason"]
    headers = {"Authorization": f"Bearer {KEY}"}
    reply = httpx.post(f"{service}/v1/score", json={"items": [item]}, headers=headers)
    assert reply.status_code == 422
    assert "give either `solution` or `steps`" in reply.text


def test_the_key_of_a_service(
    service: str, key: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["score", "--question", "What is 1 + 1?", "--solution", "1 + 1 = 2.", "--model", service]
    monkeypatch.delenv("SUREFOOT_API_KEY", raising=False)
    assert main(call) == 2
    assert main([*call, "--api-key", "no-such-file"]) == 2
    assert "no-such-file" not in capsys.readouterr().err, "it may be the key itself"
    assert main([*call, "--api-key", key]) == 0
    monkeypatch.setenv("SUREFOOT_API_KEY", KEY)
    assert main([*call, "--api-key", "env"]) == 0


def test_check_needs_the_model_itself(service: str, key: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", service, "--api-key", key]) == 2
    assert "surefoot check needs the model itself" in capsys.readouterr().err
