"""`surefoot bulk`: exit codes, messages in the words of the command line, status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.bulk import results, sums, write_jsonl
from surefoot.cli.main import main


@pytest.fixture
def source(tmp_path: Path) -> str:
    return str(write_jsonl(tmp_path / "in.jsonl", sums(questions=3)))


def test_a_job_from_the_command_line(
    source: str, tmp_path: Path, checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    command = ["bulk", source, out, "--model", str(checkpoint), "--unit-rows", "3", "--quiet"]
    assert main([*command, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["out"], told["rows"], told["units"], told["resumed_units"]) == (out, 9, 3, 0)
    assert main(command) == 0
    assert capsys.readouterr().out == f"{out}: 9 results, 9 kept, 0 unscored, 3 parts (3 from earlier runs)\n"
    assert main(["bulk", "--status", out]) == 0
    assert capsys.readouterr().out.splitlines()[:3] == [
        f"{out}: finished",
        "  rows   9 of 9 (100.0%)",
        "  units  3 of 3",
    ]
    assert main(["bulk", out, "--refilter", "--filter", "row.id == '1-1'"]) == 0
    assert [row["id"] for row in results(Path(out))] == ["1-1"]


def test_bad_rows_are_exit_code_1(tmp_path: Path, checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = str(write_jsonl(tmp_path / "in.jsonl", [*sums(questions=1), "{bad"]))
    assert main(["bulk", source, str(tmp_path / "out"), "--model", str(checkpoint), "--quiet"]) == 1
    assert "1 rows cannot be read: see" in capsys.readouterr().out
    assert main(["bulk", "--status", str(tmp_path / "out"), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["bad_rows"] == 1


MESSAGES = [
    (["bulk"], "Missing argument 'OUT'. See surefoot bulk --help."),
    (["bulk", "OUT"], "Give the input and the folder for the output: surefoot bulk IN OUT."),
    (["bulk", "IN", "OUT", "--question", "problem"], "Name the columns with --question and one of --solution,"),
    (["bulk", "IN", "OUT", "--steps", "a", "--solution", "b"], "--solution, --steps: give one of them"),
    (["bulk", "IN", "OUT", "--sample", "2"], "--sample 2.0 is not a fraction."),
    (["bulk", "IN", "OUT", "--fresh", "--extend"], "--fresh, --extend, --refilter: they exclude each other."),
    (["bulk", "IN", "OUT", "--filter", "seed==min and `min` >"], "'seed==min and `min` >': column 21"),
    (["bulk", "IN", "OUT", "--filter", "minn > 1"], "Did you mean"),
    (["bulk", "IN", "OUT", "--best-of", "1", "--rank-by", "reward"], "needs a reward: pass --reward"),
    (["bulk", "--status", "IN", "OUT"], "--status takes only the folder"),
    (["bulk", "--status", "OUT"], "There is no bulk job in"),
    (["bulk", "OUT", "--refilter", "--filter", "min > 0"], "There is no job in"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), MESSAGES)
def test_wrong_calls(
    arguments: list[str], message: str, source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = {"IN": source, "OUT": str(tmp_path / "out")}
    assert main([paths.get(word, word) for word in arguments]) == 2
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1


def test_a_change_is_named_with_flags(
    source: str, tmp_path: Path, checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["bulk", source, str(tmp_path / "out"), "--model", str(checkpoint), "--quiet"]
    assert main(command) == 0
    assert main([*command, "--filter", "min > 0.5"]) == 2
    assert "Apply this one to its scores with --refilter" in capsys.readouterr().err
    assert main([*command, "--reward", "min"]) == 2
    assert "start anew with --fresh" in capsys.readouterr().err
