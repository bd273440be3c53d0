"""The command line, run as a user runs it."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import IO, Any, TextIO

import pytest

import surefoot
from helpers.card import CARD_QUESTION, CARD_STEPS
from surefoot.cli.main import main
from surefoot.cli.score import BATCH
from surefoot.display.terminal import show
from surefoot.scoring.local import load_local

QUESTION = "Tom has 3 bags of 4 apples. How many apples?"
SOLUTION = "Step 1: There are 3 bags.\nStep 2: 3 * 4 = 12.\nFinal Answer: 12"

BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
"""So that what is not flushed is not there."""


def jsonl(path: Path, *rows: object) -> str:
    path.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def test_one_solution_line_by_line(
    checkpoint: Path, scorer: surefoot.Scorer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["score", "--model", str(checkpoint), "--question", QUESTION, "--solution", SOLUTION]) == 0
    out = capsys.readouterr().out
    assert out.rstrip("\n") == show(scorer.score(QUESTION, SOLUTION))
    assert len(out.splitlines()) == 4
    assert "\x1b" not in out


def test_json_is_the_whole_result(
    checkpoint: Path, scorer: surefoot.Scorer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["score", "--model", str(checkpoint), "--question", QUESTION, "--solution", SOLUTION, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    expected = scorer.score(QUESTION, SOLUTION).to_dict()
    for row in (found, expected):
        row.pop("seconds")
    assert found == json.loads(json.dumps(expected))


def test_a_file_in_order_with_its_bad_lines(
    checkpoint: Path, scorer: surefoot.Scorer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = jsonl(
        tmp_path / "in.jsonl",
        {"question": QUESTION, "solution": SOLUTION},
        "not json\n",
        "\n",
        {"question": QUESTION, "steps": ["3 * 4 = 12."]},
        {"question": QUESTION},
        {"question": 3, "solution": "x"},
        {"question": QUESTION, "steps": [1]},
        {"question": QUESTION, "solution": ""},
        '{"question": "\\ud800", "solution": "s"}\n',
    )
    assert main(["score", file, "--model", str(checkpoint), "--json"]) == 1
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == 8
    assert rows[0]["mean"] == pytest.approx(scorer.score(QUESTION, SOLUTION).mean, abs=1e-5)
    assert rows[2]["steps"][0]["text"] == "3 * 4 = 12."
    assert [row["reason"] for row in rows] == [
        None,
        "Line 2 is not JSON: Expecting value: line 1 column 1 (char 0)",
        None,
        "Line 5: The object has neither `solution` nor `steps`. Give one of them.",
        "Line 6: The question is int, not a string.",
        "Line 7: Step 0 of the list is of type int; every step must be a str.",
        "The solution has no steps.",
        rows[7]["reason"],
    ]
    assert rows[7]["reason"].startswith("Line 9: The question contains half of a surrogate pair")
    found = [surefoot.SolutionScore.from_dict(row) for row in rows]
    assert {frozenset(row) for row in rows} == {frozenset(rows[0])}
    assert [result.status == "scored" for result in found] == [row["reason"] is None for row in rows]
    assert main(["score", file, "--model", str(checkpoint)]) == 1
    shown = capsys.readouterr().out
    assert (
        "line 2\nmean none  min none  final none  product none  geometric mean none  first error unknown\n"
        "note: Line 2 is not" in shown
    )


GOOD = {"question": QUESTION, "steps": ["3 * 4 = 12."]}


@pytest.mark.parametrize(
    ("row", "passed"),
    [
        (GOOD | {"id": 7, "meta": {"source": ["gsm8k", None]}}, {"id": 7, "meta": {"source": ["gsm8k", None]}}),
        ({"id": 12345678901234567890} | GOOD, {"id": 12345678901234567890}),
        (GOOD | {"id": None, "": 0.1, "ident": "½"}, {"id": None, "": 0.1, "ident": "½"}),
        (GOOD | {"answer": "12", "model": "m", "id": 1}, {"id": 1, "input": {"answer": "12", "model": "m"}}),
        (GOOD | {"seconds": 3, "mean": 0.5}, {"input": {"seconds": 3, "mean": 0.5}}),
        (GOOD | {"input": "text"}, {"input": {"input": "text"}}),
        (GOOD | {"input": {"a": 1}, "status": "new"}, {"input": {"input": {"a": 1}, "status": "new"}}),
        (GOOD | {"solution": None, "id": 1}, {"id": 1}),
        (GOOD | {"id": "\ud800"}, {"id": "\ud800"}),
        ({"question": QUESTION, "solution": "", "id": 1}, {"id": 1}),
        ({"id": 1}, {"id": 1}),
        ({"question": QUESTION, "id": 1, "reason": "r"}, {"id": 1, "input": {"reason": "r"}}),
        (GOOD | {"solution": "both", "id": 1}, {"id": 1}),
        ({"question": 3, "steps": [1], "id": 1}, {"id": 1}),
        ({"question": "q" * 1_000_001, "steps": ["s"], "id": 1}, {"id": 1}),
        ([1], {}),
    ],
    ids=range(16),
)
def test_other_keys_are_passed_through(
    checkpoint: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    row: object,
    passed: dict[str, Any],
) -> None:
    """The result keeps its fields, whatever the input has, and no id is lost."""
    file = jsonl(tmp_path / "in.jsonl", GOOD, row)
    main(["score", file, "--model", str(checkpoint), "--json"])
    plain, found = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert {name: value for name, value in found.items() if name not in plain} == passed
    result = {name: value for name, value in found.items() if name in plain}
    assert set(result) == set(plain)
    scored = isinstance(row, dict) and GOOD.items() <= row.items() and row.get("solution") is None
    if scored:
        assert result | {"seconds": 0} == plain | {"seconds": 0}
    assert (found["status"] == "scored") == scored
    assert surefoot.SolutionScore.from_dict(found).to_dict() == result


def test_deeply_nested_keys_cost_no_other_line(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From a pipe, a thread with a short stack reads what the main thread has to write."""
    deep = [json.dumps(GOOD)[:-1] + f', "id": {n}, "deep": {"[" * n}{"]" * n}}}' for n in range(800, 1000, 4)]
    with standard_input("\n".join(deep).encode(), tmp_path / "in") as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        main(["score", "-", "--model", str(checkpoint), "--json", "--quiet"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == len(deep)
    assert all(row["id"] == int(n) for n, row in zip(range(800, 1000, 4), rows, strict=True) if "id" in row)
    assert all("id" in row or "recursion" in row["reason"] for row in rows)
    assert rows[0]["deep"]


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ([], ["3 * 4 = 12.", "The answer is \\boxed{12}"]),
        (["--thinking", "only"], ["Is it 13?"]),
        (["--thinking", "all", "--no-closing"], ["Is it 13?", "3 * 4 = 12."]),
    ],
)
def test_what_is_scored_of_a_reasoning_model(
    checkpoint: Path, capsys: pytest.CaptureFixture[str], options: list[str], steps: list[str]
) -> None:
    thought = "Is it 13?\n</think>\n3 * 4 = 12.\nFinal Answer: 12"
    call = ["score", "--model", str(checkpoint), "--question", QUESTION, "--solution", thought, "--json", *options]
    assert main(call) == 0
    row = json.loads(capsys.readouterr().out)
    assert [step["text"] for step in row["steps"]] == steps
    assert row["answer"] == "12"


