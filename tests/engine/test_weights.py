"""Loading: every tensor is accounted for, derived values are right, and no code from the repository runs."""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import surefoot
from helpers.card import CARD_QUESTION, CARD_STEPS
from helpers.reference import Reference
from surefoot.engine import hardware, quantization
from surefoot.engine.checkpoint import open_checkpoint
from surefoot.engine.fingerprint import fingerprint
from surefoot.errors import CheckpointError, LoadError, MissingDependencyError, OptionError
from surefoot.scoring.local import load_local
from surefoot.testing import write_qwen_checkpoint

Tensors = dict[str, torch.Tensor]


def altered(checkpoint: Path, folder: Path, change: Callable[[Tensors], object]) -> Path:
    """A copy of the checkpoint with changed tensors."""
    shutil.copytree(checkpoint, folder)
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    return folder


def with_config(checkpoint: Path, folder: Path, **changes: object) -> Path:
    shutil.copytree(checkpoint, folder)
    config = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def card_scores(scorer: surefoot.Scorer) -> list[float]:
    return [score for score in scorer.score(CARD_QUESTION, CARD_STEPS).step_scores if score is not None]


def test_one_file_and_shards_give_the_same_scores(checkpoint: Path, scorer: surefoot.Scorer, tmp_path: Path) -> None:
    sharded = write_qwen_checkpoint(tmp_path / "sharded", shards=3)
    assert len(list(sharded.glob("model-0000?-of-00003.safetensors"))) == 3
    assert card_scores(load_local(sharded)) == card_scores(scorer)


def test_weights_stored_in_bfloat16_are_computed_in_float32(tmp_path: Path) -> None:
    folder = write_qwen_checkpoint(tmp_path / "bf16", dtype="bfloat16")
    scorer = load_local(folder)
    prompt = scorer.family.render(scorer.tokenizer, CARD_QUESTION, CARD_STEPS)
    assert card_scores(scorer) == pytest.approx(Reference(folder).scores(prompt), abs=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("score.2.bias"), r"missing: score\.2\.bias"),
        (lambda t: t.pop("model.layers.1.mlp.up_proj.weight"), r"missing: model\.layers\.1\.mlp\.up_proj\.weight"),
        (lambda t: [t.pop(name) for name in list(t) if "layers.1" in name], r"missing: .* and 2 more"),
        (
            lambda t: t.update({"score.2.weight": torch.zeros(1, 64)}),
            r"wrong shape: score\.2\.weight has shape \(1, 64\), not",
        ),
        (lambda t: t.update({"v_head.summary.weight": torch.zeros(1, 64)}), r"unexpected: v_head\.summary\.weight"),
        (lambda t: t.update({"lm_headed": torch.zeros(1)}), "unexpected: lm_headed"),
    ],
)
def test_mismatched_tensors_are_reported(
    checkpoint: Path, tmp_path: Path, change: Callable[[Tensors], object], message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        load_local(altered(checkpoint, tmp_path / "altered", change))


NOT_WEIGHTS = [
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.bool,
    torch.complex64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
]


@pytest.mark.parametrize("dtype", NOT_WEIGHTS, ids=str)
@pytest.mark.parametrize(
    "name", ["score.2.weight", "model.norm.weight", "model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight"]
)
def test_tensors_that_are_not_weights_are_rejected(tiny: Path, tmp_path: Path, dtype: torch.dtype, name: str) -> None:
    """They would be converted to numbers without their scale: an int8 head gives finite but meaningless scores."""
    folder = altered(tiny, tmp_path / "altered", lambda tensors: tensors.update({name: tensors[name].to(dtype)}))
    with pytest.raises(CheckpointError, match=rf"not weights in float16, .*: {re.escape(name)} is \w+\."):
        load_local(folder)


@pytest.mark.parametrize(
    "content",
    [
        *(torch.zeros(2, 64).to(dtype) for dtype in NOT_WEIGHTS),
        torch.zeros(2, 64).to_sparse(),
        torch.zeros(2, 64).to_sparse_csr(),
        torch.quantize_per_tensor(torch.zeros(2, 64), 1.0, 0, torch.qint8),
        torch.empty(2, 64, device="meta"),
    ],
    ids=lambda tensor: f"{tensor.dtype} {tensor.layout} {tensor.device}",
)
def test_pickled_tensors_that_are_not_weights_are_rejected(tiny: Path, tmp_path: Path, content: torch.Tensor) -> None:
    folder = pickled(tiny, tmp_path / "pickled")
    tensors = torch.load(folder / "pytorch_model.bin", weights_only=True)
    torch.save(tensors | {"score.2.weight": content}, folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"not weights in .*: score\.2\.weight is|pytorch_model\.bin"):
        load_local(folder)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_weights_in_other_floating_dtypes_are_converted(
    checkpoint: Path, scorer: surefoot.Scorer, tmp_path: Path, dtype: torch.dtype
) -> None:
    def convert(tensors: Tensors) -> None:
        tensors.update({name: tensor.to(dtype) for name, tensor in tensors.items()})

    tolerance = 1e-6 if dtype == torch.float64 else 0.05
    found = load_local(altered(checkpoint, tmp_path / "altered", convert))
    assert card_scores(found) == pytest.approx(card_scores(scorer), abs=tolerance)


def test_the_unused_language_head_may_be_missing(checkpoint: Path, scorer: surefoot.Scorer, tmp_path: Path) -> None:
    folder = altered(checkpoint, tmp_path / "headless", lambda tensors: tensors.pop("lm_head.weight"))
    assert card_scores(load_local(folder)) == card_scores(scorer)


def test_a_missing_shard_is_reported(tmp_path: Path) -> None:
    folder = write_qwen_checkpoint(tmp_path / "sharded", shards=2)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"lacks model-00002-of-00002\.safetensors"):
        load_local(folder)


