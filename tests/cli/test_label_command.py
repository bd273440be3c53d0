"""`surefoot label`: a file of questions, given solutions, rows for training, exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from helpers.bulk import write_jsonl
from surefoot.cli.label import app
from surefoot.core.labels import LabelledSolution
from surefoot.errors import JobError, OptionError
from surefoot.train.readers import read_examples

QUESTION = "What is 2 + 3 * 4?"
RIGHT = "3 * 4 = 12.\n\n2 + 12 = 14.\n\nThe answer is \\boxed{14}."
WRONG = "2 + 3 = 5.\n\n5 * 4 = 20.\n\nThe answer is \\boxed{20}."


def call(*words: str) -> Any:
    return get_command(app).main(list(words), standalone_mode=False)


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    texts = (RIGHT, RIGHT, WRONG)
    rollouts = write_jsonl(tmp_path / "rollouts.jsonl", [{"question": QUESTION, "solution": text} for text in texts])
    row = {"question": QUESTION, "target": "#### 14", "responses": [RIGHT, WRONG]}
    questions = write_jsonl(tmp_path / "questions.jsonl", [row])
    out = ["--generator", str(rollouts), "--out", str(tmp_path / "labels"), "--quiet"]
    return [str(questions), "--gold", "target", *out]


def test_sampled_solutions(command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = tmp_path / "train.jsonl"
    assert call(*command, "--samples", "6", "-k", "2", "--train-file", str(train)) == 0
    told = capsys.readouterr()
    assert "1 questions, 6 solutions (labelled 6)" in told.out
    assert "Wrote 6 rows" in told.err
    lines = (tmp_path / "labels" / "labels.jsonl").read_text().splitlines()
    found = [LabelledSolution.from_dict(json.loads(line)) for line in lines]
    assert {each.text: each.first_error for each in found} == {RIGHT: -1, WRONG: 0}
    targets = {example.steps[0]: example.targets for example in read_examples(train)}
    assert targets == {"3 * 4 = 12.": (1.0, 1.0, 1.0), "2 + 3 = 5.": (0.0, None, None)}
    assert call(*command, "--samples", "6", "-k", "2", "--json") == 0
    assert json.loads(capsys.readouterr().out)["resumed"] == 1
    with pytest.raises(JobError, match="seed: 0 -> 1"):
        call(*command, "--samples", "6", "-k", "2", "--seed", "1")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--train-file", "no/such/train.jsonl"], "The training file cannot be written to no/such/train.jsonl"),
        (
            ["--train-file", "t.jsonl", "--target", "soft", "--stop", "first-right"],
            "which stop='first-right' biases",
        ),
        (
            ["--train-file", "t.jsonl", "--target", "relative", "--stop", "interval"],
            "which stop='interval' biases",
        ),
    ],
)
def test_rows_that_cannot_be_written_fail_before_anything_is_generated(
    command: list[str], tmp_path: Path, more: list[str], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        call(*command, *more)
    assert not (tmp_path / "labels").exists()


def test_given_solutions_with_a_judge_and_a_budget(
    command: list[str], checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--completions", "responses", "--procedure", "until-error", "--stop", "first-right"]
    more += ["--count-as-wrong", "cut_off", "--judge", str(checkpoint), "--budget-calls", "50", "--json"]
    assert call(*command, *more) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["solutions"], told["errors_found"], told["errors_excluded"]) == (2, 1, 1)
    assert told["judged"] == 2
    assert told["spent"]["rollouts"] <= 50


def test_a_failed_question_is_an_incomplete_job(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"question": text, "target": "14"} for text in (QUESTION, "Unknown?")]
    questions = write_jsonl(tmp_path / "more.jsonl", rows)
    assert call(str(questions), *command[1:]) == 1
    assert "1 question failed: There are no recorded solutions of this question. Run" in capsys.readouterr().err
