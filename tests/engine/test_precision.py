"""The option `precision`: what it chooses, from which measurement, and what results say about it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import surefoot
from helpers.card import CARD_QUESTION, CARD_STEPS
from helpers.reference import Reference
from surefoot.core.options import Precision
from surefoot.engine import int8, precision
from surefoot.engine.checkpoint import open_checkpoint
from surefoot.engine.hardware import runs_on_cpu
from surefoot.engine.precision import BFLOAT16, FLOAT32, INT8, NumberFormat, choose_format, fastest, layer_matrices
from surefoot.errors import OptionError
from surefoot.scoring.local import load_local
from surefoot.testing import write_qwen_checkpoint

CPU = torch.device("cpu")
ALL = [FLOAT32, BFLOAT16, INT8]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(precision, "cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache" / "number-formats"


def times(monkeypatch: pytest.MonkeyPatch, **seconds: float) -> list[list[str]]:
    """Replaces the measurement, as on a machine with these speeds; returns the formats that were asked for."""
    asked: list[list[str]] = []

    def measured(candidates: list[NumberFormat], _: object) -> dict[str, float]:
        asked.append([each.name for each in candidates])
        return {name: seconds[name] for name in asked[-1] if name in seconds}

    monkeypatch.setattr(precision, "measure", measured)
    monkeypatch.setattr(precision, "runs_on_cpu", lambda _: True)
    return asked


@pytest.mark.parametrize(
    ("seconds", "chosen"),
    [
        ({"float32": 1.0, "bfloat16": 0.5, "int8": 0.3}, INT8),
        ({"float32": 1.0, "bfloat16": 0.5, "int8": 0.48}, BFLOAT16),
        ({"float32": 1.0, "bfloat16": 0.95, "int8": 0.93}, FLOAT32),
        ({"float32": 1.0, "bfloat16": 0.95, "int8": 0.9}, INT8),
        ({"float32": 1.0, "int8": 0.4}, INT8),
        ({"float32": 1.0, "bfloat16": 3.0}, FLOAT32),
    ],
)
def test_a_small_gain_is_not_worth_a_coarser_format(seconds: dict[str, float], chosen: NumberFormat) -> None:
    assert fastest(ALL, seconds) == chosen


@pytest.mark.parametrize(
    ("kind", "asked", "name"),
    [
        ("exact", [], "float32"),
        ("auto", [["float32", "bfloat16"]], "bfloat16"),
        ("fast", [["float32", "bfloat16", "int8"]], "int8"),
    ],
)
def test_results_say_what_was_used(
    checkpoint: Path, kind: Precision, asked: list[list[str]], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = times(monkeypatch, float32=1.0, bfloat16=0.5, int8=0.25)
    scorer = surefoot.load(checkpoint, precision=kind, device="cpu")
    assert found == asked
    result = scorer.score(CARD_QUESTION, CARD_STEPS)
    assert result.precision == name
    assert surefoot.SolutionScore.from_dict(json.loads(json.dumps(result.to_dict()))).precision == name
    assert scorer.score("q", []).precision == name, "also if nothing was scored"
    same = load_local(checkpoint, device="cpu", **{"int8": {"quantize": "int8"}}.get(name, {"dtype": name}))
    assert scorer.fingerprint == same.fingerprint
    assert result.step_scores == same.score(CARD_QUESTION, CARD_STEPS).step_scores


def test_exact_is_the_default(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rewards are exact unless the user chooses otherwise."""
    asked = times(monkeypatch, float32=1.0, bfloat16=0.1, int8=0.1)
    scorer = load_local(checkpoint, device="cpu")
    prompt = scorer.family.render(scorer.tokenizer, CARD_QUESTION, CARD_STEPS)
    found = scorer.score(CARD_QUESTION, CARD_STEPS)
    assert found.step_scores == pytest.approx(Reference(checkpoint).scores(prompt), abs=1e-5)
    assert (found.precision, asked) == ("float32", [])


def test_a_machine_is_measured_once(checkpoint: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = times(monkeypatch, float32=1.0, bfloat16=0.5, int8=0.25)
    opened = open_checkpoint(checkpoint)
    assert [choose_format("fast", opened, CPU) for _ in range(3)] == [INT8] * 3
    assert choose_format("auto", opened, CPU) == BFLOAT16
    assert len(asked) == 2
    for content in ("", "[]", '{"float32": "x"}', '{"bfloat16": 0.1}', '{"float32": null}'):
        for file in cache.iterdir():
            file.write_text(content)
        assert choose_format("fast", opened, CPU) == INT8
    assert len(asked) == 7, "an unreadable file is replaced"
    assert {json.loads(file.read_text())["float32"] for file in cache.iterdir() if "int8" in file.read_text()} == {1.0}


def test_a_cache_that_cannot_be_written(checkpoint: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times(monkeypatch, float32=1.0, bfloat16=0.5, int8=0.25)
    cache.parent.write_text("a file where the folder should be")
    assert choose_format("fast", open_checkpoint(checkpoint), CPU) == INT8


def test_other_shapes_are_measured_again(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = times(monkeypatch, float32=1.0, bfloat16=0.5, int8=0.25)
    wider = open_checkpoint(write_qwen_checkpoint(tmp_path / "wider", intermediate_size=192))
    for opened in (open_checkpoint(checkpoint), wider, wider):
        choose_format("fast", opened, CPU)
    assert len(asked) == 2
    assert layer_matrices(wider)["up_proj"] == (192, wider.setting("hidden_size"))
    assert len(layer_matrices(wider)) == 7, "the seven matrices of a decoder layer"


def test_every_format_is_really_measured() -> None:
    candidates = [
        FLOAT32,
        *([BFLOAT16] if runs_on_cpu("bfloat16") else []),
        *([INT8] if int8.engine() else []),
    ]
    found = precision.measure(candidates, {"q_proj": (64, 64), "up_proj": (192, 64)})
    assert found["float32"] > 0
    assert set(found) <= {each.name for each in candidates}


def test_a_format_without_a_kernel_is_given_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """As bfloat16 on CPUs with AVX2 only: eight rows tell, 128 are not tried."""
    rows: list[int] = []

    def seconds(_: object, inputs: list[torch.Tensor]) -> float:
        rows.append(len(inputs[0]))
        return 10.0 if inputs[0].dtype == torch.bfloat16 else 1.0

    monkeypatch.setattr(precision, "_seconds", seconds)
    assert precision.measure([FLOAT32, BFLOAT16, INT8], {"o_proj": (64, 64)}) == {"float32": 1.0, "int8": 1.0}
    assert rows == [8, 128, 8, 8, 128]


@pytest.mark.parametrize("other", [{"dtype": "bfloat16"}, {"quantize": "nf4"}, {"dtype": torch.float32}])
def test_precision_excludes_a_chosen_format(other: dict[str, object]) -> None:
    with pytest.raises(OptionError, match="chooses the number format. Omit it, or omit `dtype` and `quantize`"):
        load_local("mini", precision="fast", **other)


def test_an_unknown_precision() -> None:
    with pytest.raises(OptionError, match="precision='exactly' is not supported. Choose one of: exact, auto, fast"):
        load_local("mini", precision="exactly")
