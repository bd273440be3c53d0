"""A scorer's model as a torch module: logits of every token, alone or in a padded batch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import surefoot
from helpers.reference import Reference
from helpers.small import LINEAR, write
from surefoot.scoring.local import load_local
from surefoot.scoring.logits import TwoClassModel


def test_logits_are_those_of_a_plain_forward_pass(scorer: surefoot.Scorer, checkpoint: Path) -> None:
    model = TwoClassModel(scorer)
    rows = [scorer.tokenizer.encode_prompt(text) for text in ("one two three<extra_0>", "one<extra_0>")]
    width = len(rows[0])
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    logits = model(ids, mask).logits
    reference = Reference(checkpoint)
    with torch.no_grad():
        expected = reference.head(reference.backbone(input_ids=ids).last_hidden_state)
    assert torch.allclose(logits[mask == 1], expected[mask == 1], atol=1e-4)
    assert (logits[mask == 0] == 0).all()
    left = model(input_ids=ids[1:].roll(width - len(rows[1]), 1), attention_mask=mask.flip(1)[1:])[0]
    assert torch.allclose(left[mask.flip(1)[1:] == 1], logits[1:][mask[1:] == 1], atol=1e-5)
    alone = model(input_ids=ids[1:, : len(rows[1])])[0]
    assert torch.allclose(alone[0], logits[1, : len(rows[1])], atol=1e-5)
    assert model(ids, torch.zeros_like(ids))[0].count_nonzero() == 0


def test_the_model_is_a_module(scorer: surefoot.Scorer) -> None:
    model = TwoClassModel(scorer)
    assert isinstance(model.eval(), nn.Module)
    assert model.config.hidden_size == 64
    assert {parameter.device for parameter in model.parameters()} == {model.device}
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_other_heads_have_no_two_logits(tmp_path: Path) -> None:
    folder = write(tmp_path / "trl", "qwen2", "Qwen2ForTokenClassification", LINEAR, lm_head=False, quiet=[198])
    with pytest.raises(AttributeError, match="family trl do not have two logits"):
        TwoClassModel(load_local(folder))
