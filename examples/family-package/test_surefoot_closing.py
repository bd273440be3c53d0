from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from surefoot_closing import Closing
from transformers import AutoModel

import surefoot
from surefoot.families import PromptTokenizer, all_models
from surefoot.testing import byte_tokenizer_json, write_base

QUESTION, STEPS = "1+1?", ["It is 2.", "So 2."]


def write_checkpoint(folder: Path) -> Path:
    """A small checkpoint of this family with random weights."""
    write_base(folder, "llama")
    tensors = load_file(folder / "model.safetensors")
    tensors |= {"value.weight": torch.randn(1, 32), "value.bias": torch.zeros(1)}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


def test_the_ids_are_those_of_training() -> None:
    tokenizer = PromptTokenizer(json.loads(byte_tokenizer_json("<|im_end|>")))
    end = tokenizer.token("<|im_end|>")
    prompt = Closing().render(tokenizer, QUESTION, STEPS)
    question, *steps = tokenizer.encode("Q: 1+1?", *STEPS)
    assert list(prompt.ids) == [*question, *steps[0], end, *steps[1], end]
    assert [prompt.ids[read] for read in prompt.reads] == [end, end]
    assert Closing().render(tokenizer, "q", ["<|im_end|>"]).ids.count(end) == 1, "text never becomes structure"


def test_the_scores_are_those_of_a_plain_forward_pass(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "model")
    result = surefoot.load(folder, family="closing").score(QUESTION, STEPS)
    tensors = load_file(folder / "model.safetensors")
    prompt = Closing().render(PromptTokenizer.from_folder(folder), QUESTION, STEPS)
    with torch.no_grad():
        hidden = AutoModel.from_pretrained(folder)(torch.tensor([prompt.ids])).last_hidden_state[0]
    expected = (hidden[list(prompt.reads)] @ tensors["value.weight"].T + tensors["value.bias"]).sigmoid()[:, 0]
    assert torch.allclose(torch.tensor(result.step_scores), expected, atol=1e-5)


def test_surefoot_finds_the_family(tmp_path: Path) -> None:
    assert "example/closing-1b" in {row.id for row in all_models()}
    folder = write_checkpoint(tmp_path / "closing-1b-long")
    by_name = surefoot.load(folder).score(QUESTION, STEPS).step_scores
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["LlamaForClosingPRM"]}))
    renamed = folder.rename(tmp_path / "any name")
    by_architecture = surefoot.load(renamed).score(QUESTION, STEPS).step_scores
    assert by_architecture != by_name, "another lead"
    given = surefoot.load(renamed, family_options={"lead": "Question: "})
    assert given.score(QUESTION, STEPS).step_scores == by_name
