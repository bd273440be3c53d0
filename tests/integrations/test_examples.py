"""The examples run unchanged, with the embedded model."""

from __future__ import annotations

import importlib.util
import json
import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


@pytest.fixture(autouse=True)
def no_default_model(monkeypatch: pytest.MonkeyPatch) -> None:
    # Set and delete, so that monkeypatch undoes what an example sets.
    monkeypatch.setenv("SUREFOOT_MODEL", "")
    monkeypatch.delenv("SUREFOOT_MODEL")


def run(name: str) -> None:
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def test_demo(capsys: pytest.CaptureFixture[str]) -> None:
    run("demo.py")
    shown = capsys.readouterr().out
    correct, wrong = shown.split("\nCorrect\n")[1].split("\nWrong: an arithmetic error\n")
    assert "no error found" in correct
    assert "first error at step 1" in wrong
    assert ".venv/bin/surefoot score --question" in shown


def test_grpo(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["grpo.py", "--steps", "2", "--length", "16", "--recipe", "outcome+process"]
    monkeypatch.setattr(sys, "argv", arguments)
    run("grpo.py")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [["step", "1"], ["step", "2"]], "one line per log entry"
    assert all("reward" in line and "unscored" in line and "alarms: " in line for line in lines)


def test_verl(capsys: pytest.CaptureFixture[str]) -> None:
    run("verl_reward.py")
    right, wrong, empty = [line for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert "'surefoot/outcome': 1.0" in right
    assert "'surefoot/outcome': 0.0" in wrong
    assert "'score': -0.1, 'scored': 0.0" in empty


def test_openrlhf(capsys: pytest.CaptureFixture[str]) -> None:
    run("openrlhf_reward.py")
    reply = json.loads(capsys.readouterr().out)
    assert 0.7 <= reply["rewards"][0] <= 1.0
    assert reply["scores"] == [1.0]


@pytest.mark.skipif(importlib.util.find_spec("verifiers") is None, reason="run by make test-verifiers")
def test_verifiers(capsys: pytest.CaptureFixture[str]) -> None:
    import verifiers

    if hasattr(verifiers, "Rubric"):
        pytest.skip("needs another version of verifiers")
    run("verifiers_reward.py")
    assert "weight=0.5" in capsys.readouterr().out
