"""`surefoot train` as a user runs it."""

from __future__ import annotations

import json
import re
import runpy
from dataclasses import replace
from pathlib import Path

import pytest

from surefoot.cli.main import main
from surefoot.cli.train import parse_source, read_data
from surefoot.cli.train_options import DataOptions
from surefoot.scoring.local import load_local
from surefoot.testing import write_base
from surefoot.train import trackers
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
    (data / "train.toml").write_text(
        '[data]\nvalidation_from = ["labelled"]\nwrong_share = 0.5\n[model]\nlayers = 1\n'
        '[optimizer]\nprecision = "float32"\nsteps = 9\n'
        "[run]\npause_steps = 3\n"
    )
    arguments = [
        "train", "--config", str(data / "train.toml"), "--base", str(data / "base"), "--out", str(data / "out"),
        "--data", f"{data / 'labelled.jsonl'}=2", str(data / "worked.jsonl"), "--steps", "4",
        "--held-out", str(data / "held_out.jsonl"), "--validation", "0.2", "--quiet", "--device", "cpu",
        "--log-to", "tensorboard",
    ]  # fmt: skip
    assert main([*arguments, "--minutes", "0"]) == 1
    assert "Paused at step 0 of 4" in capsys.readouterr().out
    assert main(arguments) == 1
    assert "Paused at step 3 of 4" in capsys.readouterr().out
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "Trained 4 steps. Load it with surefoot.load(" in out
    assert "best_f1" in out
    assert "skipped 10 examples that share a question with the held-out files." in caplog.text
    assert load_local(data / "out").score("q", ["a"]).status == "scored"
    assert len([row for row in read_log(data / "out" / "log.jsonl") if "rate" in row]) == 4
    assert list((data / "out" / "tensorboard").glob("events.out.tfevents.*"))
    assert json.loads((data / "out" / "config.json").read_text())["num_hidden_layers"] == 1


