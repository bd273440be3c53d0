"""LoRA weights on a base model, merged as they are read.

The rule: W + scale * B @ A, in float32, tensor by tensor, so that the model in memory is an ordinary one. Every tensor
of the adapter has to find its place, and a kind of adapter that would need more than this sum is refused.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

from surefoot.engine.checkpoint import AGAIN, Checkpoint, Delta, TensorPlace, list_tensors, open_checkpoint, read_json
from surefoot.errors import CheckpointError, LoadError

FACTOR = re.compile(r"(.*)\.lora_(A|B)(?:\.default)?\.weight")
SAVED = re.compile(r"\.modules_to_save\.default|\.modules_to_save")
NOT_A_SUM = ("use_dora", "fan_in_fan_out", "alpha_pattern", "layer_replication", "lora_bias", "trainable_token_indices")
"""Settings under which a layer is more than W + scale * B @ A, or scales differ between layers."""
LEAVES_THE_BASE = ("gaussian", "eva")
"""Ways to start by name that take nothing out of the base; PiSSA, OLoRA and their like do."""


def open_adapter(folder: Path, base: str | Path | None = None) -> Checkpoint:
    """The base that the adapter names, or the one given, with the adapter's weights added as they are read."""
    settings = read_json(folder / "adapter_config.json")
    _check_kind(folder, settings)
    named = base or settings.get("base_model_name_or_path")
    if not named:
        raise LoadError(f"{folder} does not say which model its LoRA weights belong to. Say so with base=...")
    try:
        whole = open_checkpoint(named)
    except LoadError as error:
        raise LoadError(
            f"The base of the LoRA weights in {folder} was not opened: {error} Or name it: base=..."
        ) from error
    if whole.adapter is not None:
        raise CheckpointError(f"{named} holds LoRA weights too. Merge the two first.")
    deltas, saved = _sort_out(_weights(folder), settings, whole)
    return dataclasses.replace(whole, tensors=whole.tensors | saved, deltas=deltas, adapter=(folder, settings))


def _check_kind(folder: Path, settings: dict[str, Any]) -> None:
    kind = settings.get("peft_type")
    more = [name for name in NOT_A_SUM if settings.get(name)]
    start = settings.get("init_lora_weights")
    if isinstance(start, str) and start not in LEAVES_THE_BASE:
        more.append(f"init_lora_weights={start}")
    if kind != "LORA" or more:
        raise CheckpointError(
            f"The adapter in {folder} is {kind or 'of no stated kind'}{' with ' + ', '.join(more) if more else ''}; "
            "plain LoRA is supported. Merge it into its base with peft and load the result."
        )


def _weights(folder: Path) -> dict[str, TensorPlace]:
    for name in ("adapter_model.safetensors", "adapter_model.bin"):
        if (folder / name).is_file():
            return list_tensors(folder / name)
    raise CheckpointError(f"{folder} has no adapter_model.safetensors. Download the adapter's weights.")


def _sort_out(
    places: dict[str, TensorPlace], settings: dict[str, Any], base: Checkpoint
) -> tuple[dict[str, Delta], dict[str, TensorPlace]]:
    """The factors by the tensor that they change, and the tensors that were trained and saved whole."""
    factors: dict[str, dict[str, TensorPlace]] = {}
    saved: dict[str, TensorPlace] = {}
    whole = settings.get("modules_to_save") or []
    for name, place in places.items():
        plain = name.removeprefix("base_model.model.")
        if match := FACTOR.fullmatch(plain):
            factors.setdefault(f"{match[1]}.weight", {})[match[2]] = place
        elif any(f".{module}." in f".{plain}" for module in whole):
            saved[SAVED.sub("", plain)] = place
        else:
            raise CheckpointError(f"{place.file} holds {name}, which is neither a LoRA factor nor saved whole. {AGAIN}")
    deltas = {}
    for name, pair in factors.items():
        if set(pair) != {"A", "B"} or name not in base.tensors:
            raise CheckpointError(
                f"The LoRA factors of {name} do not fit the base {base.folder}: one is missing there."
            )
        up, down = pair["B"], pair["A"]
        rank = down.shape[0]
        if (up.shape[0], down.shape[1]) != base.tensors[name].shape or up.shape[1] != rank:
            raise CheckpointError(
                f"The LoRA factors of {name} are {up.shape} and {down.shape}, and the tensor in {base.folder} is "
                f"{base.tensors[name].shape}. Check that it is the right base."
            )
        scale = float(settings["lora_alpha"]) / (rank**0.5 if settings.get("use_rslora") else rank)
        deltas[name] = Delta(up, down, scale)
    return deltas, saved
