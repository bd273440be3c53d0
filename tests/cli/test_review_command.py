"""`surefoot label --review`: the page as a process of its own, the export, and wrong calls."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from helpers.bulk import write_jsonl
from helpers.review_folder import solutions, write_labels
from surefoot.cli.main import main
from surefoot.core.labels import LabelledSolution
from surefoot.labelling.review.corrections import Change, Corrections
from surefoot.labelling.review.labels import key_of
from surefoot.train.readers import read_examples


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_labels(tmp_path / "labels")


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGINT")
@pytest.mark.parametrize("browser", [False, True])
def test_the_page_until_ctrl_c(folder: Path, tmp_path: Path, browser: bool, default_sigint: None) -> None:
    opened = tmp_path / "opened"
    program = tmp_path / "browser"
    program.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    program.chmod(0o755)
    command = [sys.executable, "-m", "surefoot.cli", "label", "--review", str(folder)]
    process = subprocess.Popen(
        command + ([] if browser else ["--no-browser"]),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"BROWSER": f"{program} %s", "OMP_NUM_THREADS": "1"},
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.fullmatch(r"surefoot: Review 4 solutions at (http://127\.0\.0\.1:\d+/) \(Ctrl\+C .*\)\.\n", line)
        assert found, line
        url = found[1]
        assert "<title>Surefoot" in httpx.get(url).text
        change = {"step": 0, "verdict": "right", "before": None}
        saved = {"hash": key_of(solutions()[0]).hash, "changes": [change]}
        assert httpx.post(f"{url}api/solutions/0", json=saved).status_code == 200
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, err) == (0, "")
    assert "labels: 1 confirmed, 0 changed" in out
    assert opened.exists() == browser
    if browser:
        assert opened.read_text().strip() == url


def test_the_export(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Corrections(folder).save(key_of(solutions()[0]), [Change(1, "wrong", None)])
    out = tmp_path / "out.jsonl"
    assert main(["label", "--review", str(folder), "--export", str(out)]) == 0
    told = capsys.readouterr().out
    assert "labels: 0 confirmed, 1 changed, 0 added, 0 unsure" in told
    assert "out.jsonl: 3 rows" in told
    assert [example.targets for example in read_examples(out)] == [(1.0, 0.0, None), (1.0, 0.0, None), (None, 1.0)]
    assert main(["label", f"--review={folder}", "--export", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["rows"], found["changed"], found["agreement"]) == (3, 1, 0.0)
    assert sorted(path.name for path in folder.iterdir()) == [".corrections.lock", "corrections.jsonl", "labels.jsonl"]


def test_the_labels_of_a_job_before_and_after_it_continues(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    right, wrong = "3 * 4 = 12.\n\nThe answer is \\boxed{12}.", "3 * 4 = 13.\n\nThe answer is \\boxed{13}."
    rollouts = [{"question": "What is 3 * 4?", "solution": text} for text in (right, wrong)]
    write_jsonl(tmp_path / "rollouts.jsonl", rollouts)
    row = {"question": "What is 3 * 4?", "answer": "12", "responses": [right, wrong]}
    source, out, export = write_jsonl(tmp_path / "q.jsonl", [row]), tmp_path / "labels", tmp_path / "out.jsonl"
    job = ["label", str(source), "--completions", "responses", "--generator", str(tmp_path / "rollouts.jsonl")]
    job += ["--out", str(out), "-k", "2", "--quiet"]
    assert main(job) == 0
    solution = LabelledSolution.from_dict(json.loads((out / "labels.jsonl").read_text().splitlines()[0]))
    Corrections(out).save(key_of(solution), [Change(1, "wrong", None)])
    for more in ([], ["--fresh"]):  # the same texts are labelled again, and the verdict still applies
        assert main([*job, *more]) == 0
        capsys.readouterr()
        assert main(["label", "--review", str(out), "--export", str(export), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["changed"] == 1
        assert next(iter(read_examples(export))).targets == (1.0, 0.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["label", "--review"], "Option '--review' requires an argument."),
        (["label", "q.jsonl", "--review", "x"], "QUESTIONS is for labelling and cannot be combined with --review."),
        (["label", "--review", "x", "--generator", "g"], "--generator is for labelling"),
        (["label", "--review", "x", "--out", "o"], "--out is for labelling"),
        (["label", "--review", "x", "--judge", "mini"], "--judge is for labelling"),
        (["label", "--review", "x", "-k", "8"], "--k is for labelling"),
        (["label", "--review", "x", "--port", "70000"], "--port: Input should be less than or equal to 65535."),
        (["label", "--review", "x", "--export", "y", "--port", "0"], "--port is for the page"),
        (["label", "--review", "x", "--export", "y", "--model", "mini"], "--model is for the page"),
        (["label", "--review", "x", "--json"], "--json is for the report of --export"),
        (["label", "--review", "nowhere", "--no-browser"], "nowhere has no labels.jsonl"),
        (["label", "--review", "nowhere", "--export", "y"], "nowhere has no labels.jsonl"),
        (["label", "q.jsonl", "--generator", "g", "--out", "o", "--port", "1"], "--port is for a review. Add --review"),
        (["label", "q.jsonl", "--generator", "g", "--out", "o", "--export", "x"], "--export is for a review."),
        (["label"], "Missing argument 'QUESTIONS'. See surefoot label --help."),
        (["label", "q.jsonl", "--out", "o"], "Missing option '--generator'."),
        (["label", "q.jsonl", "--generator", "g"], "Missing option '--out'."),
    ],
)
def test_a_wrong_call_is_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    found = capsys.readouterr()
    assert message in found.err
    assert len(found.err.splitlines()) == 1
    assert found.out == ""


def test_a_port_in_use(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["label", "--review", str(folder), "--no-browser", "--port", port]) == 2
    assert f"Cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err


def test_labels_without_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_labels(tmp_path / "labels", solutions()[4:])
    assert main(["label", "--review", str(folder), "--no-browser"]) == 2
    assert "nothing to review" in capsys.readouterr().err
