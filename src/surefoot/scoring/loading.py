"""From the name of a model to a scorer.

The rule: everything is decided and checked here, once: device, number format, attention, family, weights, calibration.
What comes out only scores.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from surefoot.core.calibration import Calibration
from surefoot.engine.attention import choose_attention
from surefoot.engine.checkpoint import open_checkpoint, open_config
from surefoot.engine.fingerprint import fingerprint
from surefoot.engine.hardware import choose_device, choose_dtype
from surefoot.engine.quantization import QUANTIZATIONS, Quantization, require
from surefoot.engine.runner import Runner
from surefoot.engine.weights import load_weights
from surefoot.errors import CheckpointError, MissingDependencyError, OptionError
from surefoot.families import Family, PromptTokenizer, find_family
from surefoot.families.mini import NAME, locate
from surefoot.scoring.scorer import Engine, Scorer

logger = logging.getLogger("surefoot")


def load(
    model: str | Path = NAME,
    *,
    quantize: Quantization | None = None,
    quantize_fallback: bool = False,
    dtype: str | torch.dtype = "auto",
    device: str | torch.device = "auto",
    attention: str = "auto",
    compile: bool | Literal["auto"] = "auto",
    revision: str | None = None,
    family: str | None = None,
    family_options: Mapping[str, Any] | None = None,
    base: str | Path | None = None,
    max_tokens: int | None = None,
    calibration: str | Path | Calibration | None = None,
) -> Scorer:
    """Loads a PRM once; the scorer can then be called as often as needed.

    `model` is a folder, a hub id, or `mini`: the small model that comes with this package. Its family is known by the
    name or by config.json; where it is not, `family` names it. `family_options` change how the family is asked and
    read. `base` is the model that LoRA weights belong to, if not the one that they name. `max_tokens` lowers the limit
    on a prompt's length, which is the model's context.
    `quantize_fallback` loads the model unquantised, with a warning, where the quantisation cannot be done. `compile`
    compiles the forward pass: "auto" does so for long jobs in half precision on the CPU, where it wins most.
    `calibration`, a file of `surefoot calibrate` or what is in it, is applied to every step score.
    """
    if quantize is not None and quantize not in QUANTIZATIONS:
        raise OptionError(f"quantize={quantize!r} is not offered. Choose one of: {', '.join(QUANTIZATIONS)}, or None.")
    if max_tokens is not None and max_tokens < 1:
        raise OptionError(f"max_tokens={max_tokens} leaves no room. Give a number above 0, or None for the context.")
    if compile not in (True, False, "auto"):
        raise OptionError(f"compile={compile!r} is not offered. Choose True, False or 'auto'.")
    if compile is True and quantize == "int8":
        raise OptionError('compile=True and quantize="int8" do not go together: 8-bit kernels cannot be compiled.')
    if isinstance(calibration, str | Path):
        calibration = Calibration.read(calibration)
    where = choose_device(device)
    if quantize is not None:
        try:
            require(quantize, where)
        except (MissingDependencyError, OptionError) as error:
            if not quantize_fallback:
                raise
            logger.warning("Loading without quantisation, as quantize_fallback allows: %s", error)
            quantize = None
    number = choose_dtype(dtype, where)
    how = choose_attention(attention, where, number)
    checkpoint = open_checkpoint(locate(model), revision, base)
    kind = find_family(checkpoint.config.get("architectures") or [], family, model=str(model), options=family_options)
    opened = [checkpoint]
    if kind.second_model is not None:
        opened.append(open_checkpoint(kind.second_model))
        if opened[1].config.get("vocab_size") != checkpoint.config.get("vocab_size"):
            raise CheckpointError(
                f"{kind.second_model} has another vocabulary than {model}, so the two cannot be compared."
            )
    # The family's options are part of what is computed: which words are read, and how.
    loaded = {"family": repr(kind), "dtype": str(number), "quantize": quantize or "none"}
    marks = [fingerprint(each, **loaded) for each in opened]
    mark = marks[0] if len(marks) == 1 else sha256(" ".join(marks).encode()).hexdigest()
    if calibration is not None:
        calibration.check(str(model), mark)
    runners, limit = [], max_tokens or sys.maxsize
    for each in opened:
        weights = load_weights(
            each,
            prefix=kind.backbone_prefix,
            head_shapes=kind.head_shapes(each.config),
            unused=kind.unused_tensors,
            dtype=number,
            device=where,
            attention=how,
            quantize=quantize,
            # The tokenizer takes a second to build: a checkpoint that does not fit is refused before.
            keep=lambda name, tensor: kind.keep(
                PromptTokenizer.from_folder(*checkpoint.tokenizer_folders), name, tensor
            ),
            head_dtype=number if kind.head_in_model_dtype else torch.float32,
        )
        logger.info(
            "Loaded %s: family %s, %s, quantisation %s, attention %s, on %s, %.2f GB of weights.",
            model if each is checkpoint else kind.second_model,
            kind.name,
            str(number).removeprefix("torch."),
            quantize or "none",
            how,
            where,
            weights.bytes / 1e9,
        )
        runner = Runner(
            weights.backbone,
            partial(_read, kind, weights.head),
            device=where,
            dtype=number,
            attention_name=how,
            compile=False if quantize == "int8" else compile,
        )
        runners.append(runner)
        limit = min(limit, weights.context)
    tokenizer = PromptTokenizer.from_folder(*checkpoint.tokenizer_folders)
    return Scorer(str(model), kind, tokenizer, runners, limit, mark, calibration)


def _read(family: Family, head: Mapping[str, Tensor], hidden: Tensor, targets: Tensor | None) -> Tensor:
    return family.read(head, hidden) if targets is None else family.read_targets(head, hidden, targets)


def with_engine(
    model: str | Path,
    engine: Engine,
    *,
    identity: str,
    name: str | None = None,
    revision: str | None = None,
    family: str | None = None,
    max_tokens: int | None = None,
) -> Scorer:
    """A scorer that splits, renders and reports here, and whose numbers come from `engine`. No weights are read.

    `model` is the folder or hub id whose config.json and tokenizer the engine's model has. `identity` tells engines
    apart whose numbers may differ: it is part of the fingerprint, by which scores are kept and calibrations belong.
    """
    folder, config = open_config(locate(model), revision)
    kind = find_family(config.get("architectures") or [], family, model=str(model))
    context = int(config.get("max_position_embeddings") or 4096)
    mark = sha256(
        f"{type(engine).__name__} {identity} {json.dumps(config, sort_keys=True)} {kind!r}".encode()
    ).hexdigest()
    limit = min(context, max_tokens or context)
    return Scorer(name or str(model), kind, PromptTokenizer.from_folder(folder), [engine], limit, mark)
