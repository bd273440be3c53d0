"""Load a causal language model of transformers from a folder or the hub.

Invariant: no code and no pickles of the repository are used. The class is one of transformers' own, its weights are
safetensors, and the files hold exactly the tensors that the class expects.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from surefoot.core.options import Quantization
from surefoot.data.hub import find_folder
from surefoot.engine.hardware import choose_device, choose_dtype
from surefoot.engine.int8 import quantize_layers
from surefoot.engine.quantization import nf4_linear, require
from surefoot.errors import CheckpointError, LoadError, SurefootError

DOWNLOAD = ("*.json", "*.jinja", "*.safetensors", "*.model", "*.tiktoken", "merges.txt", "vocab.txt")
CODE_SETTING = re.compile(r"auto_map|_?(attn|experts)_implementation(_internal)?|custom_generate")
"""Settings that can refer to code, in the repository or as kernels on the hub."""
LISTED = 5
"""How many tensors an error names."""


@dataclass(frozen=True)
class LoadedModel:
    """A causal language model that is ready to run."""

    model: nn.Module
    folder: Path
    device: torch.device
    dtype: torch.dtype
    context: int | None
    """The most tokens of a sequence; None if the config does not limit them."""
    end_ids: frozenset[int]
    """The end-of-turn tokens in generation_config.json and config.json."""
    vocabulary: int | None
    """The number of input tokens; None if the class does not say."""
    pads: bool = True
    """Whether sequences of different lengths can be computed together. Sparse attention that selects tokens counts
    padding, too."""


def find_model_folder(model: str | Path, revision: str | None = None) -> Path:
    """Return the folder of a model. A hub id is downloaded, unless it is in the cache."""
    return find_folder(model, DOWNLOAD, revision, example="'Qwen/Qwen2.5-1.5B-Instruct'.")


def load_model(
    folder: Path, *, device: str = "auto", dtype: str = "auto", quantize: Quantization | None = None
) -> LoadedModel:
    """Load the model in a folder. `quantize` stores its linear layers in 8 or 4 bits."""
    chosen_device = choose_device(device)
    chosen_dtype = choose_dtype(dtype, chosen_device)
    if quantize is not None:
        require(quantize, chosen_device)
    _check_config(folder)
    if not weight_files(folder):
        raise CheckpointError(
            f"{folder} has no .safetensors file. Download the model's weights in that format; pickled weights (.bin) "
            "can run code and are not loaded."
        )
    try:
        model, config = _from_pretrained(folder, chosen_dtype)
        if quantize is not None:
            _quantize_linears(model, quantize, chosen_dtype, chosen_device)
        model.to(chosen_device).eval()
        _check_cache(model, folder, chosen_device)
    except SurefootError:
        raise
    except torch.OutOfMemoryError as error:
        raise LoadError(f"{folder} does not fit into the memory of {chosen_device}: {error}") from error
    except Exception as error:
        problem = " ".join(str(error).split())[:300]
        raise CheckpointError(
            f"transformers cannot load {folder} ({type(error).__name__}: {problem}). Check that the download is "
            "complete, and that transformers is recent enough for this model."
        ) from error
    ends = [*_ids(getattr(model, "generation_config", None)), *_ids(config), *_ids(config.get_text_config())]
    vocabulary = getattr(model.get_input_embeddings(), "num_embeddings", None)  # type: ignore[operator]
    pads = getattr(config.get_text_config(), "index_topk", None) is None
    return LoadedModel(model, folder, chosen_device, chosen_dtype, _context(config), frozenset(ends), vocabulary, pads)


def weight_files(folder: Path) -> list[Path]:
    """The files from which transformers reads the weights; none if there are no safetensors."""
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.is_file():
        return [single]
    shards = _read_json(index).get("weight_map") if index.is_file() else {}
    if not isinstance(shards, dict):
        raise CheckpointError(f"{index} has no weight_map. Download it again.")
    for name in shards.values():
        if not isinstance(name, str) or name != Path(name).name or not name.endswith(".safetensors"):
            raise CheckpointError(f"{index} names {str(name)[:200]!r}, which is not a .safetensors file in its folder.")
    files = [folder / name for name in sorted(set(shards.values()))]
    if missing := [file.name for file in files if not file.is_file()]:
        raise CheckpointError(f"{folder} lacks {', '.join(missing[:LISTED])}, listed in {index.name}. Download them.")
    return files


def _read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{file} cannot be read: {error}. Download it again.") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{file} does not contain a JSON object. Download it again.")
    return content


def _check_config(folder: Path) -> None:
    """Check that config.json describes a causal language model that transformers has a class for."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL

    file = folder / "config.json"
    if (folder / "adapter_config.json").is_file():
        raise LoadError(
            f"{folder} has an adapter (LoRA). Merge it into its base model, save that, and pass its folder."
        )
    if not file.is_file():
        raise LoadError(f"{folder} has no config.json, so it is not a model folder.")
    raw = _read_json(file)
    kind, names = raw.get("model_type"), raw.get("architectures") or []
    if kind not in CAUSAL:
        needs_code = " It needs code from its repository, which is never run." if "auto_map" in raw else ""
        raise CheckpointError(
            f"{file} has model_type {kind!r}, for which this version of transformers has no causal language model."
            f"{needs_code} Use a model that transformers supports, or serve it elsewhere and pass the server's address."
        )
    classes = {name for each in CAUSAL.values() for name in ([each] if isinstance(each, str) else each)}
    if names and not any(name in classes for name in names):
        raise CheckpointError(
            f"{folder} is not a causal language model: its architecture is {', '.join(map(str, names))[:200]}. Pass a "
            "model that writes text, such as the one that a reward model was trained from."
        )


