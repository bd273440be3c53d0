"""The memory that the catalog computes from the shape of a model is that of the weights which are loaded."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import surefoot
from helpers.small import CASES, write
from surefoot.engine.runner import Runner
from surefoot.families import CatalogEntry, Size
from surefoot.families.catalog import CATALOG
from surefoot.families.heads import BoundHead
from surefoot.scoring.local import load_local


def case(model: str) -> Callable[[Path], surefoot.Scorer]:
    (found,) = (each for each in CASES if each.model == model)
    return lambda folder: load_local(found.make(folder / model.rsplit("/", 1)[-1]), family_options=found.options)


def with_lora_weights(folder: Path) -> surefoot.Scorer:
    base = write(folder / "base", "qwen2", "Qwen2ForCausalLM", quiet=[76325])
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_{}.weight"
    (folder / "Math-psa").mkdir()
    save_file(
        {name.format("A"): torch.zeros(4, 32), name.format("B"): torch.zeros(32, 4)},
        folder / "Math-psa" / "adapter_model.safetensors",
    )
    settings = {"peft_type": "LORA", "base_model_name_or_path": str(base), "r": 4, "lora_alpha": 8}
    (folder / "Math-psa" / "adapter_config.json").write_text(json.dumps(settings | {"target_modules": ["q_proj"]}))
    return load_local(folder / "Math-psa")


def with_a_reference_model(folder: Path) -> surefoot.Scorer:
    model, reference = (
        write(folder / name, "qwen2", "Qwen2ForCausalLM", seed=seed)
        for seed, name in enumerate(("EurusPRM-Stage1", "reference"))
    )
    return load_local(model, family_options={"reference": str(reference)})


@pytest.mark.parametrize(
    ("model", "load"),
    [
        # The output layer is not loaded; of another one, only two rows are.
        ("Gen-Verse/ReasonFlux-PRM-7B", case("Gen-Verse/ReasonFlux-PRM-7B")),
        ("peiyi9979/math-shepherd-mistral-7b-prm", case("peiyi9979/math-shepherd-mistral-7b-prm")),
        # LoRA weights are merged into their base.
        ("openreasoner/Math-psa", with_lora_weights),
        # Two models with their output layers.
        ("PRIME-RL/EurusPRM-Stage1", with_a_reference_model),
    ],
)
def test_the_memory_is_that_of_the_loaded_weights(
    model: str, load: Callable[[Path], surefoot.Scorer], tmp_path: Path
) -> None:
    loaded = 0
    for runner in load(tmp_path).engines:
        assert isinstance(runner, Runner)
        assert isinstance(runner.head, BoundHead)
        loaded += sum(each.numel() for each in (*runner.backbone.parameters(), *runner.head.tensors.values()))
        config: Any = runner.backbone.config
    keys = config.hidden_size * config.num_key_value_heads // config.num_attention_heads
    size = Size(config.hidden_size, config.intermediate_size, config.num_hidden_layers, keys, config.vocab_size)
    (row,) = (row for row in CATALOG if row.id == model)
    small = CatalogEntry(row.id, row.family, size, two_models=row.two_models)
    assert loaded == pytest.approx(small.parameters, rel=0.02)
    assert small.bytes(nf4=False) == 2 * small.parameters
