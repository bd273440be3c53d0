"""`surefoot train` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from surefoot.cli.main import main
from surefoot.cli.train import parse_source
from surefoot.scoring.local import load_local
from surefoot.testing import write_base
from surefoot.train.run_log import read_log


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = [
        {"question": f"question {at}", "steps": ["a yes", "b no" if at % 2 else "b yes"], "label": 1 if at % 2 else -1}
        for at in range(40)
    ]
    (tmp_path / "labelled.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "held_out.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:10]))
    worked = {"question": "3 bags of 4?", "answer": "He has 3*4 = <<3*4=12>>12.\n#### 12"}
    (tmp_path / "worked.jsonl").write_text(json.dumps(worked) + "\n")
    write_base(tmp_path / "base")
    return tmp_path


def test_from_files_to_a_model(
    data: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    arguments = [
        "train", "--base", str(data / "base"), "--out", str(data / "out"), "--steps", "4", "--precision", "float32",
        "--data", f"{data / 'labelled.jsonl'}=2", str(data / "worked.jsonl"),
        "--held-out", str(data / "held_out.jsonl"),
        "--validation", "0.2", "--validation-from", "labelled", "--layers", "1", "--wrong-share", "0.5", "--quiet",
        "--device", "cpu",
    ]  # fmt: skip
    assert main([*arguments, "--minutes", "0"]) == 1
    assert "Paused at step 0 of 4" in capsys.readouterr().out
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "Trained 4 steps. Load it with surefoot.load(" in out
    assert "best_f1" in out
    assert "skipped 10 examples that share a question with the held-out files." in caplog.text
    assert load_local(data / "out").score("q", ["a"]).status == "scored"
    assert len([row for row in read_log(data / "out" / "log.jsonl") if "rate" in row]) == 4


def test_a_folder_is_one_source(data: Path) -> None:
    (data / "files").mkdir()
    for name in ("labelled", "worked"):
        (data / f"{name}.jsonl").rename(data / "files" / f"{name}.jsonl")
    for share in ([], ["--share"]):
        arguments = ["train", "--base", str(data / "base"), "--out", str(data / f"out{len(share)}"), "--steps", "1"]
        assert main([*arguments, "--data", f"{data / 'files'}=2", "--quiet", "--device", "cpu", *share]) == 0


def test_mistakes_are_named(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["train", "--base", str(data / "base"), "--out", str(data / "out"), "--quiet", "--precision", "float32"]
    assert main([*common, "--data", str(data / "none.jsonl")]) == 2
    assert "none.jsonl' is not a file" in capsys.readouterr().err
    assert main([*common, "--data", f"{data / 'labelled.jsonl'}=0"]) == 2
    assert "the weight must be above 0" in capsys.readouterr().err
    assert main([*common, "--data", str(data / "labelled.jsonl"), "--learning-rate", "-1"]) == 2
    assert "--learning-rate -1.0 must be above 0" in capsys.readouterr().err
    labelled = str(data / "labelled.jsonl")
    for options, message in (
        (["--wrong-share", "50"], "--wrong-share 50.0 must be between 0 and 1"),
        (["--validation-from", "labelled.jsonl", "--validation", "0.1"], "the names in --data are labelled"),
        (["--validation-from", "labelled"], "--validation-from needs --validation"),
        (["--validation", "0.00001"], "sets no example aside"),
        (["--data", labelled, labelled], "Several files of --data are called labelled"),
        (["--data", f"{labelled}=nan"], "the weight must be above 0 and finite"),
        (["--data", f"{labelled}=inf"], "the weight must be above 0 and finite"),
        (["--multiple", "0"], "--multiple 0 must be at least 1"),
        (["--batch-tokens", "0"], "--batch-tokens: Input should be greater than or equal to 1"),
        (["--save-steps", "0"], "--save-steps 0 must be at least 1"),
        (["--evaluate-steps", "0"], "--evaluate-steps 0 must be at least 1"),
        (["--minutes", "nan"], "--minutes nan must be at least 0"),
        (["--epochs", "inf"], "--epochs inf must be above 0 and finite"),
        (["--head-learning-rate", "inf"], "--head-learning-rate inf must be above 0 and finite"),
        (["--weight-decay", "nan"], "--weight-decay nan must be at least 0 and finite"),
        (["--clip", "0"], "--clip 0.0 must be above 0"),
        (["--seed", str(2**64)], "does not fit into 64 bits"),
        (["--out", labelled], f"File exists: '{labelled}'"),
    ):
        assert main([*common, "--data", labelled, *options]) == 2
        assert message in capsys.readouterr().err
    assert not (data / "out").exists()


def test_weights_of_files() -> None:
    assert parse_source("a/b.jsonl") == (Path("a/b.jsonl"), 1.0)
    assert parse_source("a/b.jsonl=2.5") == (Path("a/b.jsonl"), 2.5)
    assert parse_source("a=b.jsonl") == (Path("a=b.jsonl"), 1.0)