def _from_pretrained(folder: Path, dtype: torch.dtype) -> tuple[nn.Module, Any]:
    from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING, PretrainedConfig

    from surefoot.generate.local_attention import attention_for

    raw, _ = PretrainedConfig.get_config_dict(folder, local_files_only=True)
    config = CONFIG_MAPPING[raw["model_type"]].from_dict(_without_code(raw))
    model_class = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    attention = attention_for(model_class)
    with _without_progress_bar():
        model, loaded = model_class.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            attn_implementation=attention,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    problems = [
        f"{title}: {', '.join(names[:LISTED])}{f' and {len(names) - LISTED} more' if len(names) > LISTED else ''}"
        for title, kind in (
            ("missing", "missing_keys"),
            ("unexpected", "unexpected_keys"),
            ("wrong shape", "mismatched_keys"),
        )
        if (names := sorted(map(str, loaded.get(kind) or ())))
    ]
    if problems:
        raise CheckpointError(
            f"The tensors in {folder} do not match its config.json. {'; '.join(problems)}. Check that the download is "
            "complete and that this is a language model."
        )
    return model, config


@torch.inference_mode()
def _quantize_linears(model: nn.Module, quantize: Quantization, dtype: torch.dtype, device: torch.device) -> None:
    """Replace the linear layers one after the other, with the head. Embeddings keep their precision, also tied ones."""
    if quantize == "int8":
        quantize_layers(
            model,
            lambda path: dict(model.get_submodule(path).named_parameters(recurse=False)),
            dtype=dtype,
            device=device,
        )
        return
    linears = [(name, module) for name, module in model.named_modules() if type(module) is nn.Linear]
    for name, module in linears:
        bias = None if module.bias is None else module.bias.detach()
        model.set_submodule(name, nf4_linear(module.weight.detach(), bias, dtype, device))


@torch.inference_mode()
def _check_cache(model: nn.Module, folder: Path, device: torch.device) -> None:
    """Run one token. A model may take a KV cache and still return none that sequences can be taken from."""
    cache = None
    if "past_key_values" in inspect.signature(model.forward).parameters:
        token = torch.zeros(1, 1, dtype=torch.long, device=device)
        cache = getattr(model(input_ids=token, use_cache=True, return_dict=True), "past_key_values", None)
    if not hasattr(cache, "reorder_cache"):
        raise CheckpointError(f"{folder} has no KV cache ({type(model).__name__}), so it cannot generate here.")


@contextmanager
def _without_progress_bar() -> Iterator[None]:
    from transformers.utils import logging

    enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if enabled:
            logging.enable_progress_bar()


def _without_code(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _without_code(value) if isinstance(value, dict) else value
        for name, value in settings.items()
        if not CODE_SETTING.fullmatch(name)
    }


def _context(config: Any) -> int | None:
    """The longest sequence. Rotary angles that change with the longest sequence of a batch are not used."""
    text = config.get_text_config()
    limits = [getattr(text, "max_position_embeddings", None)]
    rope = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}
    for each in _nested(rope):
        if each.get("rope_type", each.get("type")) in ("dynamic", "longrope"):
            limits += [each.get("original_max_position_embeddings")]
            limits += [getattr(text, "original_max_position_embeddings", None)]
    return min((int(each) for each in limits if each), default=None)


def _nested(settings: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Settings of rotary embeddings: one set for all layers, or one per kind of layer."""
    yield settings
    yield from (each for each in settings.values() if isinstance(each, Mapping))


def _ids(source: Any) -> list[int]:
    found = getattr(source, "eos_token_id", None)
    return [] if found is None else [found] if isinstance(found, int) else [int(each) for each in found]
