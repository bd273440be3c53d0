"""`surefoot search`: a file of questions, one question, exit codes, and messages in the words of the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import surefoot
from helpers.bulk import write_jsonl
from helpers.policies import END, START, Table, write_table_policy
from surefoot.cli.main import main
from surefoot.core.search_result import SearchResult
from surefoot.evaluate import read_search_records

QUESTION = "What is 2 + 3 * 4?"
RIGHT = "3 * 4 = 12.\n\n2 + 12 = 14.\n\nThe answer is \\boxed{14}."
WRONG = "2 + 3 = 5.\n\n5 * 4 = 20.\n\nThe answer is \\boxed{20}."


@pytest.fixture
def rollouts(tmp_path: Path) -> str:
    rows = [{"question": QUESTION, "solution": text} for text in (RIGHT, RIGHT, WRONG)]
    return str(write_jsonl(tmp_path / "rollouts.jsonl", rows))


@pytest.fixture
def questions(tmp_path: Path) -> str:
    return str(write_jsonl(tmp_path / "questions.jsonl", [{"question": QUESTION, "answer": "#### 14"}]))


def test_a_file_of_questions(
    questions: str, rollouts: str, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, page = tmp_path / "out", tmp_path / "search.html"
    command = ["search", questions, "--gold", "answer", "--generator", rollouts, "--model", str(checkpoint)]
    command += ["--strategy", "beam", "--strategy", "dvts", "-n", "4", "--out", str(out), "--quiet"]
    assert main([*command, "--report", str(page)]) == 0
    told = capsys.readouterr()
    assert "beam 2x2" in told.out
    assert "dvts 2x2" in told.out
    assert "1 question, 0 from earlier runs" in told.out
    assert "Wrote the report" in told.err
    text = page.read_text(encoding="utf-8")
    assert QUESTION in text
    assert text.count("How it was made") == 1
    assert f"<dt>data</dt><dd>{questions}</dd>" in text
    assert f"<dt>model fingerprint</dt><dd>{surefoot.load(checkpoint).fingerprint}</dd>" in text
    (record,) = read_search_records(out)
    assert (record.gold, set(record.searches)) == ("14", {"beam 2x2", "dvts 2x2"})
    assert {node.answer for search in record.searches.values() for node in search.finished} <= {"14", "20"}
    assert main([*command, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert (again["questions"], again["resumed"], again["failed"]) == (1, 1, 0)
    assert main([*command, "--seed", "1"]) == 2
    assert "seed: 0 -> 1" in capsys.readouterr().err


def test_one_question(rollouts: str, checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["search", "--ask", QUESTION, "--generator", rollouts, "--model", str(checkpoint), "-n", "8"]
    command += ["--select", "majority", "--strategy", "best-of-n"]
    assert main(command) == 0
    told = capsys.readouterr().out
    assert "answer    14" in told
    assert re.search(r"^score     0\.\d{3} \(\w+\)$", told, re.MULTILINE)
    assert re.search(r"^best-of-n 8: 8 nodes, 8 finished, .* ended: finished$", told, re.MULTILINE)
    assert told.startswith("3 * 4 = 12.\n\n2 + 12 = 14.\n")
    assert main([*command, "--json"]) == 0
    result = SearchResult.from_dict(json.loads(capsys.readouterr().out))
    assert {answer.answer for answer in result.answers} == {"14", "20"}
    assert sum(answer.votes for answer in result.answers) == 8


def test_a_question_without_an_answer_is_exit_code_1(
    rollouts: str, checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["search", "--ask", QUESTION, "--generator", rollouts, "--model", str(checkpoint)]
    assert main([*command, "--max-steps", "1"]) == 1
    assert "No path was finished" in capsys.readouterr().out


def test_samples_that_were_cut_off_are_mentioned(
    rollouts: str, checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["search", "--ask", QUESTION, "--generator", rollouts, "--model", str(checkpoint), "-n", "3"]
    assert main([*command, "--strategy", "best-of-n", "--max-new-tokens", "5"]) == 1
    told = capsys.readouterr().out
    assert "score     none" in told
    assert "best-of-n 3: 3 nodes, 0 finished, " in told
    assert told.splitlines()[-2] == (
        "warning: 3 of 3 continuations were cut off at max_tokens=5, without an answer. "
        "Raise max_tokens (--max-new-tokens)."
    )


def test_a_quantized_model_in_this_process(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table: Table = {START: {"2+3=5.\n\n": 1.0}, "2+3=5.\n\n": {"\\boxed{5}": 1.0}, "\\boxed{5}": {END: 1.0}}
    policy = write_table_policy(tmp_path / "policy", table)
    command = ["search", "--ask", QUESTION, "--generator", str(policy), "--generator-quantize", "nf4"]
    assert main([*command, "--generator-batch", "3", "--model", str(checkpoint), "-n", "4", "--json"]) == 0
    result = SearchResult.from_dict(json.loads(capsys.readouterr().out))
    assert (result.answer, result.generator) == ("5", "policy")


MESSAGES = [
    (["search"], "Missing option '--generator'."),
    (["search", "--generator", "ROLLOUTS"], "Give a file with questions, or one question with --ask."),
    (["search", "QUESTIONS", "--ask", "x", "--generator", "ROLLOUTS"], "Give a file with questions, or one"),
    (["search", "QUESTIONS", "--generator", "nowhere"], "nowhere"),
    (["search", "--ask", "x", "--generator", "ROLLOUTS", "--report", "r.html"], "--report: only for a file with"),
    (["search", "--ask", "x", "--generator", "ROLLOUTS", "--gold", "a", "--fresh"], "--gold, --fresh: only for a file"),
    (["search", "QUESTIONS", "--generator", "ROLLOUTS", "--strategy", "mcts"], "There is no strategy 'mcts'."),
    (["search", "QUESTIONS", "--generator", "ROLLOUTS", "-n", "7"], "not a multiple of --branches 2"),
    (["search", "QUESTIONS", "--generator", "ROLLOUTS", "--temperature", "-1"], "--temperature -1.0"),
    (["search", "QUESTIONS", "--generator", "ROLLOUTS", "--rank-by", "median"], "There is no aggregation 'median'."),
    (["search", "QUESTIONS", "--generator", "ROLLOUTS", "--gold", "target"], "`target` is missing"),
    (["search", "QUESTIONS", "--generator", "ROLLOUTS", "--threshold", "7"], "outside the scale"),
    (["search", "QUESTIONS", "--generator", "ROLLOUTS", "--generator-quantize", "nf4"], "--generator-quantize: 'ROLL"),
    (["search", "QUESTIONS", "--generator", "http://127.0.0.1:9", "--generator-batch", "4"], "--generator-batch: the"),
    (["search", "QUESTIONS", "--generator", "ROLLOUTS", "--served-model", "a"], "--served-model: for servers only"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), MESSAGES)
def test_wrong_calls(
    arguments: list[str],
    message: str,
    questions: str,
    rollouts: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.iterdir())
    paths = {"QUESTIONS": questions, "ROLLOUTS": rollouts}
    assert main([paths.get(word, word) for word in arguments]) == 2
    assert message.replace("ROLL", rollouts[:9]) in capsys.readouterr().err
    assert set(tmp_path.iterdir()) == before