def test_a_truncated_file_is_reported(checkpoint: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(checkpoint, tmp_path / "truncated")
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match=r"model\.safetensors is not a complete safetensors file"):
        load_local(folder)


def pickled(checkpoint: Path, folder: Path, shards: int = 1) -> Path:
    """The checkpoint with its tensors in .bin files, as in older repositories."""
    shutil.copytree(checkpoint, folder)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = list(tensors)
    files = ["pytorch_model.bin"] if shards == 1 else [f"pytorch_model-{at}.bin" for at in range(shards)]
    for at, file in enumerate(files):
        torch.save({name: tensors[name] for name in names[at::shards]}, folder / file)
    if shards > 1:
        weight_map = {name: files[at % shards] for at, name in enumerate(names)}
        (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


@pytest.mark.parametrize("shards", [1, 2])
def test_pickled_weights_give_the_same_scores(
    checkpoint: Path, scorer: surefoot.Scorer, tmp_path: Path, shards: int
) -> None:
    folder = pickled(checkpoint, tmp_path / "pickled", shards)
    found = load_local(folder)
    assert card_scores(found) == card_scores(scorer)
    assert found.fingerprint != scorer.fingerprint


def test_pickled_weights_have_a_fingerprint(checkpoint: Path, tmp_path: Path) -> None:
    one, other = pickled(checkpoint, tmp_path / "one"), pickled(checkpoint, tmp_path / "other")
    mark = fingerprint(open_checkpoint(one))
    assert mark == fingerprint(open_checkpoint(other))
    tensors = torch.load(other / "pytorch_model.bin", weights_only=True)
    tensors["score.2.bias"] += 1
    torch.save(tensors, other / "pytorch_model.bin")
    assert mark != fingerprint(open_checkpoint(other))


def test_pickles_without_tensors_are_rejected(checkpoint: Path, tmp_path: Path) -> None:
    folder = pickled(checkpoint, tmp_path / "odd")
    for content, message in (
        ([1, 2], "not a mapping from names to tensors"),
        ({"a": 1}, "not a mapping from names to tensors"),
        ({1: torch.zeros(1)}, "not a mapping from names to tensors"),
    ):
        torch.save(content, folder / "pytorch_model.bin")
        with pytest.raises(CheckpointError, match=message):
            load_local(folder)
    (folder / "pytorch_model.bin").write_bytes(b"nonsense")
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin"):
        load_local(folder)
    (folder / "pytorch_model.bin").unlink()
    with pytest.raises(CheckpointError, match=r"no \.safetensors file and no pytorch_model\.bin"):
        load_local(folder)


def test_a_broken_tokenizer_is_reported(checkpoint: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(checkpoint, tmp_path / "tokenless")
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"Cannot read a tokenizer.*Copy tokenizer\.json"):
        load_local(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["Qwen2ForCausalLM"]}, r"Qwen2ForCausalLM.*not in the catalog.*one of: .*mini, .*qwen"),
        ({"model_type": "martian"}, "model_type 'martian'"),
    ],
)
def test_an_unsupported_config_is_rejected(
    checkpoint: Path, tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        load_local(with_config(checkpoint, tmp_path / "other", **changes))


def test_the_family_can_be_given(checkpoint: Path, scorer: surefoot.Scorer, tmp_path: Path) -> None:
    folder = with_config(checkpoint, tmp_path / "other", architectures=["Something"])
    assert card_scores(load_local(folder, family="qwen")) == card_scores(scorer)
    with pytest.raises(OptionError, match="family='nope' is unknown. Choose one of: .*mini, .*qwen"):
        load_local(folder, family="nope")


@pytest.mark.parametrize("theta", [10000.0, 1000000.0])
def test_rope_and_epsilon_of_the_config_reach_the_model(checkpoint: Path, tmp_path: Path, theta: float) -> None:
    folder = with_config(checkpoint, tmp_path / "rope", rope_theta=theta, rms_norm_eps=1e-3)
    scorer = load_local(folder)
    prompt = scorer.family.render(scorer.tokenizer, CARD_QUESTION, CARD_STEPS)
    assert card_scores(scorer) == pytest.approx(Reference(folder).scores(prompt), abs=1e-5)
    backbone = scorer.engine.backbone
    inv_freq = next(buffer for name, buffer in backbone.named_buffers() if name.endswith("inv_freq"))
    assert inv_freq[1].item() == pytest.approx(theta ** (-2 / 16))


def test_wrong_rotary_frequencies_are_caught(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a transformers version that leaves the derived buffer uninitialized."""
    from transformers.models.qwen2 import modeling_qwen2

    class Garbled(modeling_qwen2.Qwen2RotaryEmbedding):  # type: ignore[misc]
        def __init__(self, *args: object, **kwargs: object) -> None:
            super().__init__(*args, **kwargs)
            self.inv_freq.mul_(1.01)

    monkeypatch.setattr(modeling_qwen2, "Qwen2RotaryEmbedding", Garbled)
    with pytest.raises(CheckpointError, match="rotary frequencies do not match config"):
        load_local(checkpoint)


def test_rotary_angles_in_low_precision_are_caught(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions above 256 are not exact in bfloat16."""
    from transformers.models.qwen2 import modeling_qwen2

    class Coarse(modeling_qwen2.Qwen2RotaryEmbedding):  # type: ignore[misc]
        def forward(self, x: torch.Tensor, position_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            angles = position_ids[..., None].to(torch.bfloat16) * self.inv_freq.to(torch.bfloat16)
            angles = torch.cat((angles, angles), dim=-1).float()
            return angles.cos().to(x.dtype), angles.sin().to(x.dtype)

    monkeypatch.setattr(modeling_qwen2, "Qwen2RotaryEmbedding", Coarse)
    with pytest.raises(CheckpointError, match="rotary angles lose precision"):
        load_local(checkpoint)


def test_a_wrong_norm_epsilon_is_caught(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.qwen2 import modeling_qwen2

    class Careless(modeling_qwen2.Qwen2RMSNorm):  # type: ignore[misc]
        def __init__(self, size: int, eps: float = 1e-6) -> None:
            super().__init__(size)

    monkeypatch.setattr(modeling_qwen2, "Qwen2RMSNorm", Careless)
    with pytest.raises(CheckpointError, match="norm epsilon 1e-06, but config.json says 1e-05"):
        load_local(checkpoint)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", "{", "config.json is not valid JSON"),
        ("config.json", "[]", "config.json does not contain a JSON object"),
        ("model.safetensors.index.json", "{}", "has no weight_map"),
        ("model.safetensors.index.json", "nonsense", "index.json is not valid JSON"),
    ],
)
def test_broken_files_are_reported(checkpoint: Path, tmp_path: Path, file: str, content: str, message: str) -> None:
    folder = shutil.copytree(checkpoint, tmp_path / "broken")
    (folder / file).write_text(content)
    with pytest.raises(CheckpointError, match=message):
        load_local(folder)


@pytest.mark.parametrize("name", ["hidden_size", "rms_norm_eps", "max_position_embeddings", "rope_theta"])
def test_missing_settings_are_reported(checkpoint: Path, tmp_path: Path, name: str) -> None:
    folder = shutil.copytree(checkpoint, tmp_path / "unsaid")
    config = json.loads((folder / "config.json").read_text())
    del config[name]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=f"does not set '{name}'|must set '{name}'|wrong shape"):
        load_local(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"use_sliding_window": True, "sliding_window": 128, "max_window_layers": 0}, "sliding-window attention"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "dynamic rotary embeddings"),
    ],
)
def test_unsupported_attention_is_rejected(
    checkpoint: Path, tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        load_local(with_config(checkpoint, tmp_path / "other", **changes))


def test_a_tensor_that_disappears_is_reported(checkpoint: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(checkpoint, tmp_path / "going")
    opened = open_checkpoint(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"Cannot read tensor score\.0\.weight from"):
        opened.read("score.0.weight")


def test_an_older_tokenizer_is_converted(checkpoint: Path, scorer: surefoot.Scorer, tmp_path: Path) -> None:
    """Without tokenizer.json, from the vocabulary and merges of older repositories."""
    folder = shutil.copytree(checkpoint, tmp_path / "older")
    layout = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text(json.dumps(layout["model"]["vocab"]))
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in layout["model"]["merges"]]
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges))
    added = {str(token["id"]): {k: v for k, v in token.items() if k != "id"} for token in layout["added_tokens"]}
    settings = {"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": added}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    assert card_scores(load_local(folder)) == card_scores(scorer)


