"""Scorers that split, render and report here and let a vLLM server compute. No weights are read."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

from surefoot.client.api_key import find_key
from surefoot.client.transport import Transport
from surefoot.engine.checkpoint import open_config
from surefoot.engine.vllm import VllmEngine, served_model
from surefoot.errors import LoadError, OptionError
from surefoot.families import (
    PromptTokenizer,
    adopt_settings,
    check_settings,
    find_family,
    read_tokenizer_settings,
    recommended_aggregation,
    trained_tokens,
)
from surefoot.families.mini import locate
from surefoot.scoring.load_options import LoadOptions
from surefoot.scoring.local import as_calibration, chosen_options
from surefoot.scoring.pipeline import Pipeline
from surefoot.scoring.score_cache import as_score_cache
from surefoot.scoring.scorer import Scorer


def load_vllm(
    url: str,
    options: LoadOptions,
    *,
    tokenizer: str | Path | None = None,
    served_name: str | None = None,
    api_key: str | None = None,
    timeout: float = 600.0,
    patience: float = 60.0,
) -> Scorer:
    """A scorer whose numbers come from the vLLM server at `url`. For the options see `surefoot.load`."""
    calibration = as_calibration(options.calibration)
    transport = Transport(url, api_key=find_key(api_key), timeout=timeout, patience=patience, connections=4)
    served = served_model(transport, served_name)
    source = served.path if tokenizer is None else tokenizer
    try:
        folder, config = open_config(locate(source), options.revision)
    except LoadError as error:
        if tokenizer is not None:
            raise
        raise LoadError(
            f"The tokenizer of {served.path}, which {url} serves, cannot be read here ({error}). Pass the folder or "
            "hub id that has it: tokenizer=..."
        ) from error
    family = find_family(config.get("architectures") or [], options.family, model=str(source))
    if family.name != "qwen":
        raise OptionError(f"vLLM scores steps of Qwen's PRMs only, and this model's family is {family.name}.")
    settings = read_tokenizer_settings(folder)
    family = adopt_settings(family, settings, keep=chosen_options(options))
    # The server may run other weights or kernels than another server: its address is part of the identity.
    identity = f"VllmEngine {url} {served.name} {source} {json.dumps(config, sort_keys=True)} {family.identity()}"
    fingerprint = sha256(identity.encode()).hexdigest()
    if calibration is not None:
        calibration.check(served.name, fingerprint)
    context = int(config.get("max_position_embeddings") or 4096)
    limit = min(context, served.max_tokens, options.max_tokens or context)
    encoder = PromptTokenizer.from_folder(folder)
    checked = check_settings(family, encoder, settings)
    checked.report(served.name, strict=options.strict)
    recommended = recommended_aggregation(str(source), family)
    trained = trained_tokens(str(source), family, config)
    name = options.name or str(source)
    pipeline = Pipeline(name, family, encoder, limit, calibration, checked, recommended, trained)
    return Scorer(pipeline, [VllmEngine(transport, served.name)], fingerprint, as_score_cache(options.cache))
