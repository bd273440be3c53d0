"""A checkpoint on disk: its config, and its tensors by name, read one at a time.

The rule: only safetensors are read, no code from the repository is run, and a tensor occupies memory only while
somebody holds it: every read maps the file anew, so that the pages are given back with the tensor.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from surefoot.errors import CheckpointError, LoadError, OptionError

if TYPE_CHECKING:
    from torch import Tensor

DOWNLOAD = ("*.json", "*.safetensors", "*.model", "*.tiktoken", "merges.txt", "vocab.txt")
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True)
class TensorPlace:
    """Where a tensor lies."""

    file: Path
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Checkpoint:
    """A model folder whose config and tensor list have been read."""

    folder: Path
    config: dict[str, Any]
    tensors: dict[str, TensorPlace]

    def setting(self, name: str) -> Any:
        """A value of config.json that has to be there."""
        if self.config.get(name) is None:
            raise CheckpointError(f"{self.folder / 'config.json'} says nothing about {name!r}. {AGAIN}")
        return self.config[name]

    def read(self, name: str) -> Tensor:
        """One tensor, as stored."""
        place = self.tensors[name]
        try:
            with safe_open(place.file, framework="pt") as file:
                tensor: Tensor = file.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"Tensor {name} in {place.file} cannot be read ({error}). {AGAIN}") from error
        return tensor


AGAIN = "Delete the file and download or copy it again."


def open_checkpoint(model: str | Path, revision: str | None = None) -> Checkpoint:
    """A folder as it is, or a model of the Hugging Face hub, downloaded if it is not yet in the local cache."""
    folder, config = open_config(model, revision)
    tensors: dict[str, TensorPlace] = {}
    for file in _weight_files(folder):
        tensors |= _list_tensors(file)
    return Checkpoint(folder, config, tensors)


def open_config(model: str | Path, revision: str | None = None) -> tuple[Path, dict[str, Any]]:
    """The folder of a model and its config.json, whether its weights are there or not."""
    folder = _find_folder(model, revision)
    config_file = folder / "config.json"
    if not config_file.is_file():
        raise LoadError(f"{folder} has no config.json, so it is not a model folder.")
    return folder, _read_json(config_file)


def _find_folder(model: str | Path, revision: str | None) -> Path:
    folder = Path(model).expanduser()
    if folder.is_dir():
        if revision is not None:
            raise OptionError(f"revision={revision!r} is for models of the hub, and {folder} is a folder here.")
        return folder
    if not HUB_ID.fullmatch(str(model)):
        raise LoadError(f"{str(model)!r} is neither a folder here nor a hub id such as 'Qwen/Qwen2.5-Math-PRM-7B'.")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(str(model), revision=revision, allow_patterns=list(DOWNLOAD)))
    except Exception as error:
        raise LoadError(
            f"{model!r} is no folder here, and the Hugging Face hub did not give it: {error}. Check the id and the "
            "revision, log in if the model is gated, or pass the path of a downloaded copy."
        ) from error


def _weight_files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        weight_map = _read_json(index).get("weight_map")
        if not isinstance(weight_map, dict):
            raise CheckpointError(f"{index} has no weight_map. {AGAIN}")
        files = [folder / name for name in sorted(set(weight_map.values()))]
        missing = [file.name for file in files if not file.is_file()]
        if missing:
            raise CheckpointError(f"{folder} lacks {', '.join(missing)}, which {index.name} names. Download them.")
        return files
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise CheckpointError(f"{folder} has no .safetensors file. Pickled weights are not loaded; convert them first.")
    return files


def _read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{file} is not JSON ({error}). {AGAIN}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{file} holds no JSON object. {AGAIN}")
    return content


def _list_tensors(file: Path) -> dict[str, TensorPlace]:
    try:
        with safe_open(file, framework="pt") as tensors:
            return {name: TensorPlace(file, tuple(tensors.get_slice(name).get_shape())) for name in tensors.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{file} is not a whole safetensors file ({error}). {AGAIN}") from error
