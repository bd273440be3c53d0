"""The fingerprint: equal for equal models, different for different ones."""

from __future__ import annotations

import json
import random
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import surefoot
from surefoot.core.options import Quantization
from surefoot.engine.checkpoint import open_checkpoint
from surefoot.engine.fingerprint import fingerprint
from surefoot.engine.quantization import computation
from surefoot.errors import CheckpointError
from surefoot.scoring.local import load_local
from surefoot.testing import QWEN_ADDED_TOKENS, write_qwen_checkpoint

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


def test_every_weight_counts(small: Path, tmp_path: Path) -> None:
    """Any bit of the file, wherever it is."""
    copy = shutil.copytree(small, tmp_path / "copy")
    file = copy / "model.safetensors"
    raw = bytearray(file.read_bytes())
    before = mark(copy)
    header = 8 + int.from_bytes(raw[:8], "little")
    places = [header, len(raw) - 1, *random.Random(0).sample(range(header, len(raw)), 30)]
    for place in places:
        raw[place] ^= 1
        file.write_bytes(raw)
        assert mark(copy) != before, place
        raw[place] ^= 1
    file.write_bytes(raw)
    assert mark(copy) == before


def test_scores_of_a_changed_marker_do_not_come_from_the_cache(checkpoint: Path, tmp_path: Path) -> None:
    """One changed row among 152,064 changes every score, so a cache filled before must not be used."""
    copy = shutil.copytree(checkpoint, tmp_path / "copy")
    cache, item = tmp_path / "scores.sqlite", ("What is 2 + 3?", ["2 + 3 = 5.", "So 5."])
    before = load_local(copy, cache=cache).score(*item).step_scores
    tensors = load_file(copy / "model.safetensors")
    tensors["model.embed_tokens.weight"][QWEN_ADDED_TOKENS["<extra_0>"]] += 3.0
    save_file(tensors, copy / "model.safetensors", {"format": "pt"})
    expected = load_local(copy).score(*item).step_scores
    assert expected != pytest.approx(before, abs=1e-3)
    assert load_local(copy, cache=cache).score(*item).step_scores == pytest.approx(expected, abs=1e-6)


def test_the_tokenizer_changes_the_fingerprint(small: Path, tmp_path: Path) -> None:
    """It decides which rows of an output layer spell a label."""
    copy = shutil.copytree(small, tmp_path / "copy")
    layout = json.loads((copy / "tokenizer.json").read_text())
    layout["added_tokens"][0]["content"] = "<|other|>"
    (copy / "tokenizer.json").write_text(json.dumps(layout))
    assert mark(copy) != mark(small)
    (copy / "tokenizer.json").unlink()
    (copy / "merges.txt").write_text("a b")
    before = mark(copy)
    (copy / "merges.txt").write_text("a c")
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


def test_all_shards_count(tmp_path: Path) -> None:
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
        mark(copy)
    (copy / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"Cannot read .*model\.safetensors"):
        fingerprint(found)


@pytest.mark.parametrize(
    ("quantize", "device", "expected"),
    [
        (None, "cpu", "none"),
        (None, "cuda", "none"),
        ("nf4", "cpu", "nf4 dequantized"),
        ("nf4", "cuda", "nf4 bitsandbytes"),
        ("int8", "cpu", "int8 6 (onednn (127|63)|fbgemm|qnnpack)"),
    ],
)
def test_layers_that_compute_differently_have_different_names(
    quantize: Quantization | None, device: str, expected: str
) -> None:
    assert re.fullmatch(expected, computation(quantize, torch.device(device)))
