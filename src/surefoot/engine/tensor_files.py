"""Tensors in weight files, listed by name and read one at a time.

No code from a repository is ever run: safetensors hold only tensors, and pickled weights go through torch's
`weights_only` loader. A tensor occupies memory only while it is referenced: every read maps the file anew, so its pages
are released together with the tensor.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from surefoot.engine.packed_weights import CODES, SCALES, shape_of, unpack
from surefoot.errors import CheckpointError

RETRY = "Delete the file and download or copy it again."


@dataclass(frozen=True)
class StoredTensor:
    """The file that holds a tensor, and the tensor's name in it."""

    file: Path
    name: str
    shape: tuple[int, ...]
    packed: bool = False
    """Whether it is stored in 4 or 8 bits: see `packed_weights`."""

    def read(self) -> Tensor:
        """Read the tensor as stored; a packed tensor comes back in float32."""
        try:
            if self.file.suffix == ".bin":
                return _unpickle(self.file)[self.name]
            with safe_open(self.file, framework="pt") as file:
                if self.packed:
                    return unpack(file.get_tensor(self.name + CODES), file.get_tensor(self.name + SCALES))
                tensor: Tensor = file.get_tensor(self.name)
        except (SafetensorError, OSError, KeyError) as error:
            raise CheckpointError(f"Cannot read tensor {self.name} from {self.file} ({error}). {RETRY}") from error
        return tensor


def list_tensors(file: Path) -> dict[str, StoredTensor]:
    """List the tensors in a file by name."""
    if file.suffix == ".bin":
        return {name: StoredTensor(file, name, tuple(tensor.shape)) for name, tensor in _unpickle(file).items()}
    try:
        with safe_open(file, framework="pt") as tensors:
            shapes = {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{file} is not a complete safetensors file ({error}). {RETRY}") from error
    packed = {name.removesuffix(CODES) for name in shapes if name.endswith(CODES)}
    packed = {name for name in packed if name + SCALES in shapes}
    plain = shapes.keys() - {name + part for name in packed for part in (CODES, SCALES)}
    return {name: StoredTensor(file, name, shapes[name]) for name in shapes if name in plain} | {
        name: StoredTensor(file, name, shape_of(shapes[name + SCALES]), packed=True) for name in sorted(packed)
    }


def read_json(file: Path) -> dict[str, Any]:
    """Read a file that contains one JSON object."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{file} is not valid JSON ({error}). {RETRY}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{file} does not contain a JSON object. {RETRY}")
    return content


def _unpickle(file: Path) -> dict[str, Tensor]:
    """Memory-map the tensors of a pickled file. Anything that is not a tensor is rejected without being executed."""
    try:
        content = torch.load(file, map_location="cpu", mmap=True, weights_only=True)
    except UnpicklingError as error:
        raise CheckpointError(
            f"{file} contains more than tensors, and loading it would run code. Ask its authors for safetensors. "
            f"({str(error).splitlines()[0]})"
        ) from error
    except (RuntimeError, OSError, EOFError, ValueError) as error:
        raise CheckpointError(
            f"Cannot read {file} ({str(error).splitlines()[0]}). {RETRY} If it was saved with torch older than 1.6, "
            "load it there and save it as safetensors."
        ) from error
    if not isinstance(content, dict) or not all(isinstance(tensor, torch.Tensor) for tensor in content.values()):
        raise CheckpointError(f"{file} is not a mapping from names to tensors, so it does not hold model weights.")
    return content
