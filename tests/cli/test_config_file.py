"""The configuration file of `surefoot train`: what is read, what is printed, and what is wrong with a file."""

from __future__ import annotations

import re
import sys
from dataclasses import MISSING
from pathlib import Path
from typing import Any, get_origin

import pytest

from surefoot.cli.config_file import Entry, _convert, to_toml
from surefoot.cli.main import load_command, main
from surefoot.cli.train_options import SCHEMA
from surefoot.errors import OptionError
from surefoot.testing import write_base

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


ROOT = Path(__file__).parent.parent.parent


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["train", "--print-config", *arguments]) == 0
    return capsys.readouterr().out


def another_value(entry: Entry) -> Any:
    """A value that is not the default."""
    if get_origin(entry.type) is list:
        return [entry.choices[0]] if entry.choices else ['a "b"\\c.jsonl=2', "é\x7f\n"]
    if entry.choices:
        return next(choice for choice in entry.choices if choice != entry.default)
    return {str: "folder", int: 7, float: 1e-07, bool: True}[entry.type]


def test_the_printed_file_has_every_default(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = printed(capsys)
    tables = tomllib.loads(text)
    assert list(tables) == ["data", "model", "optimizer", "batches", "run", "output"]
    found = {name: value for table in tables.values() for name, value in table.items()}
    given = {name: entry.default for name, entry in SCHEMA.entries.items() if entry.default not in (None, MISSING)}
    assert found == given
    assert (found["learning_rate"], found["decay"], found["batch_tokens"], found["share"]) == (
        1e-4,
        "cosine",
        4096,
        False,
    )
    lines = text.splitlines()
    for name, entry in SCHEMA.entries.items():
        (at,) = [at for at, line in enumerate(lines) if line.removeprefix("# ").startswith(f"{name} = ")]
        assert lines[at - 1].startswith("# ")
        assert lines[at].startswith("# ") == (entry.default in (None, MISSING))
    (tmp_path / "train.toml").write_text(text, encoding="utf-8")
    assert SCHEMA.read(tmp_path / "train.toml") == given


@pytest.mark.parametrize("name", SCHEMA.entries)
def test_what_is_printed_reads_back_as_the_same(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry, first, second = SCHEMA.entries[name], tmp_path / "first.toml", tmp_path / "second.toml"
    value = another_value(entry)
    assert value != entry.default
    first.write_text(f"[{entry.table}]\n{name} = {to_toml(value)}\n", encoding="utf-8")
    assert tomllib.loads(first.read_text(encoding="utf-8")) == {entry.table: {name: value}}
    second.write_text(printed(capsys, "--config", str(first)), encoding="utf-8")
    required = {"data": ["d"], "base": "b", "out": "o"}
    for table in SCHEMA.tables:
        before, after = (SCHEMA.build(table, required | SCHEMA.read(file)) for file in (first, second))
        assert before == after
        if table == entry.table:
            assert getattr(after, name) == value
            assert type(getattr(after, name)) is type(value)


def test_an_example_of_every_unset_key_can_be_uncommented(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys)
    for name, entry in SCHEMA.entries.items():
        if entry.default in (None, MISSING) and entry.type not in (int, float):
            (line,) = [line for line in text.splitlines() if line.startswith(f"# {name} = ")]
            value = tomllib.loads(line.removeprefix("# "))[name]
            assert type(value) is (list if get_origin(entry.type) is list else str)


def test_flags_override_the_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "train.toml"
    file.write_text(
        '[data]\ndata = ["a"]\n[optimizer]\nseed = 3\nsteps = 5\nlearning_rate = 1\n[run]\nlog_to = ["wandb"]\n'
    )
    text = printed(capsys, "--config", str(file), "--seed", "4", "--data", "b", "c=2", "--log-to", "trackio")
    tables = tomllib.loads(text)
    assert tables["data"]["data"] == ["b", "c=2"]
    assert {name: tables["optimizer"].get(name) for name in ("seed", "steps", "learning_rate")} == {
        "seed": 4, "steps": 5, "learning_rate": 1.0,
    }  # fmt: skip
    assert tables["run"]["log_to"] == ["trackio"]
    epochs = tomllib.loads(printed(capsys, "--config", str(file), "--epochs", "2"))["optimizer"]
    assert (epochs["epochs"], "steps" in epochs) == (2.0, False), "steps would hide the flag"


def test_about_a_dozen_flags_remain() -> None:
    flags = {param.name for param in load_command("train").params} - {"config", "print_config", "quiet", "verbose"}
    assert flags == {name for name, entry in SCHEMA.entries.items() if entry.key.flag}
    assert len(flags) == 12


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[data]\nwrong_shar = 0.5", "[data] has no key wrong_shar. Did you mean wrong_share? Keys: data, held_out,"),
        ("[data]\nzzz = 0.5", "[data] has no key zzz. Keys: data, held_out, keep, validation,"),
        ("[data]\nlearning_rate = 1", "[data] has no key learning_rate. It belongs in [optimizer]."),
        ("[optimiser]\n", "there is no table [optimiser]. Did you mean optimizer? Tables: data, model, optimizer,"),
        ("base = 'x'", "base is not in a table. It belongs in [model]."),
        ("bass = 'x'", "bass is not in a table. Tables: data, model, optimizer,"),
        ("[model]\nbase = 3", "[model] base = 3: expected a text in quotes."),
        ("[model]\nlayers = 1.5", "[model] layers = 1.5: expected a whole number."),
        ("[model]\nlayers = true", "[model] layers = true: expected a whole number."),
        ("[optimizer]\nepochs = '1'", '[optimizer] epochs = "1": expected a number.'),
        ("[optimizer]\nepochs = false", "[optimizer] epochs = false: expected a number."),
        ("[data]\nshare = 1", "[data] share = 1: expected true or false."),
        ("[data]\ndata = 'a'", '[data] data = "a": expected a list, in brackets.'),
        ("[data]\ndata = ['a', 2]", '[data] data = ["a", 2]: expected a text in quotes.'),
        ("[model]\nlayers = {a = 1}", "[model] layers = {'a': 1}: expected a whole number."),
        ("[optimizer]\ndecay = 'cosin'", 'decay = "cosin" is not supported. Did you mean cosine? Choose one of: '),
        ("[optimizer]\ndecay = 2", "decay = 2 is not supported. Choose one of: cosine, linear, constant."),
        ("[run]\nlog_to = ['mlflow']", "is not supported. Choose one of: tensorboard, wandb, trackio."),
        ("[run]\nthreads = 0", "[run] threads = 0: must be at least 1."),
        ("[data\n", "is not a TOML file: "),
        ("[data]\nvariants = 1\nvariants = 2\n", "is not a TOML file: "),
    ],
)  # fmt: skip
def test_a_wrong_file(text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "train.toml"
    file.write_text(text)
    assert main(["train", "--config", str(file)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"surefoot: {file}")
    assert message in error
    assert len(error.splitlines()) == 1


def test_documented_files_are_valid(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```toml\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    recipe = sorted((ROOT / "examples" / "train-mini").glob("*.toml"))
    assert blocks
    assert len(recipe) == 4
    for block in (*blocks, *(file.read_text(encoding="utf-8") for file in recipe)):
        (tmp_path / "train.toml").write_text(block, encoding="utf-8")
        values = SCHEMA.read(tmp_path / "train.toml")
        assert {table: SCHEMA.build(table, values) for table in SCHEMA.tables}


def test_keys_in_the_documentation_exist() -> None:
    """`name = value` in the text is a key with a value that is allowed; a flag is one."""
    text = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    keys = re.findall(r"`([a-z_]+) = ([^`]+)`", text)
    assert len(keys) > 8
    for name, value in keys:
        entry = SCHEMA.entries[name]
        assert _convert(tomllib.loads(f"value = {value}")["value"], entry, "") is not None
    flags = {flag for command in ("train", "convert") for param in load_command(command).params for flag in param.opts}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) <= flags | {"--help", "--logdir"}


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"none.toml cannot be read: No such file or directory"):
        SCHEMA.read(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b"# \xe9")
    with pytest.raises(OptionError, match="latin.toml is not a TOML file"):
        SCHEMA.read(tmp_path / "latin.toml")


def test_relative_paths_start_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "train.toml").write_text('[data]\ndata = ["here.jsonl"]\n[model]\nbase = "b"\n')
    (tmp_path / "here.jsonl").write_text('{"question": "q", "steps": ["a"], "label": -1}\n')
    monkeypatch.chdir(tmp_path)
    write_base(tmp_path / "b")
    assert main(["train", "--config", "configs/train.toml", "--out", "out", "--device", "cpu", "--minutes", "0"]) == 1
    assert "Paused at step 0" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["checkpoints", "log.jsonl"]
