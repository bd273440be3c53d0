"""Promise 4: nothing from a model's repository is ever run."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import pytest

import surefoot
from surefoot.errors import CheckpointError


class Trap:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return (Path.write_text, (str(self.path), "pickle ran"))


def test_code_in_the_repository_is_not_imported(checkpoint: Path, tmp_path: Path) -> None:
    """The config's auto_map points at these files, as the real checkpoint's does."""
    folder = shutil.copytree(checkpoint, tmp_path / "trapped")
    for name in ("modeling_qwen2_rm", "configuration_qwen2_rm", "tokenization"):
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').write('code ran')")
    assert surefoot.load(folder).score("q", ["s"]).status == "scored"
    assert not (tmp_path / "ran").exists()


def test_pickles_in_the_repository_are_not_opened(checkpoint: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(checkpoint, tmp_path / "trapped")
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Trap(tmp_path / "ran")))
    assert surefoot.load(folder).score("q", ["s"]).status == "scored"
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="Pickled weights are not loaded"):
        surefoot.load(folder)
    assert not (tmp_path / "ran").exists()
