"""A checkpoint on disk: its config, and its tensors by name, read one at a time.

The rule: no code from the repository is run. Safetensors are read; where there are none, pickled weights are read by
torch's loader that makes nothing but tensors (`weights_only`). A tensor occupies memory only while somebody holds it:
every read maps the file anew, so that the pages are given back with the tensor.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from surefoot.errors import CheckpointError, LoadError, OptionError

if TYPE_CHECKING:
    from torch import Tensor

DOWNLOAD = ("*.json", "*.safetensors", "*.model", "*.tiktoken", "merges.txt", "vocab.txt")
PICKLED = ("pytorch_model*.bin", "adapter_model.bin")
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
AGAIN = "Delete the file and download or copy it again."


@dataclass(frozen=True)
class TensorPlace:
    """Where a tensor lies, and what it is called there."""

    file: Path
    name: str
    shape: tuple[int, ...]
    packed: bool = False
    """Whether it is stored in few bits: see `packed`."""

    def read(self) -> Tensor:
        """The tensor, as stored, or in float32 if it is packed."""
        try:
            if self.file.suffix == ".bin":
                return _unpickle(self.file)[self.name]
            with safe_open(self.file, framework="pt") as file:
                if self.packed:
                    from surefoot.engine.packed_weights import CODES, SCALES, unpack

                    return unpack(file.get_tensor(self.name + CODES), file.get_tensor(self.name + SCALES))
                tensor: Tensor = file.get_tensor(self.name)
        except (SafetensorError, OSError, KeyError) as error:
            raise CheckpointError(f"Tensor {self.name} in {self.file} cannot be read ({error}). {AGAIN}") from error
        return tensor


@dataclass(frozen=True)
class Delta:
    """What is to be added to a tensor: `scale` times the product of two thin ones."""

    up: TensorPlace
    down: TensorPlace
    scale: float

    def added_to(self, tensor: Tensor) -> Tensor:
        """The sum, in float32."""
        return tensor.float() + self.scale * (self.up.read().float() @ self.down.read().float())


@dataclass(frozen=True)
class Checkpoint:
    """A model folder whose config and tensor list have been read."""

    folder: Path
    config: dict[str, Any]
    tensors: dict[str, TensorPlace]
    deltas: Mapping[str, Delta] = field(default_factory=dict)
    """What an adapter adds to some of the tensors."""
    adapter: tuple[Path, dict[str, Any]] | None = None
    """The adapter's folder and config, if there is an adapter."""

    @property
    def files(self) -> list[Path]:
        """All files that hold tensors."""
        thin = [place for delta in self.deltas.values() for place in (delta.up, delta.down)]
        return sorted({place.file for place in (*self.tensors.values(), *thin)})

    @property
    def tokenizer_folders(self) -> tuple[Path, ...]:
        """Where a tokenizer may lie: with the adapter first."""
        return (self.folder,) if self.adapter is None else (self.adapter[0], self.folder)

    def setting(self, name: str) -> Any:
        """A value of config.json that has to be there."""
        if self.config.get(name) is None:
            raise CheckpointError(f"{self.folder / 'config.json'} says nothing about {name!r}. {AGAIN}")
        return self.config[name]

    def read(self, name: str) -> Tensor:
        """One tensor, as stored; with what an adapter adds to it, if there is one."""
        tensor = self.tensors[name].read()
        return self.deltas[name].added_to(tensor) if name in self.deltas else tensor


def open_checkpoint(model: str | Path, revision: str | None = None, base: str | Path | None = None) -> Checkpoint:
    """A folder as it is, or a model of the Hugging Face hub, downloaded if it is not yet in the local cache.

    A folder with LoRA weights is opened together with its base: the one that it names, or `base`.
    """
    folder = _find_folder(model, revision)
    if (folder / "adapter_config.json").is_file() and not _has_weights(folder):
        from surefoot.engine.lora import open_adapter

        return open_adapter(folder, base)
    if base is not None:
        raise OptionError(f"base={str(base)!r} is for LoRA weights, and {folder} is a whole model. Leave `base` out.")
    config = _read_config(folder)
    tensors: dict[str, TensorPlace] = {}
    for file in _weight_files(folder):
        found = list_tensors(file)
        if twice := sorted(tensors.keys() & found.keys()):
            raise CheckpointError(
                f"{tensors[twice[0]].file.name} and {file.name} in {folder} both hold {twice[0]}. Keep one of the two."
            )
        tensors |= found
    return Checkpoint(folder, config, tensors)


