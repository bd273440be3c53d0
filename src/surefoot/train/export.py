"""A trained model as a checkpoint folder that `surefoot.load` reads: config.json, tokenizer.json, model.safetensors.

The rule: files appear whole or not at all, and hold nothing but the model. Weights can be stored in 8 or 4 bits (see
`engine.packed`); embeddings, attention and head take 8 bits then: they are few, and scores suffer most from them.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from surefoot.engine.hardware import DTYPES
from surefoot.engine.packed_weights import CODES, SCALES, can_pack, pack, unpack
from surefoot.errors import OptionError
from surefoot.train.model import Trainee

OUTPUT_BIAS = "score.2.bias"
PACKED = {"int8": 8, "int4": 4}
FORMATS = (*DTYPES, *PACKED)


def export(
    trainee: Trainee, folder: Path, *, weights: Mapping[str, Tensor] | None = None, dtype: str = "float32"
) -> Path:
    """Writes the trainee, or other `weights` in its place, and gives back the folder."""
    if dtype not in FORMATS:
        raise OptionError(f"dtype={dtype!r} is not offered. Choose one of: {', '.join(FORMATS)}.")
    folder.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, Tensor] = {}
    for name, tensor in (trainee.model.state_dict() if weights is None else weights).items():
        tensors |= _stored(name, tensor.detach().cpu(), dtype)
    _write(folder / "model.safetensors", lambda file: save_file(tensors, file, metadata={"format": "pt"}))
    config = json.dumps(trainee.config | {"torch_dtype": "float32" if dtype in PACKED else dtype}, indent=2) + "\n"
    tokenizer = json.dumps(trainee.tokenizer_json, ensure_ascii=False)
    _write(folder / "tokenizer.json", lambda file: file.write_text(tokenizer, encoding="utf-8"))
    _write(folder / "config.json", lambda file: file.write_text(config, encoding="utf-8"))
    return folder


def move_threshold(weights: Mapping[str, Tensor], threshold: float) -> dict[str, Tensor]:
    """The weights with the head's bias shifted such that what scored `threshold` scores 0.5."""
    if not 0.0 < threshold < 1.0:
        raise OptionError(f"The threshold is {threshold}; it must lie between 0 and 1.")
    shift = math.log(threshold / (1 - threshold))
    bias = weights[OUTPUT_BIAS]
    return {**weights, OUTPUT_BIAS: bias + torch.tensor([shift / 2, -shift / 2], dtype=bias.dtype, device=bias.device)}


def as_stored(weights: Mapping[str, Tensor], dtype: str) -> dict[str, Tensor]:
    """The weights as they will be read back: rounded to what the format can hold, in float32."""
    read: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        stored = _stored(name, tensor.detach().cpu(), dtype)
        back = stored[name] if name in stored else unpack(stored[name + CODES], stored[name + SCALES])
        read[name] = back.to(tensor.device, torch.float32)
    return read


def _stored(name: str, tensor: Tensor, dtype: str) -> dict[str, Tensor]:
    if dtype not in PACKED:
        return {name: tensor.to(DTYPES[dtype]).contiguous()}
    if not can_pack(tuple(tensor.shape)):
        return {name: tensor.float().contiguous()}
    codes, scales = pack(tensor, PACKED[dtype] if ".mlp." in name else 8)
    return {name + CODES: codes, name + SCALES: scales}


def _write(file: Path, write: Callable[[Path], object]) -> None:
    part = file.with_name(file.name + ".part")
    write(part)
    # safetensors makes files that nobody else may read.
    part.chmod(0o644)
    os.replace(part, file)
