"""LoRA weights, merged into their base model while it is read.

A merged tensor is W + scale * B @ A in float32, so the model in memory is an ordinary one. Every tensor of the adapter
must match a tensor of the base, and adapters that need more than this sum are rejected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot.engine.tensor_files import FLOATING, RETRY, StoredTensor, list_tensors, read_json
from surefoot.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

FACTOR = re.compile(r"(.*)\.lora_(A|B)(?:\.default)?\.weight")
SAVED = re.compile(r"\.modules_to_save\.default|\.modules_to_save")
UNSUPPORTED = (
    "use_dora",
    "fan_in_fan_out",
    "alpha_pattern",
    "layer_replication",
    "lora_bias",
    "trainable_token_indices",
)
"""Settings with which a layer is more than W + scale * B @ A, or with which scales differ between layers."""
INITS_KEEPING_BASE = ("gaussian", "eva")
"""Named initializations that leave the base weights unchanged. PiSSA, OLoRA and similar ones do not."""
SETTINGS: tuple[tuple[str, str, Callable[[Any], bool]], ...] = (
    ("lora_alpha", "a number", lambda value: type(value) in (int, float) and isfinite(value)),
    ("use_rslora", "true or false", lambda value: value is None or isinstance(value, bool)),
    ("base_model_name_or_path", "a name", lambda value: value is None or isinstance(value, str)),
    (
        "modules_to_save",
        "a list of names",
        lambda value: value is None or (isinstance(value, list) and all(isinstance(name, str) for name in value)),
    ),
)
"""The settings that are used, and what they may be."""


@dataclass(frozen=True)
class LoraDelta:
    """The change of one base tensor: `scale` times the product of two low-rank factors."""

    up: StoredTensor
    down: StoredTensor
    scale: float

    def apply(self, tensor: Tensor) -> Tensor:
        """Return `tensor` plus the change, in float32."""
        return tensor.float() + self.scale * (self.up.read().float() @ self.down.read().float())


@dataclass(frozen=True)
class Adapter:
    """A folder of LoRA weights whose settings have been checked."""

    folder: Path
    settings: dict[str, Any]

    @property
    def base(self) -> str | None:
        """The base model that the adapter names."""
        return self.settings.get("base_model_name_or_path") or None


def open_adapter(folder: Path) -> Adapter:
    """Read adapter_config.json and reject anything that is not plain LoRA."""
    settings = read_json(folder / "adapter_config.json")
    kind = settings.get("peft_type")
    unsupported = [name for name in UNSUPPORTED if settings.get(name)]
    init = settings.get("init_lora_weights")
    if isinstance(init, str) and init not in INITS_KEEPING_BASE:
        unsupported.append(f"init_lora_weights={init}")
    if kind != "LORA" or unsupported:
        raise CheckpointError(
            f"The adapter in {folder} has type {kind or 'unknown'}"
            f"{' with ' + ', '.join(unsupported) if unsupported else ''}; only plain LoRA is supported. Merge it into "
            "its base with peft and load the result."
        )
    for name, expected, is_valid in SETTINGS:
        if not is_valid(settings.get(name)):
            raise CheckpointError(
                f"{folder / 'adapter_config.json'} sets {name} to {str(settings.get(name))[:60]!r}, not to {expected}. "
                f"{RETRY}"
            )
    return Adapter(folder, settings)


def match_tensors(
    adapter: Adapter, base: Mapping[str, StoredTensor], base_folder: Path
) -> tuple[dict[str, LoraDelta], dict[str, StoredTensor]]:
    """Match the adapter's tensors with those of its base.

    Returns the deltas by the name of the tensor that they change, and the tensors that were trained and saved whole.
    """
    factors: dict[str, dict[str, StoredTensor]] = {}
    saved: dict[str, StoredTensor] = {}
    saved_modules = adapter.settings.get("modules_to_save") or []
    for name, tensor in _weights(adapter.folder).items():
        plain = name.removeprefix("base_model.model.")
        if not tensor.is_floating:
            raise CheckpointError(
                f"{tensor.file} contains {name} as {tensor.dtype}; weights are {', '.join(FLOATING.values())}. Ask for "
                "the adapter as it was trained, not a quantized copy."
            )
        if match := FACTOR.fullmatch(plain):
            factors.setdefault(f"{match[1]}.weight", {})[match[2]] = tensor
        elif any(f".{module}." in f".{plain}" for module in saved_modules):
            saved[SAVED.sub("", plain)] = tensor
        else:
            raise CheckpointError(
                f"{tensor.file} contains {name}, which is neither a LoRA factor nor a saved module. {RETRY}"
            )
    deltas = {}
    for name, pair in factors.items():
        if set(pair) != {"A", "B"} or name not in base:
            raise CheckpointError(
                f"The LoRA factors of {name} do not match the base {base_folder}: a factor or the tensor is missing."
            )
        up, down = pair["B"], pair["A"]
        rank = down.shape[0] if len(down.shape) == len(up.shape) == 2 else 0
        if not rank or up.shape != (base[name].shape[0], rank) or (up.shape[0], down.shape[1]) != base[name].shape:
            raise CheckpointError(
                f"The LoRA factors of {name} have shapes {up.shape} and {down.shape}, but the tensor in {base_folder} "
                f"has shape {base[name].shape}. Check that this is the right base."
            )
        scale = float(adapter.settings["lora_alpha"]) / (rank**0.5 if adapter.settings.get("use_rslora") else rank)
        deltas[name] = LoraDelta(up, down, scale)
    return deltas, saved


def _weights(folder: Path) -> dict[str, StoredTensor]:
    for name in ("adapter_model.safetensors", "adapter_model.bin"):
        if (folder / name).is_file():
            return list_tensors(folder / name)
    raise CheckpointError(f"{folder} has no adapter_model.safetensors. Download the adapter's weights.")