def test_invalid_models_are_reported(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="neither an existing folder nor a hub id"):
        surefoot.load("no such thing")
    with pytest.raises(LoadError, match=r"has no config\.json"):
        load_local(tmp_path)
    with pytest.raises(OptionError, match="revision='main' applies to models on the hub only"):
        load_local(tmp_path, revision="main")


def test_an_unreachable_hub_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def unreachable(*args: object, **kwargs: object) -> str:
        raise OSError("network is unreachable")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", unreachable)
    with pytest.raises(LoadError, match="from the Hugging Face hub failed: network is unreachable.*downloaded copy"):
        surefoot.load("Qwen/Qwen2.5-Math-PRM-7B")


def test_a_hub_id_is_downloaded_at_its_revision(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    asked: dict[str, object] = {}

    def download(model: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        asked.update(model=model, revision=revision, patterns=allow_patterns)
        return str(checkpoint)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert surefoot.load("someone/a-prm", revision="abc").name == "someone/a-prm"
    assert asked["model"] == "someone/a-prm"
    assert asked["revision"] == "abc"
    assert not any(pattern.endswith((".py", "*")) for pattern in asked["patterns"])  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quantize": "int3"}, "quantize='int3' is not supported. Choose one of: nf4, int8, or None"),
        ({"dtype": "float8"}, "dtype='float8' is not supported. Choose one of: auto, float32, bfloat16, float16"),
        ({"device": "tpu"}, "device='tpu' cannot be used"),
        ({"attention": "magic"}, "attention='magic' is not supported"),
        ({"attention": "flash_attention_2", "device": "cpu"}, "flash_attention_2.*needs a CUDA device"),
        ({"compile": "maybe"}, "compile='maybe' is not supported"),
        ({"compile": True, "quantize": "int8"}, 'compile=True and quantize="int8" exclude each other'),
        ({"max_tokens": 0}, "max_tokens=0 leaves no room"),
    ],
)
def test_invalid_options_are_reported(checkpoint: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        load_local(checkpoint, **options)


@pytest.mark.parametrize("attention", ["sdpa", "eager", "flex"])
def test_attention_can_be_forced(checkpoint: Path, scorer: surefoot.Scorer, attention: str) -> None:
    forced = load_local(checkpoint, attention=attention)
    assert vars(forced.engine.backbone)["config"]._attn_implementation == f"surefoot_{attention}"
    assert card_scores(forced) == pytest.approx(card_scores(scorer), abs=1e-5)


def test_loading_logs_what_was_loaded(checkpoint: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="surefoot"):
        load_local(checkpoint)
    (line,) = [record.message for record in caplog.records if record.message.startswith("Loaded")]
    for part in (str(checkpoint), "family qwen", "float32", "quantization none", "attention sdpa", "cpu", "GB"):
        assert part in line


def test_nf4_scores_equal_those_of_the_rounded_weights(checkpoint: Path, scorer: surefoot.Scorer) -> None:
    """They equal those of the model with weights rounded to NF4, and are close to those of the original one.

    Random weights of this small size suffer more from 4 bits than trained ones; hence the wide tolerance to float32.
    """
    from bitsandbytes.functional import dequantize_4bit, quantize_4bit

    rounded = Reference(checkpoint)
    for module in rounded.backbone.modules():
        if isinstance(module, torch.nn.Linear):
            packed = quantize_4bit(module.weight.data, quant_type="nf4", compress_statistics=True)
            module.weight.data = dequantize_4bit(*packed)
    small = load_local(checkpoint, quantize="nf4")
    layers = [module for module in small.engine.backbone.modules() if isinstance(module, quantization.NF4Linear)]
    assert len(layers) == 2 * 7
    assert all(layer.state.nested for layer in layers)
    head = small.engine.head.tensors
    assert torch.equal(head["score.0.weight"], rounded.head.state_dict()["0.weight"])
    pairs = [(f"What is {n} + {n}?", [f"{n} + {n} is {2 * n}.", f"So it is {2 * n}.", "Done."]) for n in range(20)]
    prompts = [small.family.render(small.tokenizer, question, steps) for question, steps in pairs]
    expected = torch.tensor([score for prompt in prompts for score in rounded.scores(prompt)])
    exact = torch.tensor([score for result in scorer.score_many(pairs) for score in result.step_scores])
    found = torch.tensor([score for result in small.score_many(pairs) for score in result.step_scores])
    assert torch.allclose(found, expected, atol=1e-4)
    assert 0.001 < (found - exact).abs().mean() < 0.15


def test_nf4_without_bitsandbytes(
    checkpoint: Path, scorer: surefoot.Scorer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(quantization, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r'pip install "surefoot\[nf4\]"'):
        load_local(checkpoint, quantize="nf4")
    with caplog.at_level(logging.WARNING, logger="surefoot"):
        plain = load_local(checkpoint, quantize="nf4", quantize_fallback=True)
    assert "Loading without quantization" in caplog.text
    assert card_scores(plain) == card_scores(scorer)


def test_half_precision_on_the_cpu_works_or_becomes_float32(
    checkpoint: Path, scorer: surefoot.Scorer, caplog: pytest.LogCaptureFixture
) -> None:
    """On a machine that reports AMX without describing it, the first bfloat16 product would crash the process."""
    with caplog.at_level(logging.WARNING, logger="surefoot"):
        half = load_local(checkpoint, dtype="bfloat16")
    if hardware.runs_on_cpu("bfloat16"):
        assert half.engine.dtype == torch.bfloat16
        assert card_scores(half) == pytest.approx(card_scores(scorer), abs=0.1)
    else:
        assert "using float32" in caplog.text
        assert card_scores(half) == card_scores(scorer)


def test_a_dtype_that_crashes_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "cpu_has_flag", lambda flag: flag == "amx_tile")
    monkeypatch.setattr(hardware, "PROBE", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    hardware.runs_on_cpu.cache_clear()
    try:
        assert not hardware.runs_on_cpu("bfloat16")
        assert hardware.choose_dtype("bfloat16", torch.device("cpu")) == torch.float32
        assert hardware.choose_dtype("float32", torch.device("cpu")) == torch.float32
    finally:
        hardware.runs_on_cpu.cache_clear()


@pytest.mark.parametrize(("rank", "gpus", "chosen"), [("3", 4, 3), ("3", 1, 0), ("0", 4, 0), ("", 4, 0)])
def test_each_process_has_its_own_gpu(monkeypatch: pytest.MonkeyPatch, rank: str, gpus: int, chosen: int) -> None:
    """There is no GPU here, so torch's answers are replaced."""
    monkeypatch.setenv("LOCAL_RANK", rank)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    assert hardware.gpu_of_this_process() == chosen


def test_auto_is_float32_on_the_cpu_and_bfloat16_on_cuda() -> None:
    assert hardware.choose_dtype("auto", torch.device("cpu")) == torch.float32
    assert hardware.choose_dtype("auto", torch.device("cuda")) == torch.bfloat16
    assert hardware.choose_dtype(torch.float16, torch.device("cuda")) == torch.float16


def test_a_tensor_in_two_files_is_rejected(checkpoint: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(checkpoint, tmp_path / "copy")
    shutil.copy(copy / "model.safetensors", copy / "model_old.safetensors")
    with pytest.raises(CheckpointError, match=r"model.safetensors and model_old.safetensors .* both contain"):
        load_local(copy)


def test_a_tokenizer_of_another_model_is_rejected(tmp_path: Path) -> None:
    scorer = load_local(write_qwen_checkpoint(tmp_path / "small", vocab_size=151_646))
    with pytest.raises(CheckpointError, match="They do not belong together"):
        scorer.score("q", ["a step"])
