"""Quantized weights on disk, so that a model is quantized only once.

One file per model holds the nf4 weights of all its linear layers. Its name is derived from the model's fingerprint,
which covers every byte of the checkpoint, so a changed model never finds the file of the old one. Every tensor has a
SHA-256 checksum, which is verified on the bytes that are then used. What is missing or damaged is quantized again and
the file replaced. It is written to a temporary file and renamed: processes can write at the same time, and readers see
the old file or the new one.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import tempfile
import time
from hashlib import sha256
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from surefoot.core.cache_folder import cache_folder
from surefoot.engine.nf4 import BLOCK, SCALES, NF4Weight, import_bitsandbytes

logger = logging.getLogger("surefoot")

FORMAT = 1
PARTS = ("codes", "scales", "outer", "offset")
"""The tensors of a layer."""
ABANDONED_SECONDS = 86_400
"""Temporary files this old were left behind by a process that was killed."""


def default_folder() -> Path:
    """The folder for quantized weights of this user.

    >>> default_folder().name
    'quantized-weights'
    """
    return cache_folder() / "quantized-weights"


class QuantizedCache:
    """The quantized weights of the model with this fingerprint."""

    def __init__(self, folder: Path, fingerprint: str) -> None:
        # Another version of these packages may round differently.
        versions = [FORMAT, fingerprint, import_bitsandbytes().__version__, torch.__version__]
        self._key = sha256(json.dumps(versions).encode()).hexdigest()
        self.file = folder / f"nf4-{self._key[:32]}.safetensors"
        self._layers: dict[str, NF4Weight] = {}
        self._complete = True
        self._checksums = self._read_checksums()

    def _read_checksums(self) -> dict[str, str]:
        try:
            with safe_open(self.file, framework="pt") as stored:
                metadata = stored.metadata() or {}
                checksums: dict[str, str] = json.loads(metadata.get("checksums", "{}"))
            if metadata.get("key") == self._key and isinstance(checksums, dict):
                return checksums
            logger.warning("%s does not hold the quantized weights of this model. Quantizing again.", self.file)
        except FileNotFoundError:
            pass
        except (SafetensorError, OSError, ValueError, RecursionError) as error:
            logger.warning("The quantized weights in %s are damaged (%s). Quantizing again.", self.file, error)
        return {}

    def get(self, path: str, shape: tuple[int, int]) -> NF4Weight | None:
        """Return the weights of a layer, or None if they have to be quantized."""
        found = self._read(path, shape) if self._checksums else None
        if found is None:
            self._complete = False
        else:
            self._layers[path] = found
        return found

    def _read(self, path: str, shape: tuple[int, int]) -> NF4Weight | None:
        try:
            with safe_open(self.file, framework="pt") as stored:
                # Copies: the bytes in the file may change after they have been verified.
                parts = {part: stored.get_tensor(f"{path}.{part}").clone() for part in PARTS}
            sums = {part: self._checksums[f"{path}.{part}"] for part in PARTS}
        except (SafetensorError, OSError, LookupError) as error:
            logger.warning("%s: %s is missing (%s). Quantizing it again.", self.file, path, error)
            return None
        fits = all(_checksum(parts[part]) == sums[part] for part in PARTS) and _fit(parts, shape)
        if not fits:
            logger.warning("%s: the weights of %s are damaged. Quantizing them again.", self.file, path)
        return NF4Weight(shape, **parts) if fits else None

    def add(self, path: str, weight: NF4Weight) -> None:
        """Keep the weights of a layer for `write`. They are not copied."""
        self._layers[path] = weight

    def write(self) -> None:
        """Replace the file, unless everything came from it. A file that cannot be written is only reported."""
        if self._complete:
            return
        tensors = {f"{path}.{part}": getattr(layer, part) for path, layer in self._layers.items() for part in PARTS}
        checksums = {name: _checksum(tensor) for name, tensor in tensors.items()}
        metadata = {"key": self._key, "checksums": json.dumps(checksums)}
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            _remove_abandoned(self.file.parent)
            descriptor, name = tempfile.mkstemp(dir=self.file.parent, prefix="new-")
            os.close(descriptor)
            try:
                save_file(tensors, name, metadata)
                with Path(name).open("rb+") as stream:
                    os.fsync(stream.fileno())
                Path(name).replace(self.file)
            except BaseException:
                with contextlib.suppress(OSError):
                    Path(name).unlink()
                raise
        except (OSError, SafetensorError) as error:
            logger.warning("The quantized weights were not stored in %s: %s", self.file, error)


def _checksum(tensor: Tensor) -> str:
    return sha256(tensor.flatten().view(torch.uint8).numpy().data).hexdigest()


def _fit(parts: dict[str, Tensor], shape: tuple[int, int]) -> bool:
    """Whether these are the parts of a matrix of this shape."""
    blocks = -(-shape[0] * shape[1] // BLOCK)
    expected = {
        "codes": ((blocks * BLOCK // 2, 1), torch.uint8),
        "scales": ((blocks,), torch.uint8),
        "outer": ((-(-blocks // SCALES),), torch.float32),
        "offset": ((), torch.float32),
    }
    return all((tuple(parts[part].shape), parts[part].dtype) == wanted for part, wanted in expected.items())


def _remove_abandoned(folder: Path) -> None:
    for file in folder.glob("new-*"):
        with contextlib.suppress(OSError):
            if file.stat().st_mtime < time.time() - ABANDONED_SECONDS:
                file.unlink()
