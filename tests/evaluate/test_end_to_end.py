"""The benchmarks with a real, small model: from Python and from the command line."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pytest

import surefoot
from surefoot import evaluate
from surefoot.cli.main import main
from surefoot.core.prompt import Prompt
from surefoot.engine.results import PackResults
from surefoot.engine.runner import Runner
from surefoot.errors import InputError
from surefoot.scoring.local import load_local
from surefoot.scoring.score_cache import ScoreCache

WORDS = ("We add 2 and 3.", "That gives 5.", "So we have 6 in all.", "Hence x = 7.", "The answer is \\boxed{5}.")


def bench_rows(count: int, split: str = "gsm8k") -> list[dict[str, Any]]:
    return [
        {
            "id": f"{split}-{number}",
            "generator": "GH"[number % 2],
            "problem": f"Problem {number} of {split}: what is {number} + 5?",
            "steps": [WORDS[(number + at) % 5] for at in range(2 + number % 4)],
            "final_answer_correct": number % 3 == 0,
            "label": -1 if number % 2 else number % 3 % 2,
        }
        for number in range(count)
    ]


def jsonl(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    jsonl(tmp_path / "data" / "gsm8k.jsonl", bench_rows(20))
    jsonl(tmp_path / "data" / "math.jsonl", bench_rows(12, "math"))
    return tmp_path / "data"


@pytest.fixture(autouse=True)
def cache_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SUREFOOT_CACHE", str(tmp_path / "cache" / "scores.sqlite"))
    return tmp_path / "cache" / "scores.sqlite"


class Counted:
    """The real forward pass, and how many prompts it was asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.prompts = 0
        real = Runner.packs

        def packs(runner: Runner, prompts: Sequence[Prompt]) -> PackResults:
            self.prompts += len(prompts)
            return real(runner, prompts)

        monkeypatch.setattr(Runner, "packs", packs)


def test_processbench_is_scoring_and_counting(scorer: surefoot.Scorer, data: Path) -> None:
    rows = evaluate.read_processbench(data)
    scored = [scorer.score(row.problem, list(row.steps)) for row in rows]
    threshold = median(each.min for each in scored if each.min is not None)
    verdicts = [each.first_error(threshold) for each in scored]
    result = evaluate.processbench(scorer, rows, threshold=threshold)
    assert [item.predicted for item in result.judgements] == verdicts
    for name in ("gsm8k", "math"):
        pairs = [(row.label, verdict) for row, verdict in zip(rows, verdicts, strict=True) if row.split == name]
        right = [label == verdict for label, verdict in pairs if label != -1]
        alone = [verdict == -1 for label, verdict in pairs if label == -1]
        split = result.split(name)
        assert (split.error.value, split.correct.value) == (sum(right) / len(right), sum(alone) / len(alone))
    assert result.model == scorer.name
    assert 0 < sum(verdict == -1 for verdict in verdicts if verdict is not None) < len(verdicts)


def test_the_model_sees_prmbench_steps_without_prefixes(scorer: surefoot.Scorer) -> None:
    row = {
        "idx": "a",
        "classification": "circular",
        "modified_question": "What is 2 + 3?",
        "modified_process": ["1. We add 2 and 3.", " ", "Step 3. That gives 6.", "6."],
        "error_steps": [3],
    }
    ((_, scored),) = evaluate.prmbench(scorer, [row]).items
    alone = scorer.score("What is 2 + 3?", ["We add 2 and 3.", "That gives 6.", "6."]).step_scores
    assert [scored.scores[at] for at in (0, 2, 3)] == pytest.approx(alone, abs=1e-5)
    assert scored.scores[1] is None


def test_best_of_n_picks_by_the_models_scores(scorer: surefoot.Scorer) -> None:
    steps = [[WORDS[at], f"The answer is \\boxed{{{at}}}."] for at in range(4)]
    rows: list[dict[str, Any]] = [{"problem": "What?", "steps": each, "reference": "2"} for each in steps]
    rows.append({"problem": "What?", "solution": "\n\n".join(steps[2]), "reference": "2"})
    result = evaluate.best_of_n(scorer, rows, ns=[5])
    products = [scorer.score("What?", each).product for each in steps]
    right = max(range(4), key=lambda at: products[at] or 0.0) == 2
    assert result.best["product"][5].value == float(right)
    assert result.oracle[5].value == 1.0