def test_the_recipe_of_mini_runs(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three runs and their mean, with the options of examples/train-mini, but with little data and few steps."""
    recipe = Path(__file__).parents[2] / "examples" / "train-mini"
    monkeypatch.chdir(data)
    (data / "base").rename(data / "SmolLM2-135M")
    (data / "gsm8k").mkdir()
    (data / "worked.jsonl").rename(data / "gsm8k" / "train.jsonl")
    (data / "gsm8k" / "test.jsonl").write_text(json.dumps({"question": "2 + 2?", "answer": "2+2 = 4.\n#### 4"}) + "\n")
    rows = (data / "labelled.jsonl").read_text()
    teacher = {"question": "question 50", "steps": ["a yes", "b no"], "qwen_prm": [0.9, 0.1], "ground_truth": "1"}
    for name in ("mr-gsm8k", "stepverify", "prm800k_val"):
        (data / f"{name}.jsonl").write_text(rows)
    for name in ("gsm8k_bon32_with_prm_scores", "math500_bon_with_qwen_prm"):
        (data / f"{name}.jsonl").write_text(json.dumps(teacher) + "\n")
    (data / "gsm8k_dev.json").write_text((data / "held_out.jsonl").read_text())
    for run in ("first", "second", "third", "mean"):
        text = (recipe / f"{run}.toml").read_text()
        # The base has 2 layers and 4 solutions of other models are no part of this data.
        text = text.replace("layers = 16", "layers = 2").replace('"gsm8k/example_model_solutions.jsonl=1.5", ', "")
        text = text.replace('"gsm8k/example_model_solutions.jsonl=2", ', "")
        text = re.sub(r"freeze_layers = \d", "freeze_layers = 1", text)
        text = re.sub(r"last_step = [1-9]\d*", "last_step = 2", text)
        if run == "second":
            text += "\n[run]\nlast_step = 2\n"
        (data / f"{run}.toml").write_text(text)
        assert main(["train", "--config", f"{run}.toml", "--quiet", "--device", "cpu"]) == 0
    script = (recipe / "train.sh").read_text()
    assert "for run in first second third mean" in script
    runpy.run_path(str(recipe / "set_aside.py"))["main"]("set_aside.jsonl", "mr-gsm8k.jsonl")
    aside = [json.loads(line) for line in Path("set_aside.jsonl").read_text().splitlines()]
    assert 0 < len(aside) < len(rows.splitlines())
    assert {(row["question"], row["label"]) for row in aside} <= {
        (row["question"], row["label"]) for row in map(json.loads, rows.splitlines())
    }
    assert load_local(data / "mini").score("q", ["a"]).status == "scored"


def test_steps_are_joined_in_the_training_data_but_not_in_what_is_measured(data: Path) -> None:
    files = DataOptions(
        data=[str(data / "labelled.jsonl")], held_out=[str(data / "held_out.jsonl")], validation=0.2, join=1.0
    )
    examples, validation, held_out = read_data(files, 0, [data / "labelled.jsonl"])
    assert {len(example.steps) for example in (*examples, *validation)} == {1}
    assert {len(example.steps) for example in held_out} == {2}


def test_only_a_part_of_the_questions_set_aside_is_validated_on(data: Path) -> None:
    files = DataOptions(data=[str(data / "labelled.jsonl")], validation=0.5)
    examples, whole, _ = read_data(files, 0, [data / "labelled.jsonl"])
    same, part, _ = read_data(replace(files, validation_most=2), 0, [data / "labelled.jsonl"])
    assert same == examples
    assert len(part) == 2 < len(whole)
    assert set(part) < set(whole)


def test_a_folder_is_one_source(data: Path) -> None:
    (data / "files").mkdir()
    for name in ("labelled", "worked"):
        (data / f"{name}.jsonl").rename(data / "files" / f"{name}.jsonl")
    for share in ("false", "true"):
        (data / "train.toml").write_text(f"[data]\nshare = {share}\n")
        arguments = ["train", "--config", str(data / "train.toml"), "--base", str(data / "base"), "--steps", "1"]
        arguments += ["--out", str(data / f"out-{share}"), "--data", f"{data / 'files'}=2", "--quiet"]
        assert main([*arguments, "--device", "cpu"]) == 0


def test_mistakes_are_named(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labelled = str(data / "labelled.jsonl")
    common = ["train", "--base", str(data / "base"), "--out", str(data / "out"), "--quiet", "--data", labelled]
    for options, message in (
        (["--data", str(data / "none.jsonl")], "none.jsonl' is not a file"),
        (["--data", f"{labelled}=0"], f"--data {labelled}=0: the weight must be above 0"),
        (["--data", f"{labelled}=nan"], "the weight must be above 0 and finite"),
        (["--data", f"{labelled}=inf"], "the weight must be above 0 and finite"),
        (["--data", labelled, labelled], "Several files of --data are called labelled"),
        (["--learning-rate", "-1"], "--learning-rate -1.0 must be above 0"),
        (["--validation", "0.00001"], "--validation 1e-05 sets no example aside"),
        (["--validation", "1"], "--validation 1.0 must be at least 0 and below 1"),
        (["--minutes", "nan"], "--minutes nan must be at least 0"),
        (["--epochs", "inf"], "--epochs inf must be above 0 and finite"),
        (["--seed", str(2**64)], "does not fit into 64 bits"),
        (["--log-to", "mlflow"], "--log-to 'mlflow' is not supported. Choose from: tensorboard, wandb, trackio."),
        (["--out", labelled], f"File exists: '{labelled}'"),
    ):
        assert main([*common, *options]) == 2
        assert message in capsys.readouterr().err
    assert not (data / "out").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[data]\nwrong_share = 50", "[data] wrong_share = 50.0 must be between 0 and 1"),
        ('[data]\nvalidation = 0.1\nvalidation_from = ["labelled.jsonl"]', "the names in --data are labelled"),
        ('[data]\nvalidation_from = ["labelled"]', "[data] validation_from needs --validation"),
        ("[data]\nvalidation_most = 10", "[data] validation_most needs --validation"),
        ("[data]\nshare = true\nwrong_share = 0.5", "[data] share already balances correct and incorrect"),
        ("[data]\nshare = true\nwrong_share = 0.5", "Omit [data] wrong_share."),
        ("[model]\nlayers = 99", "[model] layers = 99, but the base has 2."),
        ("[optimizer]\nlearning_rate = -1", "[optimizer] learning_rate = -1.0 must be above 0"),
        ("[optimizer]\nhead_learning_rate = inf", "[optimizer] head_learning_rate = inf must be above 0 and finite"),
        ("[optimizer]\nweight_decay = nan", "[optimizer] weight_decay = nan must be at least 0 and finite"),
        ("[optimizer]\nclip = 0", "[optimizer] clip = 0.0 must be above 0"),
        ("[batches]\nmultiple = 0", "[batches] multiple = 0 must be at least 1"),
        ("[batches]\nbatch_tokens = 0", "[batches] batch_tokens = 0: must be at least 1"),
        ("[run]\nsave_steps = 0", "[run] save_steps = 0 must be at least 1"),
        ("[run]\nevaluate_steps = 0", "[run] evaluate_steps = 0 must be at least 1"),
    ],
)
def test_mistakes_in_the_file_are_named(
    text: str, message: str, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (data / "train.toml").write_text(text)
    arguments = ["train", "--config", str(data / "train.toml"), "--base", str(data / "base"), "--quiet"]
    assert main([*arguments, "--out", str(data / "out"), "--data", str(data / "labelled.jsonl")]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"surefoot: {data / 'train.toml'}: ")
    assert message in error
    assert not (data / "out").exists()


def test_a_flag_is_named_if_it_overrides_the_file(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "train.toml").write_text("[optimizer]\nlearning_rate = 0.001\n")
    arguments = ["train", "--config", str(data / "train.toml"), "--base", "b", "--out", "o", "--data", "d"]
    assert main([*arguments, "--learning-rate", "0"]) == 2
    assert capsys.readouterr().err == "surefoot: --learning-rate 0.0 must be above 0 and finite.\n"


def test_a_missing_tracker_is_named_before_anything_is_read(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trackers, "find_spec", lambda name: None)
    assert main(["train", "--base", "none", "--data", "none", "--out", "none", "--log-to", "wandb"]) == 2
    assert capsys.readouterr().err == "surefoot: --log-to wandb needs the package wandb. Run: pip install wandb\n"


def test_weights_of_files() -> None:
    assert parse_source("a/b.jsonl") == (Path("a/b.jsonl"), 1.0)
    assert parse_source("a/b.jsonl=2.5") == (Path("a/b.jsonl"), 2.5)
    assert parse_source("a=b.jsonl") == (Path("a=b.jsonl"), 1.0)
