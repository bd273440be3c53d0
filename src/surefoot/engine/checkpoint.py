"""A checkpoint on disk: its config and its tensors by name.

No code from the repository is run. A checkpoint with LoRA weights is opened together with its base and reads like an
ordinary one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any

from surefoot.data.hub import find_folder
from surefoot.engine.config_check import check_config
from surefoot.engine.lora import Adapter, LoraDelta, match_tensors, open_adapter
from surefoot.engine.tensor_files import RETRY, StoredTensor, list_tensors, read_json
from surefoot.errors import CheckpointError, LoadError, OptionError

if TYPE_CHECKING:
    from torch import Tensor

HEAD_FILE = "reward_head.pt"
"""A head that is stored apart from the model. Its tensors are listed as `reward_head.weight` and so on."""
DOWNLOAD = ("*.json", "*.jinja", "*.safetensors", "*.model", "*.tiktoken", "merges.txt", "vocab.txt", HEAD_FILE)
PICKLED = ("pytorch_model*.bin", "adapter_model.bin")
LONGEST_NAME = 255
"""Bytes in a file name, on all common file systems."""


@dataclass(frozen=True)
class Checkpoint:
    """A model folder whose config and tensor list have been read."""

    folder: Path
    config: dict[str, Any]
    tensors: dict[str, StoredTensor]
    deltas: Mapping[str, LoraDelta] = field(default_factory=dict)
    """The changes that an adapter makes, by tensor name."""
    adapter: Adapter | None = None

    @property
    def files(self) -> list[Path]:
        """All files that hold tensors."""
        factors = [factor for delta in self.deltas.values() for factor in (delta.up, delta.down)]
        return sorted({tensor.file for tensor in (*self.tensors.values(), *factors)})

    @property
    def tokenizer_folders(self) -> tuple[Path, ...]:
        """The folders to search for a tokenizer, the adapter's first."""
        return (self.folder,) if self.adapter is None else (self.adapter.folder, self.folder)

    def setting(self, name: str) -> Any:
        """Return a required value of config.json."""
        if self.config.get(name) is None:
            raise CheckpointError(f"{self.folder / 'config.json'} does not set {name!r}. {RETRY}")
        return self.config[name]

    def read(self, name: str) -> Tensor:
        """Read one tensor as stored, merged with the adapter's change if there is one."""
        tensor = self.tensors[name].read()
        return self.deltas[name].apply(tensor) if name in self.deltas else tensor


def open_checkpoint(model: str | Path, revision: str | None = None, base: str | Path | None = None) -> Checkpoint:
    """Open a folder, or a model on the Hugging Face hub, which is downloaded unless it is in the local cache.

    A folder with LoRA weights is opened together with its base: the one it names, or `base`.
    """
    folder = _find_folder(model, revision)
    if (folder / "adapter_config.json").is_file() and not _has_weights(folder):
        return _open_with_base(open_adapter(folder), base)
    if base is not None:
        raise OptionError(
            f"base={str(base)!r} applies to LoRA weights only, and {folder} is a complete model. Omit `base`."
        )
    config = _read_config(folder)
    tensors: dict[str, StoredTensor] = {}
    for file in _weight_files(folder):
        found = list_tensors(file)
        if file.name == HEAD_FILE:
            found = {f"{file.stem}.{name}": tensor for name, tensor in found.items()}
        if duplicates := sorted(tensors.keys() & found.keys()):
            first = duplicates[0]
            raise CheckpointError(
                f"{tensors[first].file.name} and {file.name} in {folder} both contain {first}. Remove one of them."
            )
        tensors |= found
    return Checkpoint(folder, config, tensors)


def _open_with_base(adapter: Adapter, base: str | Path | None) -> Checkpoint:
    name = base or adapter.base
    if not name:
        raise LoadError(f"{adapter.folder} does not name the base model of its LoRA weights. Pass it: base=...")
    try:
        opened = open_checkpoint(name)
    except LoadError as error:
        raise LoadError(
            f"Cannot open the base model of the LoRA weights in {adapter.folder}: {error} You can pass another one: "
            "base=..."
        ) from error
    if opened.adapter is not None:
        raise CheckpointError(f"The base {name} has LoRA weights too. Merge the two adapters first.")
    deltas, saved = match_tensors(adapter, opened.tensors, opened.folder)
    return dataclasses.replace(opened, tensors=opened.tensors | saved, deltas=deltas, adapter=adapter)


def open_config(model: str | Path, revision: str | None = None) -> tuple[Path, dict[str, Any]]:
    """Return a model's folder and its config.json. The weights need not exist."""
    folder = _find_folder(model, revision)
    return folder, _read_config(folder)


def _read_config(folder: Path) -> dict[str, Any]:
    config_file = folder / "config.json"
    if not config_file.is_file():
        raise LoadError(f"{folder} has no config.json, so it is not a model folder.")
    config = read_json(config_file)
    check_config(config, config_file)
    return config


def _find_folder(model: str | Path, revision: str | None) -> Path:
    example = "'Qwen/Qwen2.5-Math-PRM-7B'. The embedded model is called 'mini'."
    folder = find_folder(model, DOWNLOAD, revision, example=example)
    if not any(folder.glob("*.safetensors")):
        folder = find_folder(model, [*DOWNLOAD, *PICKLED], revision, example=example)
    return folder


def _has_weights(folder: Path) -> bool:
    """Whether the folder has weights other than those of an adapter."""
    files = [*folder.glob("*.safetensors"), *folder.glob("pytorch_model*.bin")]
    return any(not file.name.startswith("adapter_model") for file in files)


def _weight_files(folder: Path) -> list[Path]:
    for kind, pattern in (("model.safetensors", "*.safetensors"), ("pytorch_model.bin", "pytorch_model*.bin")):
        index = folder / f"{kind}.index.json"
        if index.is_file():
            return [*_indexed_files(index, Path(kind).suffix), *folder.glob(HEAD_FILE)]
        if files := sorted(folder.glob(pattern)):
            return [*files, *folder.glob(HEAD_FILE)]
    raise CheckpointError(f"{folder} has no .safetensors file and no pytorch_model.bin. Download the model's weights.")


def _indexed_files(index: Path, suffix: str) -> list[Path]:
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict):
        raise CheckpointError(f"{index} has no weight_map. {RETRY}")
    for name in weight_map.values():
        if not _is_file_name(name, suffix):
            raise CheckpointError(
                f"{index} names the shard {str(name)[:200]!r}, which is not the name of a {suffix} file in its folder. "
                f"{RETRY}"
            )
    files = [index.parent / name for name in sorted(set(weight_map.values()))]
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise CheckpointError(f"{index.parent} lacks {', '.join(missing)}, listed in {index.name}. Download them.")
    return files


def _is_file_name(name: object, suffix: str) -> bool:
    """Whether this is a plain name, which cannot lead out of a folder on any system. The file itself may be a link, as
    in the hub's cache."""
    if not isinstance(name, str) or not name.isprintable() or len(name.encode(errors="replace")) > LONGEST_NAME:
        return False
    return name == PurePosixPath(name).name == PureWindowsPath(name).name and name.endswith(suffix)