def test_gzipped_files_and_lists_are_read_as_by_other_commands(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = {"question": QUESTION, "steps": ["3 * 4 = 12."]}
    lines = jsonl(tmp_path / "lines.jsonl", good, 3)
    zipped, listed = tmp_path / "lines.jsonl.gz", tmp_path / "list.json"
    zipped.write_bytes(gzip.compress(Path(lines).read_bytes()))
    listed.write_text(json.dumps([good, 3], indent=1))
    found = []
    for file in (lines, str(zipped), str(listed)):
        assert main(["score", file, "--model", str(checkpoint), "--json"]) == 1
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        found.append(([row["mean"] for row in rows], rows[1]["reason"].partition(": ")))
    assert found[0] == found[1]
    assert found[2][0] == found[0][0]
    assert [reason[0] for _, reason in found] == ["Line 2", "Line 2", "Item 1 (from 0)"]
    listed.write_text(json.dumps([good])[:-1])
    assert main(["score", str(listed), "--model", "not loaded"]) == 2
    assert "list.json is not JSON" in capsys.readouterr().err


@contextmanager
def standard_input(content: bytes, place: Path) -> Iterator[TextIO]:
    """A file in the place of standard input, read in an encoding that is not ours."""
    place.write_bytes(content)
    with place.open(encoding="latin-1") as stream:
        yield stream


def test_standard_input(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = json.dumps({"question": QUESTION, "solution": SOLUTION}).encode()
    with standard_input(row + b"\n" + row, tmp_path / "in") as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        assert main(["score", "-", "--model", str(checkpoint)]) == 0
    out = capsys.readouterr().out
    assert out.count("no error found") + out.count("first error at step") == 2
    assert "line 2" in out
    call = ["score", "--question", QUESTION, "--solution", "-", "--model", str(checkpoint), "--json"]
    with standard_input(b"\xef\xbb\xbf" + "3 ≤ 4\r\n4 ≤ 5".encode(), tmp_path / "in") as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        assert main(call) == 0
    assert [step["text"] for step in json.loads(capsys.readouterr().out)["steps"]] == ["3 ≤ 4", "4 ≤ 5"]
    with standard_input(b"\xff", tmp_path / "in") as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        assert main(call) == 2
    assert "Standard input cannot be read as UTF-8" in capsys.readouterr().err


@contextmanager
def scoring(*arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes], IO[bytes]]]:
    """`surefoot score --json` in a process, with its input and output; killed in the end, or when it takes too long."""
    command = [sys.executable, "-m", "surefoot.cli", "score", "--json", "--quiet", *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=BUFFERED) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        watch = Timer(120, process.kill)
        watch.start()
        try:
            yield process, process.stdin, process.stdout
        finally:
            watch.cancel()
            process.kill()


