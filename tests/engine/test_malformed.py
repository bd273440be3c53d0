"""Malformed checkpoints: every one is a `LoadError` that names the problem, and exit code 2 of the command line."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import surefoot
from helpers.card import CARD_QUESTION, CARD_STEPS
from surefoot.cli.exit_codes import FAILED
from surefoot.cli.main import main
from surefoot.engine.packed_weights import pack
from surefoot.errors import CheckpointError, LoadError
from surefoot.scoring.local import load_local
from surefoot.testing import write_base, write_qwen_checkpoint

NAN, INFINITY = float("nan"), float("inf")


def test_the_original_is_well_formed(tiny: Path) -> None:
    assert load_local(tiny).score(CARD_QUESTION, CARD_STEPS).status == "scored"


def copy_with(source: Path, folder: Path, file: str, content: str | bytes) -> Path:
    """A checkpoint with one other file. The others are links, as in the hub's cache."""
    folder.mkdir()
    for each in source.iterdir():
        if each.name != file:
            (folder / each.name).symlink_to(each)
    raw = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    (folder / file).write_bytes(raw)
    return folder


def assert_rejected(model: Path, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(LoadError, match=message):
        load_local(model)
    capsys.readouterr()
    assert main(["check", str(model)]) == FAILED == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("surefoot:")]
    assert re.search(message, line), line


