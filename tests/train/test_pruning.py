"""Narrower feed-forward blocks: the units that matter stay, and the result is an ordinary model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from surefoot.errors import OptionError
from surefoot.scoring.local import load_local
from surefoot.testing import write_base
from surefoot.train.example import from_label
from surefoot.train.export import export
from surefoot.train.loop import train
from surefoot.train.model import make_trainee
from surefoot.train.settings import Settings, Sitting

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


def test_output_weights_are_those_of_a_ridge_regression(tmp_path: Path) -> None:
    """The kept units predict what the whole block adds, each token divided by its size (NumPy's lstsq)."""
    folder = write_base(tmp_path / "base")
    texts = [f"How many are {a} pens and {b}?\n{a} + {b} = {a + b}." for a in range(5) for b in range(5)]
    whole = make_trainee(folder, layers=1)
    width, units = int(whole.config["intermediate_size"]), 24
    narrow = make_trainee(folder, layers=1, units=(units, texts))
    old, new = (trainee.model.get_submodule("model.layers.0.mlp") for trainee in (whole, narrow))

    inputs: list[torch.Tensor] = []
    outputs: list[torch.Tensor] = []
    last = old.get_submodule("down_proj")
    last.register_forward_pre_hook(lambda _, given: inputs.append(given[0][0]))
    last.register_forward_hook(lambda _, given, added: outputs.append(added[0]))
    with torch.no_grad():
        for ids in whole.tokenizer.encode(*texts):
            whole.model.model(input_ids=torch.tensor([ids]))
    activations, added = torch.cat(inputs), torch.cat(outputs)
    gates = {tuple(row): unit for unit, row in enumerate(old.get_parameter("gate_proj.weight").tolist())}
    kept = [gates[tuple(row)] for row in new.get_parameter("gate_proj.weight").tolist()]
    assert len(set(kept)) == units < width
    weights = old.get_parameter("down_proj.weight").detach()[:, kept]
    size = added.norm(dim=1, keepdim=True)
    rows, missing = activations[:, kept] / size, (added - activations[:, kept] @ weights.T) / size
    penalty = (0.1 * float(rows.square().sum(0).mean())) ** 0.5
    table = np.concatenate([rows.double().numpy(), penalty * np.eye(units)])  # a ridge is one more row per weight
    goal = np.concatenate([missing.double().numpy(), np.zeros((units, len(weights)))])
    expected = weights.numpy() + np.linalg.lstsq(table, goal, rcond=None)[0].T
    found = new.get_parameter("down_proj.weight").detach()
    assert found.numpy() == pytest.approx(expected, abs=1e-4)
    assert found.numpy() != pytest.approx(weights.numpy(), abs=1e-2)


def test_the_number_of_units_must_fit(tmp_path: Path) -> None:
    folder = write_base(tmp_path / "base")
    width = json.loads((folder / "config.json").read_text())["intermediate_size"]
    for units in (0, width + 1):
        with pytest.raises(OptionError, match=f"units={units}, but the feed-forward blocks have {width}"):
            make_trainee(folder, units=(units, TEXTS))


def test_it_needs_texts(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="Pruning needs texts"):
        make_trainee(write_base(tmp_path / "base"), units=(8, [""]))


def test_a_run_resumes_whatever_the_rounding_of_what_pruning_solves_for(tmp_path: Path) -> None:
    """The base is pruned again to resume a run, perhaps with another number of threads."""
    folder = write_base(tmp_path / "base")
    examples = [from_label("How many?", ["3 * 4 = 12.", "So 12."], label) for label in (-1, 0, 1)]
    settings = Settings(steps=2, precision="float32")
    train(make_trainee(folder, units=(8, TEXTS)), examples, tmp_path / "out", settings, Sitting(steps=1))
    again = make_trainee(folder, units=(8, TEXTS))
    with torch.no_grad():
        for layer in again.model.layers:
            layer.get_parameter("mlp.down_proj.weight").mul_(1 + 1e-6)
    assert train(again, examples, tmp_path / "out", settings).finished
    with torch.no_grad():
        again.model.layers[0].get_parameter("mlp.up_proj.weight").mul_(1 + 1e-6)
    with pytest.raises(OptionError, match="a run that differs in: base"):
        train(again, examples, tmp_path / "out", settings)


def test_all_units_are_the_same_model(tmp_path: Path) -> None:
    folder = write_base(tmp_path / "base")
    width = json.loads((folder / "config.json").read_text())["intermediate_size"]
    plain, kept = make_trainee(folder), make_trainee(folder, units=(width, TEXTS))
    assert all(
        torch.equal(a, b)
        for a, b in zip(plain.model.state_dict().values(), kept.model.state_dict().values(), strict=True)
    )
