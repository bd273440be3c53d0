"""Write a trained model as a folder that `surefoot.load` reads: config.json, tokenizer.json, model.safetensors.

Invariant: files are written atomically and contain only the model. Weights can be stored in 8 or 4 bits; embeddings and
head always take 8 bits then: scores depend on them most.
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
from surefoot.families.mini.surprise import INTERCEPT, SURPRISE
from surefoot.train.model import Trainee

OUTPUT_WEIGHT, OUTPUT_BIAS = "score.2.weight", "score.2.bias"
PACKED = {"int8": 8, "int4": 4}
FORMATS = (*DTYPES, *PACKED)


def export(
    trainee: Trainee,
    folder: Path,
    *,
    weights: Mapping[str, Tensor] | None = None,
    dtype: str = "float32",
    trained_tokens: int | None = None,
) -> Path:
    """Write the trainee, optionally with other `weights`, and return the folder.

    `trained_tokens` is the length of the longest prompt in training. Scoring warns about longer ones.
    """
    if dtype not in FORMATS:
        raise OptionError(f"dtype={dtype!r} is not supported. Choose one of: {', '.join(FORMATS)}.")
    folder.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, Tensor] = {}
    for name, tensor in (trainee.model.state_dict() if weights is None else weights).items():
        tensors |= _stored(name, tensor.detach().cpu(), dtype)
    _write(folder / "model.safetensors", lambda file: save_file(tensors, file, metadata={"format": "pt"}))
    settings = trainee.config | {"torch_dtype": "float32" if dtype in PACKED else dtype}
    if trained_tokens is not None:
        settings["trained_tokens"] = trained_tokens
    config = json.dumps(settings, indent=2) + "\n"
    tokenizer = json.dumps(trainee.tokenizer_json, ensure_ascii=False)
    _write(folder / "tokenizer.json", lambda file: file.write_text(tokenizer, encoding="utf-8"))
    _write(folder / "config.json", lambda file: file.write_text(config, encoding="utf-8"))
    return folder


def change_head(weights: Mapping[str, Tensor], mlp: float, surprise: Tensor | None = None) -> dict[str, Tensor]:
    """Multiply the logit of the MLP, and replace the weights of log-probabilities and, after them, the intercept."""
    changed = {name: weights[name] * mlp for name in (OUTPUT_WEIGHT, OUTPUT_BIAS)}
    if surprise is not None:
        changed[SURPRISE] = surprise[:-1].reshape(weights[SURPRISE].shape).to(weights[SURPRISE])
        changed[INTERCEPT] = surprise[-1:].to(weights[INTERCEPT])
    return {**weights, **changed}


def move_threshold(weights: Mapping[str, Tensor], threshold: float, scale: float = 1.0) -> dict[str, Tensor]:
    """Change the head so that the score `threshold` becomes 0.5, then multiply the logits by `scale`."""
    if not 0.0 < threshold < 1.0:
        raise OptionError(f"The threshold is {threshold}; it must be between 0 and 1.")
    if not 0.0 < scale < math.inf:
        raise OptionError(f"The scale is {scale}; it must be above 0 and finite.")
    shift = math.log(threshold / (1 - threshold))
    bias = weights[OUTPUT_BIAS]
    moved = bias + torch.tensor([shift / 2, -shift / 2], dtype=bias.dtype, device=bias.device)
    surprise = torch.cat([weights[SURPRISE].flatten(), weights[INTERCEPT]]) * scale if SURPRISE in weights else None
    return change_head({**weights, OUTPUT_BIAS: moved}, scale, surprise)


def as_stored(weights: Mapping[str, Tensor], dtype: str) -> dict[str, Tensor]:
    """Return the weights as they will be loaded: rounded to the precision of the format, in float32."""
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
    codes, scales = pack(tensor, PACKED[dtype] if ".layers." in name else 8)
    return {name + CODES: codes, name + SCALES: scales}


def _write(file: Path, write: Callable[[Path], object]) -> None:
    part = file.with_name(file.name + ".part")
    write(part)
    # safetensors creates files that only their owner can read.
    part.chmod(0o644)
    os.replace(part, file)
