"""Checks of config.json: a value that is malformed raises `CheckpointError` and names itself.

transformers checks some values, depending on its version, and derives finite but wrong numbers from others. Values that
are missing are not checked here: `Checkpoint.setting` reports those that are needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from surefoot.errors import CheckpointError

SIZES = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "max_position_embeddings",
    "sliding_window",
)
LARGEST_SIZE = 2**31 - 1
POSITIVE = ("rms_norm_eps", "rope_theta")
ROPE = ("rope_scaling", "rope_parameters")
ROPE_POSITIVE = (
    "factor",
    "rope_theta",
    "low_freq_factor",
    "high_freq_factor",
    "original_max_position_embeddings",
    "partial_rotary_factor",
    "attention_factor",
)
ATTENTION_KINDS = ("full_attention", "sliding_attention")


def check_config(config: Mapping[str, Any], file: Path) -> None:
    """Raise `CheckpointError` for values of the wrong type, sizes that cannot be, and heads that do not divide.

    >>> check_config({"hidden_size": -64}, Path("config.json"))
    Traceback (most recent call last):
    surefoot.errors.CheckpointError: config.json sets hidden_size to -64, not to a whole number from 1 to 2147483647.
    """

    def reject(name: str, value: Any, expected: str) -> CheckpointError:
        return CheckpointError(f"{file} sets {name} to {_short(value)}, not to {expected}.")

    given = {name: value for name, value in config.items() if value is not None}
    for name in SIZES:
        if name in given and not (_is_whole(given[name]) and 1 <= given[name] <= LARGEST_SIZE):
            raise reject(name, given[name], f"a whole number from 1 to {LARGEST_SIZE}")
    for name in POSITIVE:
        if name in given and not _is_positive(given[name]):
            raise reject(name, given[name], "a number above 0")
    if "model_type" in given and not isinstance(given["model_type"], str):
        raise reject("model_type", given["model_type"], "a name")
    if not _are_names(given.get("architectures", [])):
        raise reject("architectures", given["architectures"], "a list of names")
    kinds = given.get("layer_types", [])
    if not _are_names(kinds) or not set(kinds) <= set(ATTENTION_KINDS):
        raise reject("layer_types", kinds, f"a list of {' and '.join(ATTENTION_KINDS)}")
    if "sliding_attention" in kinds and not (given.get("sliding_window") and given.get("use_sliding_window", True)):
        raise CheckpointError(f"{file} has layers with sliding_attention but no sliding_window.")
    for name in ROPE:
        _check_rope(name, given.get(name, {}), reject)
    heads = given.get("num_attention_heads", 1)
    groups = given.get("num_key_value_heads", heads)
    if heads % groups:
        raise CheckpointError(f"{file}: {heads} attention heads cannot share {groups} key-value heads.")
    if "head_dim" not in given and given.get("hidden_size", heads) % heads:
        raise CheckpointError(f"{file}: hidden_size {given['hidden_size']} is not a multiple of {heads} heads.")


def _check_rope(name: str, value: Any, reject: Any) -> None:
    if not isinstance(value, dict):
        raise reject(name, value, "an object")
    for key in ("rope_type", "type"):
        if not isinstance(value.get(key, ""), str):
            raise reject(f"{name}.{key}", value[key], "a name")
    for key in ROPE_POSITIVE:
        if value.get(key) is not None and not _is_positive(value[key]):
            raise reject(f"{name}.{key}", value[key], "a number above 0")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value > 0


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)