def ends_quietly(process: subprocess.Popen[bytes]) -> bool:
    assert process.stderr is not None
    return process.wait() == 130 and process.stderr.read() == b""


@pytest.mark.usefixtures("default_sigint")
def test_results_come_while_the_pipe_is_open(checkpoint: Path) -> None:
    """And an interrupt then ends it as it ends any command."""
    row = json.dumps({"question": QUESTION, "solution": SOLUTION}).encode() + b"\n"
    with scoring("--model", str(checkpoint)) as (process, given, found):
        for content, status in ((row, "scored"), (b"not json\n", "unscored"), (row, "scored")):
            given.write(content)
            given.flush()
            assert json.loads(found.readline())["status"] == status
        process.send_signal(signal.SIGINT)
        assert ends_quietly(process)


@pytest.mark.usefixtures("default_sigint")
def test_an_interrupted_run_has_printed_what_it_scored(checkpoint: Path, tmp_path: Path) -> None:
    cheap = [{"question": f"What is {number} + 1?", "steps": ["It is more."]} for number in range(BATCH)]
    dear = [{"question": f"What is {number}?", "steps": [f"{number} is " * 150]} for number in range(BATCH)]
    file = jsonl(tmp_path / "in.jsonl", *cheap, *dear)
    with scoring(file, "--model", str(checkpoint)) as (process, _, found):
        assert all(json.loads(found.readline())["status"] == "scored" for _ in cheap)
        process.send_signal(signal.SIGINT)
        assert found.read() == b"", "the dear ones were not waited for"
        assert ends_quietly(process)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--question", "q"], "Give --question and --solution together"),
        (["--question", "q", "--solution", "s", "file"], "not both"),
        (["no-such-file.jsonl"], r"no-such-file.jsonl cannot be read"),
    ],
)
def test_wrong_calls(checkpoint: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", "--model", str(checkpoint), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_nothing_to_score_is_said_before_the_model_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with standard_input(b"\n\n", tmp_path / "in") as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        assert main(["score", "--model", "not loaded"]) == 2
    assert "no line to score" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("--version > /dev/full", "Reading or writing failed: [Errno 28] No space left on device"),
        ("models > /dev/full", "Reading or writing failed: [Errno 28] No space left on device"),
        ("models >&-", "Standard output is closed."),
        ("score <&-", "Standard input is closed."),
        ("score --question q --solution - <&-", "Standard input is closed."),
        ("score --question q --model 'no model' --solution s > /dev/full", "neither an existing folder nor a hub id"),
    ],
)
def test_what_cannot_be_read_or_written_is_a_wrong_call(command: str, message: str) -> None:
    call = f"{sys.executable} -m surefoot.cli {command}"
    done = subprocess.run(["bash", "-c", call], capture_output=True, text=True, check=False, env=BUFFERED)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_without_a_place_for_messages_results_stay_alone() -> None:
    call = f"{sys.executable} -m surefoot.cli score --model 'no model' --question q --solution s 2>&-"
    done = subprocess.run(["bash", "-c", call], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.parametrize("threshold", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("command", [["score"], ["eval", "processbench"], ["eval", "prmbench"]])
def test_a_threshold_is_finite(command: list[str], threshold: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, f"--threshold={threshold}"]) == 2
    assert "--threshold: give a finite number" in capsys.readouterr().err


@pytest.mark.parametrize("threshold", ["-0.1", "1.5"])
def test_a_threshold_lies_on_the_scale(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], threshold: str
) -> None:
    """On one line, with the flag, and before anything is scored."""
    row = {"problem": "p", "steps": ["a"], "label": 0, "scores": [0.2]}
    data = jsonl(tmp_path / "rows.jsonl", row | {"classification": "circular", "error_steps": [0]})
    wrong = f"--threshold {threshold} is outside the scale: the scores are on the scale 'probability', from 0 to 1."
    for command in (
        ["score", "--model", str(checkpoint), "--question", QUESTION, "--solution", SOLUTION],
        ["eval", "processbench", "--scores", "scores", "--data", data],
        ["eval", "prmbench", "--scores", "scores", "--data", data],
    ):
        assert main([*command, f"--threshold={threshold}"]) == 2
        shown = capsys.readouterr()
        assert (shown.out, shown.err) == ("", f"surefoot: {wrong}\n")