def test_over_length_is_unscored_not_wrong(checkpoint: Path) -> None:
    short = load_local(checkpoint, max_tokens=60)
    rows = [*bench_rows(4), {**bench_rows(1)[0], "id": "long", "steps": ["word " * 80, "b"], "label": 0}]
    result = evaluate.processbench(short, rows)
    assert result.unscored == 1
    assert result.splits[0].error.total + result.splits[0].correct.total == 4
    assert "The first is long of all: 2 of 2 steps end past the limit of 60 tokens." in result.notes[0]


def test_importing_does_not_import_torch() -> None:
    program = "import sys, surefoot, surefoot.cli.main, surefoot.scoring.score_cache; surefoot.evaluate.processbench; "
    program += "assert callable(surefoot.evaluate.processbench); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


# --- the command line ----------------------------------------------------------------------------------------------


def test_tables_and_json_say_the_same(checkpoint: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["eval", "processbench", "--model", str(checkpoint), "--data", str(data)]
    assert main(call) == 0
    text = capsys.readouterr().out
    assert main([*call, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    for split in found["splits"]:
        line = next(line for line in text.splitlines() if line.startswith(split["name"]))
        assert f"{100 * split['f1']:.1f} [" in line
    assert f"{100 * found['f1']:.1f} [" in next(line for line in text.splitlines() if line.startswith("average"))
    assert "\x1b" not in text


def test_the_second_run_computes_nothing(
    checkpoint: Path, data: Path, cache_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    counted = Counted(monkeypatch)
    call = ["eval", "processbench", "--model", str(checkpoint), "--data", str(data), "--json"]
    assert main([*call, "--split", "gsm8k"]) == 0
    assert counted.prompts == 20
    assert main(call) == 0
    assert counted.prompts == 32
    first = capsys.readouterr().out.splitlines()[1]
    assert main(call) == 0
    assert main([*call, "--tune-on", "gsm8k"]) == 0
    assert counted.prompts == 32
    assert capsys.readouterr().out.splitlines()[0] == first
    with ScoreCache(cache_file) as cache:
        assert cache.size == 32
    assert main([*call, "--no-cache"]) == 0
    assert main([*call, "--cache", str(cache_file.with_name("other"))]) == 0
    assert counted.prompts == 96


def test_an_unscored_solution_is_exit_code_one(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = jsonl(tmp_path / "x.jsonl", [*bench_rows(4), {**bench_rows(1)[0], "steps": ["word " * 80], "label": 0}])
    call = ["eval", "processbench", "--model", str(checkpoint), "--data", str(file), "--max-tokens", "60"]
    assert main(call) == 1
    assert "note: 1 of 5 solutions have no prediction" in capsys.readouterr().out


def test_prmbench_from_the_command_line(checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {
            "idx": f"{name}_{number}",
            "classification": name,
            "original_question": "What?",
            "modified_question": "What?",
            "original_process": ["1. a"],
            "modified_process": [f"{at + 1}. {WORDS[(at + number) % 5]}" for at in range(4)],
            "error_steps": [] if name == "multi_solutions" else [1 + number % 4],
        }
        for name in ("redundency", "circular", "multi_solutions")
        for number in range(4)
    ]
    file = jsonl(tmp_path / "x.jsonl", rows)
    assert (
        main(
            [
                "eval",
                "prmbench",
                "--model",
                str(checkpoint),
                "--data",
                str(file),
                "--json",
                "--as",
                "GAIR/ReasonEval-7B",
            ]
        )
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert found["originals"]["solutions"] == 4
    assert found["overall"]["solutions"] == 12
    assert (
        sum(found["overall"][cell] for cell in ("true_positive", "false_positive", "true_negative", "false_negative"))
        == 48
    )
    assert found["published"]["overall"] == 60.1
    assert main(["eval", "prmbench", "--model", str(checkpoint), "--data", str(file)]) == 0
    assert "multi_solutions" in capsys.readouterr().out


def test_best_of_n_from_ready_made_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"problem_id": "1", "question": "q", "steps": ["so \\boxed{4}"], "ground_truth": "4", "mine": [0.9]},
        {"problem_id": "1", "question": "q", "steps": ["so \\boxed{5}"], "ground_truth": "4", "mine": [0.1]},
    ]
    file = jsonl(tmp_path / "x.jsonl", rows)
    assert main(["eval", "best-of-n", "--data", str(file), "--scores", "mine", "--json", "--n", "1,2"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["model"] == "mine"
    assert [found["best"]["min"][n]["value"] for n in ("1", "2")] == [0.5, 1.0]
    rows[1]["mine"] = [None]
    assert main(["eval", "best-of-n", "--data", str(jsonl(file, rows)), "--scores", "mine"]) == 1
    assert "1 solutions have an unscored step" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Give either --model, or --scores"),
        (["--model", "m", "--scores", "s"], "Give either --model, or --scores"),
        (["--model", "m", "--cache", "c", "--no-cache"], "not both"),
        (
            ["--model", "m", "--threshold", "0.4", "--tune-on", "gsm8k"],
            "either --threshold or --tune-on, not both.",
        ),
        (["--model", "m", "--split", "omnimath"], "has no split omnimath"),
        (["--model", "m", "--tune-on", "omnimath"], "no row belongs to that split"),
        (["--scores", "nothing"], "line 1: expected `nothing` as a list of numbers"),
        (["--model", "no model"], "neither an existing folder nor a hub id"),
        (["--model", "no model", "--draws", "-1"], "--draws -1 is negative"),
        (["--model", "no model", "--seed", "-1"], "--seed -1 is negative"),
        (["--model", "no model", "--cache", "."], "The score cache . is a folder"),
    ],
)
def test_wrong_calls(data: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "processbench", "--data", str(data), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_wrong_numbers_and_places_are_refused_before_the_model(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = jsonl(tmp_path / "x.jsonl", [{"question": "q", "steps": ["a"], "ground_truth": "4"}])
    assert main(["eval", "best-of-n", "--data", str(rows), "--model", "no model", "--n", "0,1"]) == 2
    assert "--n [0, 1] is invalid" in capsys.readouterr().err
    call = ["calibrate", "--data", str(data), "--model", "no model"]
    assert main([*call, "--folds", "1"]) == 2
    assert "--folds 1 leaves nothing" in capsys.readouterr().err
    assert main([*call, "--out", str(tmp_path / "no" / "c.json")]) == 2
    assert "The calibration cannot be written to" in capsys.readouterr().err
    assert main([*call, "--out", str(tmp_path)]) == 2
    assert "is a folder. Name a file in it" in capsys.readouterr().err


def test_rollouts_that_do_not_fit_are_refused_before_scoring(
    scorer: surefoot.Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(monkeypatch)
    rows = [{"question": "q", "steps": ["a"], "ground_truth": answer} for answer in ("4", "5")]
    with pytest.raises(InputError, match="have different reference answers"):
        evaluate.best_of_n(scorer, rows)
    assert counted.prompts == 0


def test_a_reader_that_goes_away_takes_no_report_with_it(tmp_path: Path) -> None:
    scored = [row | {"mine": [0.5] * len(row["steps"])} for row in bench_rows(4)]
    file = jsonl(tmp_path / "x.jsonl", scored)
    call = ["eval", "processbench", "--data", str(file), "--scores", "mine", "--report", str(tmp_path / "x.html")]
    reader, writer = os.pipe()
    os.close(reader)
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    try:
        run = subprocess.run([sys.executable, "-m", "surefoot.cli", *call], stdout=writer, env=environment, check=False)
    finally:
        os.close(writer)
    assert run.returncode == 2, "the results on standard output are lost"
    assert (tmp_path / "x.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_damaged_cache_is_a_wrong_call(
    checkpoint: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad"
    bad.write_bytes(b"no database at all" * 99)
    call = ["eval", "processbench", "--model", str(checkpoint), "--data", str(data), "--cache", str(bad)]
    assert main(call) == 2
    assert "is damaged or not a score cache" in capsys.readouterr().err


def test_a_killed_evaluation_resumes(
    checkpoint: Path,
    tmp_path: Path,
    cache_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A real process, killed as soon as something is written; the next run computes only the rest."""
    count = 500
    call = [
        "eval",
        "processbench",
        "--model",
        str(checkpoint),
        "--data",
        str(jsonl(tmp_path / "x.jsonl", bench_rows(count))),
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "surefoot.cli", *call], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    end = time.monotonic() + 120
    while entries(cache_file) == 0:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < end
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert out == b""
    kept = entries(cache_file)
    assert 0 < kept < count
    counted = Counted(monkeypatch)
    assert main([*call, "--json"]) == 0
    assert counted.prompts == count - kept
    resumed = json.loads(capsys.readouterr().out)
    assert main([*call, "--json", "--no-cache"]) == 0
    assert json.loads(capsys.readouterr().out)["splits"] == resumed["splits"]


def entries(file: Path) -> int:
    if not file.exists():
        return 0
    connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
    try:
        (count,) = connection.execute("SELECT count(*) FROM scores").fetchone()
        return int(count)
    except sqlite3.OperationalError:
        return 0
    finally:
        connection.close()
