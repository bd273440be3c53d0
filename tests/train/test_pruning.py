"""Narrower feed-forward blocks: the units that matter stay, and the result is an ordinary model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from surefoot.errors import OptionError
from surefoot.scoring.local import load_local
from surefoot.testing import write_base
from surefoot.train.export import export
from surefoot.train.model import make_trainee

TEXTS = ["How many pens are there?", "There are 3 * 4 = 12 pens."]


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_units_that_do_nothing_are_the_first_to_go(kind: str, tmp_path: Path) -> None:
    """Half of the units are silenced by hand, a third each by their gate, their input and their output."""
    folder = write_base(tmp_path / "base", kind)
    whole = make_trainee(folder, family="mini")
    width = int(whole.config["intermediate_size"])
    generator = torch.Generator().manual_seed(0)
    silent = {}
    for number, layer in enumerate(whole.model.layers):
        block: Any = layer.mlp
        silent[number] = torch.randperm(width, generator=generator)[: width // 2]
        by_gate, by_input, by_output = silent[number].chunk(3)
        with torch.no_grad():
            block.gate_proj.weight[by_gate] = 0.0
            block.up_proj.weight[by_input] = 0.0
            block.down_proj.weight[:, by_output] = 0.0
    export(whole, tmp_path / "silenced")
    expected = load_local(tmp_path / "silenced").score("How many?", ["3 * 4 = 12.", "So 12."]).step_scores

    units = width - width // 2
    narrow = make_trainee(tmp_path / "silenced", units=(units, TEXTS))
    shapes = {tuple(layer.get_parameter("mlp.down_proj.weight").shape) for layer in narrow.model.layers}
    assert shapes == {(int(whole.config["hidden_size"]), units)}
    export(narrow, tmp_path / "narrow")
    assert json.loads((tmp_path / "narrow" / "config.json").read_text())["intermediate_size"] == units
    found = load_local(tmp_path / "narrow").score("How many?", ["3 * 4 = 12.", "So 12."]).step_scores
    assert found == pytest.approx(expected, abs=1e-5)


def test_the_number_of_units_must_fit(tmp_path: Path) -> None:
    folder = write_base(tmp_path / "base")
    width = json.loads((folder / "config.json").read_text())["intermediate_size"]
    for units in (0, width + 1):
        with pytest.raises(OptionError, match=f"units={units}, but the feed-forward blocks have {width}"):
            make_trainee(folder, units=(units, TEXTS))


def test_all_units_are_the_same_model(tmp_path: Path) -> None:
    folder = write_base(tmp_path / "base")
    width = json.loads((folder / "config.json").read_text())["intermediate_size"]
    plain, kept = make_trainee(folder), make_trainee(folder, units=(width, TEXTS))
    assert all(
        torch.equal(a, b)
        for a, b in zip(plain.model.state_dict().values(), kept.model.state_dict().values(), strict=True)
    )
