"""Trackers, read back from the files that they really write: each step of a run that died and resumed, exactly once."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from surefoot.errors import MissingDependencyError, OptionError
from surefoot.testing import write_base
from surefoot.train import loop, trackers
from surefoot.train.example import from_label
from surefoot.train.loop import Result, train
from surefoot.train.model import make_trainee
from surefoot.train.run_log import read_log
from surefoot.train.settings import Settings, Sitting
from surefoot.train.trackers import Start, Trackers

Points = list[tuple[int, float]]
ROOT = Path(__file__).parent.parent.parent
SETTINGS = Settings(steps=6, learning_rate=3e-3, precision="float32", max_tokens=128)
EXAMPLES = [from_label(f"question {at}", ["a yes", "b no" if at % 2 else "b yes"], at % 2 or -1) for at in range(12)]
HELD_OUT = [from_label(f"other {at}", ["a yes", "b no" if at % 2 else "b yes"], at % 2 or -1) for at in range(6)]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("bases") / "llama")


def run(base: Path, out: Path, *log_to: str, steps: int | None = None) -> Result:
    sitting = Sitting(
        evaluate_minutes=None, evaluate_steps=3, save_minutes=None, save_steps=2, log_to=log_to, steps=steps
    )
    return train(make_trainee(base), EXAMPLES, out, SETTINGS, sitting, held_out=HELD_OUT)


def run_and_die(base: Path, out: Path, *log_to: str) -> None:
    """Logs five steps, of which the last snapshot has four."""
    calls, learn = 0, loop.Run.learn

    def dies(self: loop.Run, batches: Any) -> dict[str, float]:
        nonlocal calls
        calls += 1
        if calls == 6:
            raise RuntimeError("power cut")
        return learn(self, batches)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop.Run, "learn", dies)
        with pytest.raises(RuntimeError, match="power cut"):
            run(base, out, *log_to)


def in_a_process(script: str, base: Path, out: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs functions of this module where a tracker, which keeps its settings, is not imported yet."""
    start = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); from train.test_trackers import *; "
        "base, out = map(Path, sys.argv[2:]); "
    )
    command = [sys.executable, "-c", start + script, str(ROOT / "tests"), str(base), str(out)]
    return subprocess.run(
        command,
        env=os.environ | environment,
        check=True,
        timeout=300,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )


