"""Quantized weights on disk: the same bits as without, and never used if they are damaged or of another model."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load, save_file

import surefoot
from surefoot.engine import quantization, quantized_cache
from surefoot.errors import OptionError
from surefoot.scoring.local import load_local

ITEMS = [("What is 2 + 3?", ["2 + 3 = 5.", "So the answer is 5."]), ("What is 1 + 1?", ["It is 3."])]


def scores(model: Path, folder: Path | None) -> list[list[float | None]]:
    scorer = load_local(model, device="cpu", quantize="nf4", quantize_cache=folder or False)
    return [result.step_scores for result in scorer.score_many(ITEMS)]


@pytest.fixture
def model(tiny: Path, tmp_path: Path) -> Path:
    """A checkpoint that a test may change."""
    return shutil.copytree(tiny, tmp_path / "model")


@pytest.fixture
def no_quantizing(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """After calling this, quantizing any layer is an error."""

    def forbid() -> None:
        def fail(weight: torch.Tensor) -> None:
            raise AssertionError("a layer was quantized")

        monkeypatch.setattr(quantization, "quantize_nf4", fail)

    return forbid


def test_the_second_load_reads_the_file_and_gives_the_same_bits(
    model: Path, tmp_path: Path, no_quantizing: Callable[[], None]
) -> None:
    expected = scores(model, None)
    assert scores(model, tmp_path / "cache") == expected
    (file,) = (tmp_path / "cache").iterdir()
    written = file.stat().st_mtime_ns
    no_quantizing()
    assert scores(model, tmp_path / "cache") == expected
    assert file.stat().st_mtime_ns == written
    with pytest.raises(AssertionError, match="a layer was quantized"):
        scores(model, None)


def flip(file: Path, position: int) -> None:
    content = bytearray(file.read_bytes())
    content[position] ^= 1
    file.write_bytes(content)


def header_length(file: Path) -> int:
    return 8 + int.from_bytes(file.read_bytes()[:8], "little")


def another_models(file: Path) -> None:
    """Correct checksums, but the key of another model."""
    tensors = {name: torch.zeros_like(tensor) for name, tensor in load(file.read_bytes()).items()}
    checksums = {name: quantized_cache._checksum(tensor) for name, tensor in tensors.items()}
    save_file(tensors, file, {"key": "0" * 64, "checksums": json.dumps(checksums)})


def without_a_layer(file: Path) -> None:
    tensors = load(file.read_bytes())
    with safe_open(file, framework="pt") as stored:
        metadata = stored.metadata()
    first = next(name for name in sorted(tensors) if name.endswith(".codes"))
    save_file({name: tensor for name, tensor in tensors.items() if name != first}, file, metadata)


def a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


DAMAGE: dict[str, Callable[[Path], object]] = {
    "first byte of the data": lambda file: flip(file, header_length(file)),
    "last byte": lambda file: flip(file, -1),
    "length of the header": lambda file: flip(file, 0),
    "header": lambda file: flip(file, 40),
    "truncated": lambda file: os.truncate(file, file.stat().st_size // 2),
    "empty": lambda file: file.write_bytes(b""),
    "another model's": another_models,
    "without a layer": without_a_layer,
    "not a file": a_folder,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_reported_and_replaced(
    damage: str,
    model: Path,
    tmp_path: Path,
    no_quantizing: Callable[[], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    cache = tmp_path / "cache"
    expected = scores(model, cache)
    (file,) = cache.iterdir()
    good = load(file.read_bytes())
    DAMAGE[damage](file)
    with caplog.at_level(logging.WARNING, "surefoot"):
        assert scores(model, cache) == expected
    assert str(file) in caplog.text
    if damage == "not a file":
        assert "not stored" in caplog.text
        return
    repaired = load(file.read_bytes())
    assert repaired.keys() == good.keys()
    assert all(torch.equal(repaired[name], good[name]) for name in good)
    no_quantizing()
    assert scores(model, cache) == expected


def test_a_changed_model_does_not_use_the_old_weights(model: Path, tmp_path: Path) -> None:
    before = scores(model, tmp_path / "cache")
    file = model / "model.safetensors"
    tensors = load(file.read_bytes())
    name = next(name for name in sorted(tensors) if name.endswith("q_proj.weight"))
    tensors[name] = -tensors[name]
    save_file(tensors, file, {"format": "pt"})
    changed = scores(model, tmp_path / "cache")
    assert changed == scores(model, None) != before
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_a_folder_that_cannot_be_written(model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    with caplog.at_level(logging.WARNING, "surefoot"):
        assert scores(model, tmp_path / "file" / "cache") == scores(model, None)
    assert "The quantized weights were not stored" in caplog.text


def test_what_a_killed_process_left_behind_is_removed(model: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    old, new = cache / "new-old", cache / "new-young"
    for file in (old, new):
        file.touch()
    os.utime(old, (0, 0))
    scores(model, cache)
    assert not old.exists()
    assert new.exists()


SCRIPT = """
import json, pathlib, sys
from surefoot.scoring.local import load_local
found = []
for _ in range(3):
    scorer = load_local(sys.argv[1], device="cpu", quantize="nf4", quantize_cache=sys.argv[2])
    items = [tuple(item) for item in json.loads(sys.argv[3])]
    found.append([result.step_scores for result in scorer.score_many(items)])
    # The next load writes again, while others read.
    for file in pathlib.Path(sys.argv[2]).glob("nf4-*"):
        file.unlink(missing_ok=True)
print(json.dumps(found))
"""


def test_processes_that_write_at_the_same_time(model: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    command = [sys.executable, "-c", SCRIPT, str(model), str(cache), json.dumps(ITEMS)]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = [child.communicate(timeout=300)[0] for child in children]
    assert [child.returncode for child in children] == [0, 0, 0]
    expected = scores(model, None)
    assert [json.loads(each) for each in said] == [[expected] * 3] * 3
    assert not list(cache.glob("new-*"))


@pytest.mark.parametrize("options", [{}, {"quantize": "int8"}])
def test_other_formats_have_no_cache(options: dict[str, Any], tiny: Path) -> None:
    with pytest.raises(OptionError, match='Add quantize="nf4", or omit it'):
        surefoot.load(str(tiny), quantize_cache=True, **options)


def test_the_users_cache(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantized_cache, "cache_folder", lambda: tmp_path / "user")
    surefoot.load(str(model), device="cpu", quantize="nf4", quantize_cache=True)
    assert len(list((tmp_path / "user" / "quantized-weights").iterdir())) == 1