def test_a_line_that_cannot_be_read_costs_no_other(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = json.dumps({"question": QUESTION, "solution": SOLUTION}).encode()
    file = tmp_path / "lines.jsonl"
    file.write_bytes(b"\n".join([b"\xef\xbb\xbf" + good, b'{"question": "\xff"}', b"[" * 200_000, good]))
    assert main(["score", str(file), "--model", str(checkpoint), "--json"]) == 1
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["status"] for row in rows] == ["scored", "unscored", "unscored", "scored"]
    assert "can't decode" in rows[1]["reason"]
    assert "recursion" in rows[2]["reason"]


def test_the_output_is_utf8_whatever_the_locale(checkpoint: Path) -> None:
    command = [sys.executable, "-m", "surefoot.cli", "score", "--model", str(checkpoint), "--json"]
    environment = {**os.environ, "PYTHONIOENCODING": "cp1252"}
    ran = subprocess.run([*command, "--question", "≤", "--solution", "≤ 中"], env=environment, capture_output=True)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["steps"][0]["text"] == "≤ 中"


def test_the_threshold_reaches_the_json(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["score", "--model", str(checkpoint), "--question", QUESTION, "--solution", SOLUTION, "--json"]
    found = []
    for threshold in ("0.0", "1.0"):
        assert main([*call, "--threshold", threshold]) == 0
        found.append(json.loads(capsys.readouterr().out)["first_error"])
    assert found == [-1, 0]


def test_escape_codes_of_a_solution_do_not_reach_the_terminal(scorer: surefoot.Scorer) -> None:
    assert "\x1b" not in show(scorer.score(QUESTION, ["\x1b[2J\x07 gone"]))


def test_a_model_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", "--model", "no model", "--question", "q", "--solution", "s"]) == 2
    assert "neither an existing folder nor a hub id" in capsys.readouterr().err


def test_bars_marks_and_colour(scorer: surefoot.Scorer) -> None:
    result = scorer.score(CARD_QUESTION, CARD_STEPS)
    worst = min(score for score in result.step_scores if score is not None)
    plain = show(result, threshold=worst, width=80)
    assert plain.count("✗") == 1
    assert all(len(line) <= 80 for line in plain.splitlines()[:4])
    assert f"{worst:.3f}" in plain
    assert show(result, threshold=worst, width=80, colour=True).count("\x1b[31m") == 1
    assert "no error found" in show(result, threshold=0.0)


def test_what_was_not_scored_is_shown(checkpoint: Path) -> None:
    cut = load_local(checkpoint, max_tokens=340).score(CARD_QUESTION, "Preamble.\nStep 1: <extra_0>\nStep 2:")
    text = show(cut)
    assert "note: 9 characters are outside the steps" in text
    assert "note: Dropped empty steps: 1." in text
    assert "note: The solution contains '<extra_0>'" in text
    long = show(load_local(checkpoint, max_tokens=340).score(CARD_QUESTION, CARD_STEPS))
    assert "over_length" in long
    assert "mean none" in long
    assert "2 of 4 steps end past the limit" in long


def test_check_without_published_scores(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(checkpoint)]) == 0
    assert "loaded and run, not compared" in capsys.readouterr().out


def test_check_compares_with_the_card(checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A random model under the name of the real one does not pass."""
    folder = shutil.copytree(checkpoint, tmp_path / "Qwen2.5-Math-PRM-7B")
    assert main(["check", str(folder)]) == 1
    out = capsys.readouterr().out
    assert "DO NOT AGREE within 0.04" in out
    assert main(["check", str(checkpoint), "--as", "Qwen/Qwen2.5-Math-PRM-72B"]) == 1
    assert "DO NOT AGREE within 0.27" in capsys.readouterr().out
    assert "0.1904" in out


def test_check_of_a_broken_model(checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = shutil.copytree(checkpoint, tmp_path / "broken")
    (folder / "model.safetensors").write_bytes(b"nothing")
    assert main(["check", str(folder)]) == 2
    assert "not a complete safetensors file" in capsys.readouterr().err


def test_a_reader_that_closes_the_pipe_is_an_error_in_output(checkpoint: Path, tmp_path: Path) -> None:
    file = jsonl(tmp_path / "in.jsonl", *[{"question": QUESTION, "solution": SOLUTION}] * 300)
    command = f"{sys.executable} -m surefoot.cli score {file} --model {checkpoint} --json --quiet | head -n 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr == "surefoot: The reader of the output closed it before everything was written.\n"
    assert json.loads(done.stdout)["status"] == "scored"


def test_the_installed_command() -> None:
    command = Path(sys.executable).with_name("surefoot")
    done = subprocess.run([command, "--version"], capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout.strip() == f"surefoot {surefoot.__version__}"