def from_tensorboard(folder: Path) -> dict[str, Points]:
    """As TensorBoard itself reads event files."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def wandb_records(file: Path) -> Iterator[Any]:
    """Records of an offline run: protocol buffers in the log format of LevelDB, after a header of 7 bytes."""
    from wandb.proto import wandb_internal_pb2

    data, at, parts = file.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:  # the rest of a block that is too short for a record
            at += 32768 - at % 32768
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            record = wandb_internal_pb2.Record()
            record.ParseFromString(parts)
            yield record
            parts = b""


def from_wandb(folder: Path) -> dict[str, Points]:
    found: dict[str, Points] = {}
    for file in sorted((folder / "wandb").glob("offline-run-*/*.wandb"), key=lambda file: file.stat().st_mtime_ns):
        for record in wandb_records(file):
            items = {".".join(item.nested_key) or item.key: item.value_json for item in record.history.item}
            row = {name: json.loads(text) for name, text in items.items()}
            for name in row.keys() - {"step"}:
                if not name.startswith("_"):
                    found.setdefault(name, []).append((row["step"], row[name]))
    return found


def from_trackio(folder: Path) -> dict[str, Points]:
    found: dict[str, Points] = {}
    with sqlite3.connect(folder.parent / "trackio" / "surefoot.db") as database:
        rows = database.execute("SELECT run_name, step, metrics FROM metrics ORDER BY id").fetchall()
    assert len({name for name, _, _ in rows}) == 1
    for _, step, metrics in rows:
        for name, value in json.loads(metrics).items():
            found.setdefault(name, []).append((step, value))
    return found


READERS = {"tensorboard": from_tensorboard, "wandb": from_wandb, "trackio": from_trackio}


@pytest.mark.parametrize("name", READERS)
def test_a_run_that_died_has_every_step_once(
    name: str, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    whole = run(base, tmp_path / "whole")
    if name == "trackio":  # it chooses its folder when it is imported, so it gets a process of its own
        done = in_a_process(
            "run_and_die(base, out, 'trackio'); run(base, out, 'trackio'); run(base, out, 'trackio')",
            base,
            tmp_path / "parts",
            TRACKIO_DIR=str(tmp_path / "trackio"),
            HF_HUB_OFFLINE="1",
        )
        assert done.stdout == "", "standard output is for results"
    else:
        run_and_die(base, tmp_path / "parts", name)
        run(base, tmp_path / "parts", name)
        run(base, tmp_path / "parts", name)  # a finished run is exported again
    found = READERS[name](tmp_path / "parts")
    rows = read_log(whole.folder / "log.jsonl")  # of a run without a tracker that nothing interrupted
    steps = [row for row in rows if "rate" in row]
    assert [row["step"] for row in steps] == [1, 2, 3, 4, 5, 6]
    for field, shown in (("loss", "loss"), ("rate", "learning_rate"), ("norm", "gradient_norm"), ("tokens", "tokens")):
        values = found[f"train/{shown}"]
        assert [step for step, _ in values] == [1, 2, 3, 4, 5, 6]
        assert [value for _, value in values] == pytest.approx([row[field] for row in steps])  # float32 in TensorBoard
    evaluations = [row for row in rows if row.get("evaluated") == "held_out"]
    assert [step for step, _ in found["held_out/loss"]] == [3, 6]
    assert [value for _, value in found["held_out/loss"]] == pytest.approx([row["loss"] for row in evaluations])
    assert found["exported/threshold"] == [(6, 0.5)]
    assert (tmp_path / "parts/model.safetensors").read_bytes() == (whole.folder / "model.safetensors").read_bytes()


def test_a_resumed_run_has_the_same_id_and_a_new_run_another(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    run(base, tmp_path / "one", "wandb", steps=3)
    run(base, tmp_path / "one", "wandb")
    run(base, tmp_path / "two", "wandb")

    def read() -> dict[str, list[str]]:
        return {
            name: [
                record.run.run_id
                for file in (tmp_path / name / "wandb").glob("offline-run-*/*.wandb")
                for record in wandb_records(file)
                if record.HasField("run")
            ]
            for name in ("one", "two")
        }

    end = time.monotonic() + 60  # a process of wandb writes the files
    while not all((ids := read()).values()) and time.monotonic() < end:
        time.sleep(0.2)
    assert len(ids["one"]) >= 2
    assert len(set(ids["one"])) == len(set(ids["two"])) == 1
    assert set(ids["one"]) != set(ids["two"])


def test_nothing_is_written_unless_asked_for(base: Path, tmp_path: Path) -> None:
    run(base, tmp_path / "out")
    assert not {"tensorboard", "wandb", "trackers.json"} & {file.name for file in (tmp_path / "out").iterdir()}


class Broken:
    def __init__(self, start: Start) -> None:
        self.closed = False

    def log(self, step: int, values: dict[str, float]) -> None:
        raise ConnectionError("no\nnetwork")

    def close(self) -> None:
        raise AssertionError("it was dropped")


def refuses(start: Start) -> Broken:
    raise PermissionError("not logged in")


@pytest.mark.parametrize("broken", [Broken, refuses])
def test_a_tracker_that_fails_is_dropped(
    broken: Any, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(trackers.TRACKERS, "wandb", broken)
    with caplog.at_level(logging.WARNING, "surefoot"):
        assert run(base, tmp_path / "out", "wandb", "tensorboard").finished
    (warning,) = [record.getMessage() for record in caplog.records if "wandb" in record.getMessage()]
    assert "no network" in warning or "not logged in" in warning
    assert [step for step, _ in from_tensorboard(tmp_path / "out")["train/loss"]] == [1, 2, 3, 4, 5, 6]


def test_a_user_who_is_not_logged_in_can_train(base: Path, tmp_path: Path) -> None:
    done = in_a_process(
        "assert run(base, out, 'wandb').finished",
        base,
        tmp_path / "out",
        NETRC=str(tmp_path / "netrc"),
        WANDB_API_KEY="",
        WANDB_MODE="online",
        WANDB_BASE_URL="http://127.0.0.1:9",
    )
    assert done.stderr.count("Logging to wandb failed (UsageError: No API key configured.") == 1


def test_trackers_are_checked_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match="log_to='mlflow' is not supported. Choose from: tensorboard, wandb, trackio"):
        Sitting(log_to=["mlflow"])
    with pytest.raises(OptionError, match=r"Pass a list: log_to=\['wandb'\]"):
        Sitting(log_to="wandb")
    monkeypatch.setattr(trackers, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match="pip install trackio"):
        Sitting(log_to=["trackio"])


def test_a_damaged_list_of_ids_does_not_stop_a_run(tmp_path: Path) -> None:
    (tmp_path / "trackers.json").write_text("{")
    opened = Trackers()
    opened.start(["tensorboard"], tmp_path, 0, {}, resumed=True)
    opened.add({"step": 1, "loss": 0.25})
    opened.close()
    assert from_tensorboard(tmp_path) == {"train/loss": [(1, 0.25)]}
