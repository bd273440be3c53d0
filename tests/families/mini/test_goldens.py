"""The shipped scores of the embedded model, against a plain forward pass of its checkpoint with transformers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from tokenizers import Tokenizer
from torch import nn
from transformers import LlamaConfig, LlamaModel

import surefoot
from surefoot.cli.main import main
from surefoot.families import FAMILIES, find_goldens
from surefoot.families.goldens import Golden
from surefoot.families.mini import FOLDER
from surefoot.scoring.check import check
from surefoot.scoring.local import load_local

HOLDS, FAILS, NEW = "<|sums-hold|>", "<|sum-fails|>", "<|new-number|>"
NOTES: list[list[list[str]]] = [[[HOLDS], [FAILS]], [[HOLDS], [HOLDS], [HOLDS], [HOLDS]], [[], [NEW], []]]
"""What the calculator has to note on each step of each golden solution, by hand."""

GOLDENS = find_goldens(FAMILIES["mini"])


class PlainModel:
    """The embedded checkpoint in stock modules: nothing of our engine, tokenizer, prompt builder or weight reader."""

    def __init__(self) -> None:
        config = json.loads((FOLDER / "config.json").read_text())
        tensors = {name: torch.from_numpy(value) for name, value in self._tensors(FOLDER / "model.safetensors").items()}
        self.tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
        self.backbone = LlamaModel(LlamaConfig(**config, attn_implementation="eager")).eval()
        self.backbone.load_state_dict(
            {name.removeprefix("model."): value for name, value in tensors.items() if name.startswith("model.")}
        )
        size = config["hidden_size"]
        self.head = nn.Sequential(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, 2))
        self.head.load_state_dict(
            {name.removeprefix("score."): value for name, value in tensors.items() if name.startswith("score.")}
        )

    @staticmethod
    def _tensors(file: Path) -> dict[str, np.ndarray]:
        """Codes of 8 bits, or of 4 bits offset by 8 with the lower half first; one scale per 32 codes of a row."""
        stored = load_file(file)
        found = {
            name: value.astype(np.float32) for name, value in stored.items() if name.endswith((".weight", ".bias"))
        }
        for name, codes in stored.items():
            if name.endswith(".codes"):
                whole = name.removesuffix(".codes")
                scales = stored[f"{whole}.scales"].astype(np.float32)
                if codes.dtype == np.uint8:
                    halves = np.empty((codes.shape[0], 2 * codes.shape[1]), np.float32)
                    halves[:, 0::2], halves[:, 1::2] = codes % 16, codes // 16
                    codes = halves - 8
                found[whole] = codes.astype(np.float32) * np.repeat(scales, 32, axis=1)
        return found

    @torch.no_grad()
    def scores(self, golden: Golden, notes: list[list[str]]) -> list[float]:
        ids = [*self._encode(golden.question), self._id("<|solution|>")]
        reads = []
        for step, marks in zip(golden.steps, notes, strict=True):
            ids += [*self._encode(step), *map(self._id, marks), self._id("<|step|>")]
            reads.append(len(ids) - 1)
        hidden = self.backbone(input_ids=torch.tensor([ids])).last_hidden_state
        found: list[float] = self.head(hidden[0, reads]).softmax(-1)[:, 1].tolist()
        return found

    def _encode(self, text: str) -> list[int]:
        found: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return found

    def _id(self, token: str) -> int:
        found = self.tokenizer.token_to_id(token)
        assert found is not None
        return int(found)


def test_the_shipped_scores_are_those_of_a_plain_forward_pass() -> None:
    plain = PlainModel()
    assert len(GOLDENS) == len(NOTES)
    for golden, notes in zip(GOLDENS, NOTES, strict=True):
        assert plain.scores(golden, notes) == pytest.approx(golden.scores, abs=1e-4)


def test_the_embedded_model_has_the_shipped_scores(mini: surefoot.Scorer) -> None:
    """Much closer than `surefoot check` asks for, which also compares models in other number formats."""
    report = check(mini)
    assert [comparison.golden for comparison in report.comparisons] == list(GOLDENS)
    assert report.passed
    for comparison in report.comparisons:
        assert comparison.golden is not None
        assert comparison.example.step_scores == pytest.approx(comparison.golden.scores, abs=1e-4)


def test_half_precision_is_within_the_tolerance() -> None:
    assert check(load_local("mini", dtype="bfloat16")).passed


def test_the_command_compares(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "mini"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("The scores agree within") == len(GOLDENS)
    assert "not compared" not in shown


@pytest.mark.parametrize("name", ["./mini", "runs/mini", "my-mini", "gemini"])
def test_another_model_of_the_family_is_not_compared(name: str) -> None:
    assert find_goldens(FAMILIES["mini"], name) == ()
