"""The fingerprint: equal for equal models, different for different ones."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import surefoot
from surefoot.engine.checkpoint import open_checkpoint
from surefoot.engine.fingerprint import fingerprint
from surefoot.errors import CheckpointError
from surefoot.scoring.local import load_local
from surefoot.testing import write_qwen_checkpoint

SIZES: dict[str, Any] = {"vocab_size": 300, "hidden_size": 64}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_qwen_checkpoint(tmp_path_factory.mktemp("small") / "model", **SIZES)


def mark(folder: Path) -> str:
    return fingerprint(open_checkpoint(folder), dtype="torch.float32")


def test_a_copy_has_the_same_fingerprint(small: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(small, tmp_path / "another name")
    assert mark(copy) == mark(small)
    assert len(mark(small)) == 64


@pytest.mark.parametrize("name", ["model.embed_tokens.weight", "model.layers.1.mlp.down_proj.weight", "score.2.bias"])
def test_changed_weights_change_the_fingerprint(small: Path, tmp_path: Path, name: str) -> None:
    copy = shutil.copytree(small, tmp_path / "copy")
    tensors = load_file(copy / "model.safetensors")
    tensors[name] = tensors[name] * 1.001
    save_file(tensors, copy / "same.safetensors", {"format": "pt"})
    changed = mark_of_file(copy)
    tensors[name] = load_file(small / "model.safetensors")[name]
    save_file(tensors, copy / "same.safetensors", {"format": "pt"})
    assert mark_of_file(copy) != changed


def mark_of_file(folder: Path) -> str:
    (folder / "model.safetensors").unlink(missing_ok=True)
    return mark(folder)


def test_the_end_of_a_large_tensor_is_sampled(small: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(small, tmp_path / "copy")
    tensors = load_file(copy / "model.safetensors")
    (copy / "model.safetensors").unlink()
    save_file(tensors, copy / "same.safetensors", {"format": "pt"})
    before = mark(copy)
    tensors["lm_head.weight"][-1, -1] += 1.0
    save_file(tensors, copy / "same.safetensors", {"format": "pt"})
    assert mark(copy) != before


def test_config_and_load_options_change_the_fingerprint(small: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(small, tmp_path / "copy")
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "rope_theta": 20000.0}))
    assert mark(copy) != mark(small)
    checkpoint = open_checkpoint(small)
    marks = {
        fingerprint(checkpoint, dtype="torch.float32", quantize="none"),
        fingerprint(checkpoint, dtype="torch.bfloat16", quantize="none"),
        fingerprint(checkpoint, dtype="torch.float32", quantize="int8"),
    }
    assert len(marks) == 3


def test_all_shards_are_sampled(tmp_path: Path) -> None:
    folder = write_qwen_checkpoint(tmp_path / "shards", shards=3, **SIZES)
    before = mark(folder)
    last = sorted(folder.glob("*.safetensors"))[-1]
    raw = bytearray(last.read_bytes())
    raw[-1] ^= 1
    last.write_bytes(raw)
    assert mark(folder) != before


def test_a_scorer_has_a_fingerprint(checkpoint: Path, scorer: surefoot.Scorer) -> None:
    again = load_local(checkpoint)
    half = load_local(checkpoint, dtype=torch.bfloat16)
    assert scorer.fingerprint == again.fingerprint
    assert half.fingerprint != scorer.fingerprint


def test_a_corrupt_file_is_reported(small: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(small, tmp_path / "copy")
    found = open_checkpoint(copy)
    (copy / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0nonsense")
    with pytest.raises(CheckpointError, match="not a complete safetensors file"):
        fingerprint(found)
