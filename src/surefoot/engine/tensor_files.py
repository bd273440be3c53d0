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

PICKLED_SUFFIXES = (".bin", ".pt")
RETRY = "Delete the file and download or copy it again."

FLOATING = {"F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64"}
"""The dtypes of weights: the names in safetensors files, and torch's. Integers, also as FP8, mean nothing without the
scales of the program that quantized them."""


@dataclass(frozen=True)
class StoredTensor:
    """The file that holds a tensor, and the tensor's name in it."""

    file: Path
    name: str
    shape: tuple[int, ...]
    dtype: str
    """The dtype as stored, such as `float32`."""
    packed: bool = False
    """Whether it is stored in 4 or 8 bits: see `packed_weights`."""

    @property
    def is_floating(self) -> bool:
        """Whether the numbers are weights as they are."""
        return self.dtype in FLOATING.values()

    def read(self) -> Tensor:
        """Read the tensor as stored; a packed tensor comes back in float32."""
        try:
            if self.file.suffix in PICKLED_SUFFIXES:
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
    if file.suffix in PICKLED_SUFFIXES:
        return {
            name: StoredTensor(file, name, tuple(tensor.shape), _kind(tensor))
            for name, tensor in _unpickle(file).items()
        }
    try:
        with safe_open(file, framework="pt") as tensors:
            slices = {name: tensors.get_slice(name) for name in tensors.keys()}  # noqa: SIM118
            shapes = {name: tuple(part.get_shape()) for name, part in slices.items()}
            dtypes = {name: FLOATING.get(part.get_dtype(), part.get_dtype()) for name, part in slices.items()}
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{file} is not a complete safetensors file ({error}). {RETRY}") from error
    packed = {name.removesuffix(CODES) for name in shapes if name.endswith(CODES)}
    packed = {name for name in packed if len(shapes.get(name + SCALES, ())) == 2}
    plain = shapes.keys() - {name + part for name in packed for part in (CODES, SCALES)}
    return {name: StoredTensor(file, name, shapes[name], dtypes[name]) for name in shapes if name in plain} | {
        name: StoredTensor(file, name, shape_of(shapes[name + SCALES]), dtypes[name + SCALES], packed=True)
        for name in sorted(packed)
    }


def _kind(tensor: Tensor) -> str:
    """The dtype of a pickled tensor, and what else makes it unusable as weights."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    if tensor.layout != torch.strided or tensor.is_quantized:
        return f"{dtype} ({str(tensor.layout).removeprefix('torch.')})"
    return f"{dtype} (without data)" if tensor.is_meta else dtype


def read_json(file: Path) -> dict[str, Any]:
    """Read a file that contains one JSON object."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"Cannot read {file} ({error}).") from error
    except (ValueError, RecursionError) as error:
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
    if not isinstance(content, dict) or not all(
        isinstance(name, str) and isinstance(tensor, torch.Tensor) for name, tensor in content.items()
    ):
        raise CheckpointError(f"{file} is not a mapping from names to tensors, so it does not hold model weights.")
    return content
