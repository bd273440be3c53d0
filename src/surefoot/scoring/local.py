"""Loads a model into this process.

Everything is decided and checked here, once: device, dtype, attention, family, weights, calibration.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from surefoot.core.calibration import Calibration
from surefoot.engine.attention import choose_attention
from surefoot.engine.checkpoint import open_checkpoint
from surefoot.engine.fingerprint import fingerprint
from surefoot.engine.hardware import choose_device, choose_dtype
from surefoot.engine.heap import release_freed_memory
from surefoot.engine.precision import NumberFormat, choose_format
from surefoot.engine.quantization import computation, require
from surefoot.engine.quantized_cache import QuantizedCache, default_folder
from surefoot.engine.runner import FAST_CPU_BUDGET, Runner
from surefoot.engine.weights import load_weights
from surefoot.errors import CheckpointError, MissingDependencyError, OptionError
from surefoot.families import (
    Family,
    PromptTokenizer,
    adopt_settings,
    check_settings,
    find_family,
    read_tokenizer_settings,
    recommended_aggregation,
    trained_tokens,
)
from surefoot.families.heads import BoundHead
from surefoot.families.mini import locate, locate_calibration
from surefoot.scoring.load_options import DEFAULT_MODEL, CalibrationLike, LoadOptions
from surefoot.scoring.pipeline import Pipeline
from surefoot.scoring.score_cache import as_score_cache
from surefoot.scoring.scorer import Scorer
from surefoot.tokenization.tokenizer import tokenizer_folder

logger = logging.getLogger("surefoot")


def load_local(model: str | Path = DEFAULT_MODEL, **given: Any) -> Scorer:
    """Loads a folder, a hub id or `mini`. The options are those of `LoadOptions`; see also `surefoot.load`."""
    options = LoadOptions(**given)
    calibration = as_calibration(options.calibration)
    quantize = options.quantize
    where = choose_device(options.device)
    if quantize is not None:
        try:
            require(quantize, where)
        except (MissingDependencyError, OptionError) as error:
            if not options.quantize_fallback:
                raise
            logger.warning("Loading without quantization, as quantize_fallback allows: %s", error)
            quantize = None
    number = choose_dtype(options.dtype, where)
    how = choose_attention(options.attention, where, number)
    checkpoint = open_checkpoint(locate(model), options.revision, options.base)
    if options.precision != "exact":
        chosen = choose_format(options.precision, checkpoint, where)
        number, quantize = chosen.dtype, chosen.quantize
    architectures = checkpoint.config.get("architectures") or []
    kind = find_family(architectures, options.family, model=str(model), options=options.family_options)
    settings = read_tokenizer_settings(tokenizer_folder(*checkpoint.tokenizer_folders))
    kind = adopt_settings(kind, settings, keep=chosen_options(options))
    opened = [checkpoint]
    if kind.reference_model is not None:
        opened.append(open_checkpoint(kind.reference_model))
        if opened[1].config.get("vocab_size") != checkpoint.config.get("vocab_size"):
            raise CheckpointError(
                f"{kind.reference_model} has another vocabulary than {model}, so the two cannot be compared."
            )
    # The family's options are part of what is computed: which words are read, and how.
    loaded = {"family": kind.identity(), "dtype": str(number), "quantize": computation(quantize, where)}
    marks = [fingerprint(each, **loaded) for each in opened]
    mark = marks[0] if len(marks) == 1 else sha256(" ".join(marks).encode()).hexdigest()
    if calibration is not None:
        calibration.check(str(model), mark)

    @cache
    def tokenizer() -> PromptTokenizer:  # it takes a second to build: a checkpoint that does not fit is rejected before
        return PromptTokenizer.from_folder(*checkpoint.tokenizer_folders)

    runners, limit = [], options.max_tokens or sys.maxsize
    for each, own_mark in zip(opened, marks, strict=True):
        weights = load_weights(
            each,
            prefix=kind.backbone_prefix,
            head_shapes=kind.head_shapes(each.config),
            unused=kind.unused_tensors,
            dtype=number,
            device=where,
            attention=how,
            quantize=quantize,
            quantized=_quantized_cache(options, quantize, where, own_mark),
            reduce_head=lambda name, tensor: kind.reduce_head(tokenizer(), name, tensor),
            head_dtype=number if kind.head_in_model_dtype else torch.float32,
            prepack=not options.compile,
        )
        logger.info(
            "Loaded %s: family %s, %s, quantization %s, attention %s, on %s, %.2f GB of weights.",
            model if each is checkpoint else kind.reference_model,
            kind.name,
            str(number).removeprefix("torch."),
            quantize or "none",
            how,
            where,
            weights.bytes / 1e9,
        )
        runner = Runner(
            weights.backbone,
            BoundHead(kind, weights.head),
            device=where,
            dtype=number,
            attention_name=how,
            compile=options.compile,
            budget=FAST_CPU_BUDGET if quantize == "int8" else None,
            threads=None if options.threads == "auto" else options.threads,
        )
        runners.append(runner)
        limit = min(limit, weights.context)
    checked = check_settings(kind, tokenizer(), settings)
    checked.report(str(model), strict=options.strict)
    recommended = recommended_aggregation(str(model), kind)
    trained = trained_tokens(str(model), kind, checkpoint.config)
    pipeline = Pipeline(
        options.name or str(model),
        kind,
        tokenizer(),
        limit,
        calibration,
        checked,
        recommended,
        trained,
        NumberFormat(number, quantize).name,
    )
    if where.type == "cpu":
        release_freed_memory()
    return Scorer(pipeline, runners, mark, as_score_cache(options.cache))


def _quantized_cache(
    options: LoadOptions, quantize: str | None, device: torch.device, mark: str
) -> QuantizedCache | None:
    if options.quantize_cache is False or quantize != "nf4":
        return None
    if device.type != "cpu":
        logger.info("quantize_cache is not used on %s, which quantizes in seconds.", device)
        return None
    folder = default_folder() if options.quantize_cache is True else Path(options.quantize_cache)
    return QuantizedCache(folder, mark)


def chosen_options(options: LoadOptions) -> set[str]:
    """The family's options that the user chose: the tokenizer files of a checkpoint do not change them."""
    if isinstance(options.family, Family):
        return {field.name for field in fields(options.family)}
    return set(options.family_options or {})


def as_calibration(given: CalibrationLike | Sequence[CalibrationLike | None] | None) -> Calibration | None:
    """Reads a calibration from its file, unless it is one already. `mini` is that of the embedded model."""
    if isinstance(given, Sequence) and not isinstance(given, str):
        raise OptionError("calibration: a list is for a list of models. Pass one calibration for one model.")
    return Calibration.read(locate_calibration(given)) if isinstance(given, str | Path) else given
