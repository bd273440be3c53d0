"""Promise 4: nothing from a model's repository is ever run."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from surefoot.errors import CheckpointError
from surefoot.scoring.local import load_local


class Trap:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[Path, str]]:
        return (Path.write_text, (self.path, "pickle ran"))


def test_code_in_the_repository_is_not_imported(checkpoint: Path, tmp_path: Path) -> None:
    """The config's auto_map points at these files, as the real checkpoint's does."""
    folder = shutil.copytree(checkpoint, tmp_path / "trapped")
    for name in ("modeling_qwen2_rm", "configuration_qwen2_rm", "tokenization"):
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').write('code ran')")
    assert load_local(folder).score("q", ["s"]).status == "scored"
    assert not (tmp_path / "ran").exists()


def test_pickles_that_hold_code_are_refused(checkpoint: Path, tmp_path: Path) -> None:
    """Beside safetensors a pickle is not opened at all; alone it may hold tensors and nothing else."""
    folder = shutil.copytree(checkpoint, tmp_path / "trapped")
    weights = folder / "pytorch_model.bin"
    trap = Trap(tmp_path / "ran")
    weights.write_bytes(pickle.dumps(trap))
    assert load_local(folder).score("q", ["s"]).status == "scored"
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="pytorch_model.bin"):
        load_local(folder)
    torch.save({**tensors, "more": trap}, weights)
    with pytest.raises(CheckpointError, match="loading it would run code"):
        load_local(folder)
    assert not (tmp_path / "ran").exists()
    # The trap is real: an unguarded load would have sprung it.
    torch.load(weights, weights_only=False)
    assert (tmp_path / "ran").exists()


def test_a_separate_head_holds_tensors_only(checkpoint: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(checkpoint, tmp_path / "trapped")
    head, trap = folder / "reward_head.pt", Trap(tmp_path / "ran")
    torch.save({"weight": torch.zeros(1), "more": trap}, head)
    with pytest.raises(CheckpointError, match=r"reward_head\.pt contains more than tensors"):
        load_local(folder)
    assert not (tmp_path / "ran").exists()
    # Tensors that the family does not expect are reported, too.
    torch.save({"weight": torch.zeros(1)}, head)
    with pytest.raises(CheckpointError, match=r"unexpected: reward_head\.weight"):
        load_local(folder)


def test_no_kernel_is_downloaded_for_nf4(checkpoint: Path, tmp_path: Path) -> None:
    """On a CPU with AVX512-BF16, importing bitsandbytes gets native code from the hub where `kernels` is installed."""
    (tmp_path / "kernels.py").write_text(
        f"def get_kernel(*args, **options):\n    open({str(tmp_path / 'ran')!r}, 'w').close()\n    raise OSError\n"
    )
    forced = Path(__file__).parents[1] / "avx512bf16"
    path = [str(forced), str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]

    def stderr(program: str) -> str:
        child = subprocess.run(
            [sys.executable, "-c", program, str(checkpoint)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path)},
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        )
        return child.stderr

    load = "import sys, surefoot; surefoot.load(sys.argv[1], quantize='nf4'); import kernels; kernels.get_kernel"
    assert "kernel" not in stderr(load)
    assert not (tmp_path / "ran").exists()
    # The trap is real: a plain import would have sprung it.
    assert "kernel" in stderr("import bitsandbytes")
    assert (tmp_path / "ran").exists()