def open_config(model: str | Path, revision: str | None = None) -> tuple[Path, dict[str, Any]]:
    """The folder of a model and its config.json, whether its weights are there or not."""
    folder = _find_folder(model, revision)
    return folder, _read_config(folder)


def _read_config(folder: Path) -> dict[str, Any]:
    config_file = folder / "config.json"
    if not config_file.is_file():
        raise LoadError(f"{folder} has no config.json, so it is not a model folder.")
    return read_json(config_file)


def _find_folder(model: str | Path, revision: str | None) -> Path:
    folder = Path(model).expanduser()
    if folder.is_dir():
        if revision is not None:
            raise OptionError(f"revision={revision!r} is for models of the hub, and {folder} is a folder here.")
        return folder
    if not HUB_ID.fullmatch(str(model)):
        raise LoadError(
            f"{str(model)!r} is neither a folder here nor a hub id such as 'Qwen/Qwen2.5-Math-PRM-7B'. The embedded "
            "model is called 'mini'."
        )
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(str(model), revision=revision, allow_patterns=list(DOWNLOAD)))
        if not any(folder.glob("*.safetensors")):
            folder = Path(snapshot_download(str(model), revision=revision, allow_patterns=[*DOWNLOAD, *PICKLED]))
        return folder
    except Exception as error:
        raise LoadError(
            f"{model!r} is no folder here, and the Hugging Face hub did not give it: {error}. Check the id and the "
            "revision, log in if the model is gated, or pass the path of a downloaded copy."
        ) from error


def _has_weights(folder: Path) -> bool:
    """Whether there are weights besides those of an adapter."""
    files = [*folder.glob("*.safetensors"), *folder.glob("pytorch_model*.bin")]
    return any(not file.name.startswith("adapter_model") for file in files)


def _weight_files(folder: Path) -> list[Path]:
    for kind, pattern in (("model.safetensors", "*.safetensors"), ("pytorch_model.bin", "pytorch_model*.bin")):
        index = folder / f"{kind}.index.json"
        if index.is_file():
            return _indexed_files(index)
        if files := sorted(folder.glob(pattern)):
            return files
    raise CheckpointError(f"{folder} has no .safetensors file and no pytorch_model.bin. Download the model's weights.")


def _indexed_files(index: Path) -> list[Path]:
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict):
        raise CheckpointError(f"{index} has no weight_map. {AGAIN}")
    files = [index.parent / name for name in sorted(set(weight_map.values()))]
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise CheckpointError(f"{index.parent} lacks {', '.join(missing)}, which {index.name} names. Download them.")
    return files


def read_json(file: Path) -> dict[str, Any]:
    """The content of a file that holds one JSON object."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{file} is not JSON ({error}). {AGAIN}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{file} holds no JSON object. {AGAIN}")
    return content


def list_tensors(file: Path) -> dict[str, TensorPlace]:
    """The tensors in a file, by name."""
    from surefoot.engine.packed_weights import CODES, SCALES, shape_of

    if file.suffix == ".bin":
        return {name: TensorPlace(file, name, tuple(tensor.shape)) for name, tensor in _unpickle(file).items()}
    try:
        with safe_open(file, framework="pt") as tensors:
            shapes = {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{file} is not a whole safetensors file ({error}). {AGAIN}") from error
    packed = {name.removesuffix(CODES) for name in shapes if name.endswith(CODES)}
    packed = {name for name in packed if name + SCALES in shapes}
    plain = shapes.keys() - {name + part for name in packed for part in (CODES, SCALES)}
    return {name: TensorPlace(file, name, shapes[name]) for name in shapes if name in plain} | {
        name: TensorPlace(file, name, shape_of(shapes[name + SCALES]), packed=True) for name in sorted(packed)
    }


def _unpickle(file: Path) -> dict[str, Tensor]:
    """The tensors of a pickled file, mapped and not read. Whatever is no tensor is refused, unseen."""
    import torch

    try:
        content = torch.load(file, map_location="cpu", mmap=True, weights_only=True)
    except UnpicklingError as error:
        raise CheckpointError(
            f"{file} holds more than tensors, and loading it would run code: it is refused. Ask its makers for "
            f"safetensors. ({str(error).splitlines()[0]})"
        ) from error
    except (RuntimeError, OSError, EOFError, ValueError) as error:
        raise CheckpointError(
            f"{file} cannot be read ({str(error).splitlines()[0]}). {AGAIN} If it was saved by a torch older than "
            "1.6, load it there and save it as safetensors."
        ) from error
    if not isinstance(content, dict) or not all(isinstance(tensor, torch.Tensor) for tensor in content.values()):
        raise CheckpointError(f"{file} is not a table of tensors by name, so it is no model's weights.")
    return content
