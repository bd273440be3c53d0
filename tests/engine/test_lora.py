"""LoRA weights: merged as peft merges them, with every tensor matched."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from helpers.small import states, words, write
from surefoot.engine.checkpoint import open_checkpoint
from surefoot.engine.fingerprint import fingerprint
from surefoot.errors import CheckpointError, LoadError, OptionError
from surefoot.scoring.local import load_local

QUESTION, STEPS = "How much is 2 + 2?", ["2 + 2 = 4.", "So it is 4.", "The answer is: 4"]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("lora") / "base", "qwen2", "Qwen2ForCausalLM", quiet=[76325])


def make_adapter(base: Path, folder: Path, **settings: Any) -> Any:
    """An adapter like that of Math-psa, created and saved by peft."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    options = {"r": 8, "lora_alpha": 32, "target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM"}
    peft = get_peft_model(model, LoraConfig(**options | settings))
    with torch.no_grad():
        for name, parameter in peft.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.2)
    peft.save_pretrained(folder)
    return peft


@pytest.fixture(scope="module")
def adapter(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapter") / "Math-psa"
    make_adapter(base, folder)
    return folder


@pytest.mark.parametrize("settings", [{}, {"use_rslora": True, "r": 4}, {"target_modules": "all-linear"}])
def test_scores_equal_those_of_the_model_merged_by_peft(base: Path, tmp_path: Path, settings: dict[str, Any]) -> None:
    peft = make_adapter(base, tmp_path / "Math-psa", **settings)
    scorer = load_local(tmp_path / "Math-psa")
    assert scorer.family.name == "math-psa"
    prompt = scorer.family.render(scorer.tokenizer, QUESTION, STEPS)
    merged = peft.merge_and_unload().eval()
    with torch.no_grad():
        logits = merged(torch.tensor([prompt.ids])).logits[0, list(prompt.reads)]
    expected = logits[:, [488, 481]].softmax(-1)[:, 0].tolist()
    assert scorer.score(QUESTION, STEPS).step_scores == pytest.approx(expected, abs=1e-5)
    plain = words(488, 481)(load_file(base / "model.safetensors"), states(base, prompt.ids)[list(prompt.reads)])
    assert plain.tolist() != pytest.approx(expected, abs=1e-2)


def test_the_base_can_be_given(base: Path, adapter: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(adapter, tmp_path / "Math-psa")
    settings = json.loads((moved / "adapter_config.json").read_text())
    (moved / "adapter_config.json").write_text(json.dumps(settings | {"base_model_name_or_path": "/not/here"}))
    with pytest.raises(LoadError, match=r"Cannot open the base model of the LoRA weights .*base="):
        load_local(moved)
    expected = load_local(adapter).score(QUESTION, STEPS).step_scores
    assert load_local(moved, base=base).score(QUESTION, STEPS).step_scores == expected
    with pytest.raises(OptionError, match="is a complete model"):
        load_local(base, base=base, family="math-psa")


def test_an_adapter_changes_the_fingerprint(base: Path, adapter: Path, tmp_path: Path) -> None:
    marks = {fingerprint(open_checkpoint(folder)) for folder in (base, adapter)}
    changed = shutil.copytree(adapter, tmp_path / "changed")
    settings = json.loads((changed / "adapter_config.json").read_text())
    (changed / "adapter_config.json").write_text(json.dumps(settings | {"lora_alpha": 16}))
    marks.add(fingerprint(open_checkpoint(changed)))
    assert len(marks) == 3


def test_every_weight_of_an_adapter_and_its_base_counts(base: Path, adapter: Path, tmp_path: Path) -> None:
    """Wherever the two folders are: their order by name does not matter."""
    one, other = shutil.copytree(adapter, tmp_path / "a"), shutil.copytree(base, tmp_path / "b")
    before = fingerprint(open_checkpoint(one, base=other))
    assert before == fingerprint(open_checkpoint(adapter))
    assert before == fingerprint(open_checkpoint(shutil.copytree(adapter, tmp_path / "c"), base=other))
    for file in (one / "adapter_model.safetensors", other / "model.safetensors"):
        raw = bytearray(file.read_bytes())
        raw[-len(raw) // 3] ^= 1
        file.write_bytes(raw)
        after = fingerprint(open_checkpoint(one, base=other))
        assert after != before
        before = after


@pytest.mark.parametrize("dtype", [torch.int8, torch.bool, torch.complex64, torch.float8_e4m3fn], ids=str)
@pytest.mark.parametrize("pickled", [False, True])
def test_factors_that_are_not_weights_are_rejected(
    adapter: Path, tmp_path: Path, dtype: torch.dtype, pickled: bool
) -> None:
    changed = shutil.copytree(adapter, tmp_path / "Math-psa")
    tensors = load_file(changed / "adapter_model.safetensors")
    name = next(name for name in tensors if "lora_A" in name)
    tensors[name] = tensors[name].to(dtype)
    if pickled:
        (changed / "adapter_model.safetensors").unlink()
        torch.save(tensors, changed / "adapter_model.bin")
    else:
        save_file(tensors, changed / "adapter_model.safetensors")
    with pytest.raises(CheckpointError, match="lora_A.* as .*; weights are float16"):
        load_local(changed)


def test_a_saved_module_replaces_the_base_tensor(base: Path, tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForTokenClassification

    torch.manual_seed(1)
    model = AutoModelForTokenClassification.from_pretrained(base, num_labels=2, dtype=torch.float32)
    peft = get_peft_model(model, LoraConfig(task_type="TOKEN_CLS", target_modules=["q_proj"], init_lora_weights=False))
    peft.save_pretrained(tmp_path / "prm")
    scorer = load_local(tmp_path / "prm", family="trl")
    prompt = scorer.family.render(scorer.tokenizer, QUESTION, STEPS)
    with torch.no_grad():
        logits = peft.eval()(torch.tensor([prompt.ids])).logits[0, list(prompt.reads)]
    assert scorer.score(QUESTION, STEPS).step_scores == pytest.approx(logits.softmax(-1)[:, 1].tolist(), abs=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"use_dora": True}, "LORA with use_dora; only plain LoRA is supported"),
        ({"peft_type": "IA3"}, "has type IA3; only plain LoRA"),
        ({"alpha_pattern": {"q_proj": 3}}, "alpha_pattern"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights=pissa"),
    ],
)
def test_other_adapter_types_are_rejected(adapter: Path, tmp_path: Path, change: dict[str, Any], message: str) -> None:
    copy = shutil.copytree(adapter, tmp_path / "Math-psa")
    settings = json.loads((copy / "adapter_config.json").read_text())
    (copy / "adapter_config.json").write_text(json.dumps(settings | change))
    with pytest.raises(CheckpointError, match=message):
        load_local(copy)


def test_tensors_that_do_not_match_the_base_are_reported(adapter: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(adapter, tmp_path / "Math-psa")
    tensors = load_file(copy / "adapter_model.safetensors")
    name = next(name for name in tensors if "lora_A" in name)
    save_file({**tensors, "base_model.model.odd.weight": torch.zeros(1)}, copy / "adapter_model.safetensors")
    with pytest.raises(CheckpointError, match=r"odd\.weight, which is neither"):
        load_local(copy)
    save_file({key: value for key, value in tensors.items() if key != name}, copy / "adapter_model.safetensors")
    with pytest.raises(CheckpointError, match="a factor or the tensor is missing"):
        load_local(copy)
    save_file({**tensors, name: torch.zeros(8, 5)}, copy / "adapter_model.safetensors")
    with pytest.raises(CheckpointError, match="Check that this is the right base"):
        load_local(copy)
    (copy / "adapter_model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"no adapter_model\.safetensors"):
        load_local(copy)