# --- config.json ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        "3",
        '"text"',
        "[" * 100_000,
        '{"a":' * 100_000,
        b"\xff\xfe{}",
        '{"a": ' + "9" * 5000 + "}",
    ],
    ids=["empty", "open", "list", "null", "number", "string", "deep list", "deep object", "not UTF-8", "5000 digits"],
)
@pytest.mark.parametrize("file", ["config.json", "model.safetensors.index.json", "tokenizer.json"])
def test_files_that_are_not_json_objects(
    tiny: Path, tmp_path: Path, file: str, content: str | bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    message = r"is not valid JSON|does not contain a JSON object|Cannot read a tokenizer|has no weight_map"
    assert_rejected(copy_with(tiny, tmp_path / "model", file, content), message, capsys)


SIZE = "not to a whole number from 1 to"
CONFIGS: list[tuple[str, Any, str]] = [
    ("hidden_act", "evil", "hidden_act 'evil', which is not an activation function"),
    ("hidden_act", 7, "hidden_act 7, which is not an activation function"),
    ("hidden_act", ["silu"], "hidden_act .* which is not an activation function"),
    *((name, value, f"{name} to .* {SIZE}") for name in ("hidden_size", "vocab_size") for value in (-64, "64", 64.5)),
    ("hidden_size", True, SIZE),
    ("hidden_size", [64], SIZE),
    ("hidden_size", NAN, SIZE),
    ("hidden_size", 0, SIZE),
    ("hidden_size", 10**30, SIZE),
    ("hidden_size", 2**31 - 1, r"is not a multiple of 4 heads"),
    ("hidden_size", 2**30, "wrong shape"),
    ("hidden_size", None, "does not set 'hidden_size'|must set 'hidden_size'"),
    ("intermediate_size", -1, SIZE),
    ("intermediate_size", 2**31 - 1, "wrong shape"),
    ("vocab_size", 2**31 - 1, "wrong shape"),
    ("num_hidden_layers", -1, SIZE),
    ("num_hidden_layers", 10**9, r"num_hidden_layers to 1000000000, but .* has only \d+ tensors"),
    ("num_hidden_layers", 3, "missing: model.layers.2"),
    ("num_hidden_layers", 1, "unexpected: model.layers.1"),
    ("num_hidden_layers", None, "does not set 'num_hidden_layers'"),
    ("num_attention_heads", 0, SIZE),
    ("num_attention_heads", 3, "cannot share"),
    ("num_attention_heads", 6, "is not a multiple of 6 heads"),
    ("num_attention_heads", 10**9, "is not a multiple of 1000000000 heads"),
    ("num_key_value_heads", 0, SIZE),
    ("num_key_value_heads", 3, "4 attention heads cannot share 3 key-value heads"),
    ("head_dim", 0, SIZE),
    ("head_dim", 7, "cannot build the model|wrong shape"),
    ("head_dim", "16", SIZE),
    ("max_position_embeddings", 0, SIZE),
    ("max_position_embeddings", -5, SIZE),
    ("max_position_embeddings", "many", SIZE),
    ("max_position_embeddings", INFINITY, SIZE),
    ("max_position_embeddings", 2**31 - 1, "lose precision|cannot build the model"),
    ("sliding_window", -1, SIZE),
    ("sliding_window", "x", SIZE),
    ("use_sliding_window", "yes", "sliding-window attention|cannot build the model"),
    ("layer_types", ["evil", "evil"], "layer_types to .* not to a list of full_attention"),
    ("layer_types", "x", "layer_types to 'x'"),
    ("layer_types", ["sliding_attention"] * 2, "sliding_attention but no sliding_window"),
    ("rms_norm_eps", "small", "rms_norm_eps to 'small', not to a number above 0"),
    ("rms_norm_eps", -1.0, "not to a number above 0"),
    ("rms_norm_eps", NAN, "not to a number above 0"),
    ("rope_theta", 0, "not to a number above 0"),
    ("rope_theta", INFINITY, "not to a number above 0"),
    ("rope_theta", {}, "not to a number above 0"),
    ("rope_scaling", "linear", "rope_scaling to 'linear', not to an object"),
    ("rope_scaling", [1], "not to an object"),
    ("rope_scaling", {"type": "evil"}, "cannot build the model"),
    ("rope_scaling", {"rope_type": 7}, "rope_scaling.rope_type to 7, not to a name"),
    ("rope_scaling", {"rope_type": ["yarn"]}, "not to a name"),
    ("rope_scaling", {"rope_type": "linear"}, "cannot build the model"),
    ("rope_scaling", {"rope_type": "linear", "factor": "x"}, "rope_scaling.factor to 'x', not to a number above 0"),
    ("rope_scaling", {"rope_type": "linear", "factor": -2.0}, "not to a number above 0"),
    ("rope_scaling", {"rope_type": "linear", "factor": NAN}, "not to a number above 0"),
    ("rope_scaling", {"rope_type": "llama3"}, "cannot build the model"),
    ("rope_parameters", {"rope_type": "default", "rope_theta": "x"}, "not to a number above 0"),
    ("model_type", "evil", "model_type 'evil'"),
    ("model_type", 7, "model_type to 7, not to a name"),
    ("model_type", {}, "model_type to {}, not to a name"),
    ("model_type", None, "model_type None"),
    # transformers 4 builds it, and then the tensors do not match.
    ("model_type", "mamba", "cannot build the model|do not match this family"),
    ("model_type", "bert", "do not match this family|cannot build the model|does not set"),
    ("architectures", "Qwen2ForProcessRewardModel", "architectures to .*, not to a list of names"),
    ("architectures", 7, "not to a list of names"),
    ("architectures", [[]], "not to a list of names"),
    ("architectures", [None], "not to a list of names"),
    ("torch_dtype", "evil", "cannot build the model"),
    ("pad_token_id", 10**9, "cannot build the model"),
    ("quantization_config", "x", "cannot build the model"),
    ("id2label", 7, "cannot build the model"),
    ("__class__", 7, "cannot build the model"),
    ("to_dict", 7, "cannot build the model"),
]


@pytest.mark.parametrize(("name", "value", "message"), CONFIGS, ids=lambda value: str(value)[:40])
def test_a_malformed_config(
    tiny: Path, tmp_path: Path, name: str, value: Any, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = json.loads((tiny / "config.json").read_text()) | {name: value}
    assert_rejected(copy_with(tiny, tmp_path / "model", "config.json", json.dumps(config)), message, capsys)


def test_values_that_are_not_used(checkpoint: Path, scorer: surefoot.Scorer, tmp_path: Path) -> None:
    """They name code or change the form of the output; the model computes the same with and without them."""
    values = {
        "attn_implementation": "someone/kernel",
        "_attn_implementation": "someone/kernel",
        "experts_implementation": "someone/kernel",
        "return_dict": False,
        "output_attentions": True,
        "output_hidden_states": True,
        "auto_map": 7,
    }
    config = json.loads((checkpoint / "config.json").read_text()) | values
    found = load_local(copy_with(checkpoint, tmp_path / "model", "config.json", json.dumps(config)))
    assert vars(found.engine.backbone)["config"]._attn_implementation == "surefoot_sdpa"
    expected = scorer.score(CARD_QUESTION, CARD_STEPS).step_scores
    assert found.score(CARD_QUESTION, CARD_STEPS).step_scores == expected


# --- index ---------------------------------------------------------------------------------------------------------

OUTSIDE = r"names the shard .*, which is not the name of a \.safetensors file in its folder"
INDEXES: list[tuple[Any, str]] = [
    ([], "has no weight_map"),
    (7, "has no weight_map"),
    ({}, "has only 0 tensors"),
    ({"a": "model-00009.safetensors"}, r"lacks model-00009\.safetensors"),
    *(
        ({"a": name}, OUTSIDE)
        for name in (
            "../base/model.safetensors",
            "..",
            ".",
            "",
            "/model.safetensors",
            "sub/model.safetensors",
            "./model.safetensors",
            "..\\base\\model.safetensors",
            "C:model.safetensors",
            "model.safetensors\0",
            "model.bin",
            "model.safetensors/",
            "x" * 5000 + ".safetensors",
            "\ud800.safetensors",
            7,
            None,
            ["model.safetensors"],
            {"name": "model.safetensors"},
        )
    ),
    ({"a": "model.safetensors", "b": 7}, OUTSIDE),
]


@pytest.mark.parametrize(("weight_map", "message"), INDEXES, ids=lambda value: repr(value)[:40])
def test_a_malformed_index(
    tiny: Path, tmp_path: Path, weight_map: Any, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.dumps({"weight_map": weight_map})
    folder = copy_with(tiny, tmp_path / "model", "model.safetensors.index.json", content)
    assert_rejected(folder, message, capsys)


def test_shards_outside_the_folder_are_not_read(tiny: Path, tmp_path: Path) -> None:
    """They exist and are complete, so only their names can tell."""
    shutil.copytree(tiny, tmp_path / "base")
    for name in ("../base/model.safetensors", str(tmp_path / "base" / "model.safetensors")):
        folder = tmp_path / f"model {len(name)}"
        weights = dict.fromkeys(load_file(tiny / "model.safetensors"), name)
        copy_with(tiny, folder, "model.safetensors.index.json", json.dumps({"weight_map": weights}))
        (folder / "model.safetensors").unlink()
        with pytest.raises(CheckpointError, match=OUTSIDE):
            load_local(folder)


def test_shards_may_be_links_as_in_the_cache_of_the_hub(tmp_path: Path) -> None:
    """A snapshot has the names, which link to ../../blobs."""
    source = write_qwen_checkpoint(tmp_path / "source", shards=2, vocab_size=300)
    snapshot, blobs = tmp_path / "models--a--b" / "snapshots" / "abc", tmp_path / "models--a--b" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, file in enumerate(source.iterdir()):
        shutil.copy(file, blobs / str(number))
        (snapshot / file.name).symlink_to(Path("../../blobs") / str(number))
    assert load_local(snapshot).fingerprint == load_local(source).fingerprint


# --- tokenizer.json ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"added_tokens": 7},
        {"added_tokens": [7]},
        {"added_tokens": [{"content": 1, "id": "x"}]},
        {"added_tokens": [{"content": "<extra_0>", "id": -1}]},
        {"added_tokens": [{"content": "<extra_0>", "id": 10**30}]},
        {"added_tokens": [{"content": "", "id": 5}]},
        {"model": 7},
        {"model": {"type": "evil"}},
        {"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}},
        {"model": {"type": "BPE", "vocab": {"a": 1}, "merges": ["a b"]}},
        {"model": {"type": "BPE", "vocab": {}, "merges": []}},
        {"normalizer": {"type": "Sequence", "normalizers": 7}},
        {"normalizer": {"type": "Replace", "pattern": {"Regex": "("}, "content": ""}},
        {"normalizer": {"type": "Replace", "pattern": {"String": ""}, "content": "b"}},
    ],
    ids=lambda change: str(change)[:60],
)
def test_a_malformed_tokenizer(
    tiny: Path, tmp_path: Path, change: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    layout = json.loads((tiny / "tokenizer.json").read_text()) | change
    folder = copy_with(tiny, tmp_path / "model", "tokenizer.json", json.dumps(layout))
    assert_rejected(folder, r"Cannot read a tokenizer in .*Copy tokenizer\.json", capsys)


# --- adapters ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """LoRA weights for a small base, named so that the family is known."""
    root = tmp_path_factory.mktemp("adapter")
    base = write_base(root / "base", "qwen2")
    folder = root / "Math-psa"
    folder.mkdir()
    settings = {"peft_type": "LORA", "lora_alpha": 8, "r": 2, "base_model_name_or_path": str(base)}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    name = "base_model.model.model.layers.0.self_attn.q_proj"
    factors = {f"{name}.lora_A.weight": torch.zeros(2, 32), f"{name}.lora_B.weight": torch.zeros(32, 2)}
    save_file(factors, folder / "adapter_model.safetensors")
    return folder


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lora_alpha": None}, "lora_alpha to 'None', not to a number"),
        ({"lora_alpha": "8"}, "lora_alpha to '8', not to a number"),
        ({"lora_alpha": True}, "lora_alpha to 'True', not to a number"),
        ({"lora_alpha": NAN}, "lora_alpha to 'nan', not to a number"),
        ({"lora_alpha": [8]}, "lora_alpha to .*, not to a number"),
        ({"use_rslora": "yes"}, "use_rslora to 'yes', not to true or false"),
        ({"modules_to_save": 7}, "modules_to_save to '7', not to a list of names"),
        ({"modules_to_save": [7]}, "modules_to_save to .*, not to a list of names"),
        ({"modules_to_save": "score"}, "modules_to_save to 'score', not to a list of names"),
        ({"base_model_name_or_path": 7}, "base_model_name_or_path to '7', not to a name"),
        ({"base_model_name_or_path": ["a/b"]}, "base_model_name_or_path to .*, not to a name"),
        ({"base_model_name_or_path": ""}, "does not name the base model"),
        ({"base_model_name_or_path": "a\0b"}, "Cannot open the base model"),
        ({"base_model_name_or_path": None}, "does not name the base model"),
        ({"peft_type": "EVIL"}, "has type EVIL; only plain LoRA is supported"),
        ({"peft_type": ["LORA"]}, "only plain LoRA is supported"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights=pissa"),
        ({"alpha_pattern": {"q_proj": 4}}, "with alpha_pattern"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_malformed_settings_of_an_adapter(
    adapter: Path, tmp_path: Path, change: dict[str, Any], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = json.loads((adapter / "adapter_config.json").read_text()) | change
    folder = copy_with(adapter, tmp_path / "Math-psa", "adapter_config.json", json.dumps(settings))
    assert_rejected(folder, message, capsys)


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "[" * 100_000], ids=lambda text: text[:5])
def test_adapter_settings_that_are_not_json(
    adapter: Path, tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copy_with(adapter, tmp_path / "Math-psa", "adapter_config.json", content)
    assert_rejected(folder, "is not valid JSON|does not contain a JSON object", capsys)


@pytest.mark.parametrize(
    "shapes",
    [((0, 32), (32, 0)), ((32,), (32,)), ((2, 32, 1), (32, 2, 1)), ((2, 32), (32, 3)), ((), ()), ((2, 31), (32, 2))],
    ids=str,
)
def test_malformed_factors(
    adapter: Path, tmp_path: Path, shapes: tuple[tuple[int, ...], ...], capsys: pytest.CaptureFixture[str]
) -> None:
    name = "base_model.model.model.layers.0.self_attn.q_proj"
    down, up = shapes
    folder = copy_with(adapter, tmp_path / "Math-psa", "adapter_model.safetensors", b"")
    factors = {f"{name}.lora_A.weight": torch.zeros(down), f"{name}.lora_B.weight": torch.zeros(up)}
    save_file(factors, folder / "adapter_model.safetensors")
    assert_rejected(folder, r"The LoRA factors of .* have shapes", capsys)


# --- tensors -------------------------------------------------------------------------------------------------------


def packed_as(codes: Callable[[torch.Tensor], torch.Tensor], scales: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    def change(tensors: dict[str, torch.Tensor]) -> None:
        name = "model.layers.0.mlp.up_proj.weight"
        stored = pack(tensors.pop(name), 8)
        tensors[f"{name}.codes"], tensors[f"{name}.scales"] = codes(stored[0]), scales(stored[1])

    return change


def same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (packed_as(lambda codes: codes.flatten(), same), "do not belong together"),
        (packed_as(lambda codes: codes[:-1].contiguous(), same), "do not belong together"),
        (packed_as(lambda codes: codes.to(torch.uint8), same), "do not belong together"),
        (packed_as(lambda codes: codes.to(torch.uint8).flatten(), same), "do not belong together"),
        (packed_as(lambda codes: codes.float(), same), "do not belong together"),
        (packed_as(same, lambda scales: scales.flatten()), "missing: model.layers.0.mlp.up_proj.weight"),
        (packed_as(same, lambda scales: scales[0, 0].clone()), "missing: model.layers.0.mlp.up_proj.weight"),
        (packed_as(same, lambda scales: scales.to(torch.int8)), "up_proj.weight is I8"),
        (lambda tensors: tensors.update({"": torch.zeros(1)}), "unexpected: "),
        (lambda tensors: tensors.update({"\0": torch.zeros(1)}), "unexpected: "),
        (lambda tensors: tensors.update({"model.norm.weight": torch.tensor(1.0)}), "wrong shape: model.norm.weight"),
        (lambda tensors: tensors.clear(), "has only 0 tensors"),
    ],
)
def test_malformed_tensors(
    tiny: Path, tmp_path: Path, change: Any, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tensors = load_file(tiny / "model.safetensors")
    change(tensors)
    folder = copy_with(tiny, tmp_path / "model", "model.safetensors", b"")
    save_file(tensors, folder / "model.safetensors")
    assert_rejected(folder, message, capsys)


# --- names ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "a\0b",
        "\0",
        "a/b\0",
        "x" * 5000,
        "x/" * 3000,
        "~no-such-user-here/model",
        "\ud800",
        "a/b/c",
        "a/b\n",
        " ",
        "a b/c",
        "../nothing",
        "/nothing/here",
        7,
        b"bytes",
        None,
        ["a/b/c"],
    ],
    ids=lambda name: repr(name)[:30],
)
def test_names_that_are_not_models(name: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(LoadError, match="is neither an existing folder nor a hub id"):
        surefoot.load(name)
    if isinstance(name, str):
        assert main(["check", name]) == FAILED
        (line,) = capsys.readouterr().err.splitlines()
        assert "is neither an existing folder nor a hub id" in line


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="nothing is unreadable for this user")
def test_a_file_that_cannot_be_read(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = copy_with(tiny, tmp_path / "model", "config.json", "{}")
    (folder / "config.json").chmod(0)
    assert_rejected(folder, "Cannot read .*config.json", capsys)
