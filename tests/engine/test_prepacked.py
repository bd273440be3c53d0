"""Prepacked layers compute what torch's own do, on any CPU, and are used only where they work."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from helpers.card import CARD_QUESTION, CARD_STEPS
from helpers.reference import Reference
from surefoot.engine import prepacked
from surefoot.engine.prepacked import (
    PrepackedFeedForward,
    PrepackedLinear,
    can_prepack,
    fuse_feed_forward,
    has_onednn,
)
from surefoot.scoring.local import load_local
from surefoot.train.model import make_trainee

CPU = torch.device("cpu")
ROWS = (1, 2, 5, 11, 16, 33, 100, 300, 513)
needs = pytest.mark.skipif(not has_onednn(), reason="torch has no oneDNN here")
needs_float32 = pytest.mark.skipif(
    not can_prepack(torch.float32, CPU), reason="oneDNN may crash on CPUs that report AMX"
)


def exact(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    product = inputs.double() @ weight.double().T
    return product if bias is None else product + bias.double()


@needs
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("shape", [(1536, 576), (192, 576), (2, 64), (7, 33), (896, 4864)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_equal_those_in_double_precision(dtype: torch.dtype, shape: tuple[int, int], biased: bool) -> None:
    if not can_prepack(dtype, CPU):
        pytest.skip(f"{dtype} cannot be prepacked on this CPU")
    torch.manual_seed(0)
    weight = (torch.randn(shape) * shape[1] ** -0.5).to(dtype)
    bias = torch.randn(shape[0]).to(dtype) if biased else None
    layer = PrepackedLinear(weight, bias)
    # Half of the last place of results up to 8, and rounding while summing.
    tolerance = 2e-5 if dtype == torch.float32 else 0.02
    with torch.inference_mode():
        for rows in ROWS:
            inputs = torch.randn(1, rows, shape[1]).to(dtype)
            found = layer(inputs)
            assert found.shape == (1, rows, shape[0])
            assert found.dtype == dtype
            torch.testing.assert_close(found.double(), exact(inputs, weight, bias), rtol=0, atol=tolerance)


@needs_float32
def test_a_row_depends_on_no_other_row() -> None:
    torch.manual_seed(0)
    layer = PrepackedLinear(torch.randn(512, 300) * 0.06, None)
    inputs = torch.randn(513, 300)
    together = layer(inputs)
    for rows in ROWS:
        torch.testing.assert_close(layer(inputs[:rows]), together[:rows], rtol=0, atol=5e-6)


@needs_float32
def test_a_model_keeps_only_the_packed_weights(checkpoint: Path) -> None:
    backbone = load_local(checkpoint).engine.backbone
    assert [module for module in backbone.modules() if isinstance(module, PrepackedLinear)]
    assert not [module for module in backbone.modules() if isinstance(module, nn.Linear)]
    assert not [name for name, _ in backbone.named_parameters() if name.endswith("proj.weight")]


def test_scores_are_those_of_transformers(checkpoint: Path) -> None:
    scorer = load_local(checkpoint)
    prompt = scorer.family.render(scorer.tokenizer, CARD_QUESTION, CARD_STEPS)
    found = scorer.score(CARD_QUESTION, CARD_STEPS).step_scores
    assert found == pytest.approx(Reference(checkpoint).scores(prompt), abs=1e-5)


@pytest.mark.parametrize(
    ("dtype", "device", "flags", "enabled", "works"),
    [
        (torch.float32, "cpu", set(), True, True),
        (torch.float32, "cpu", {"amx_tile"}, True, False),
        (torch.float32, "cpu", set(), False, False),
        (torch.float32, "cuda", set(), True, False),
        (torch.float16, "cpu", set(), True, False),
    ],
)
def test_only_where_it_works(
    dtype: torch.dtype, device: str, flags: set[str], enabled: bool, works: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepacked, "cpu_has_flag", lambda flag: flag in flags)
    monkeypatch.setattr(prepacked, "has_onednn", lambda: enabled)
    assert can_prepack(dtype, torch.device(device)) == works


@pytest.mark.parametrize("works", [True, False])
def test_bfloat16_is_tried_first(works: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepacked, "runs_on_cpu", lambda _: works)
    supported = has_onednn() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    assert can_prepack(torch.bfloat16, CPU) == (works and supported)


def test_plain_layers_where_prepacking_does_not_work(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = load_local(checkpoint).score(CARD_QUESTION, CARD_STEPS)
    monkeypatch.setattr(prepacked, "cpu_has_flag", lambda flag: flag == "amx_tile")
    plain = load_local(checkpoint)
    assert [module for module in plain.engine.backbone.modules() if isinstance(module, nn.Linear)]
    assert plain.score(CARD_QUESTION, CARD_STEPS).step_scores == pytest.approx(usual.step_scores, abs=1e-5)


class FeedForward(nn.Module):
    """The block of Llama and Qwen, with another activation if asked for."""

    def __init__(self, activation: nn.Module, layers: list[PrepackedLinear]) -> None:
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = layers
        self.activation = activation

    def forward(self, inputs: Tensor) -> Tensor:
        product: Tensor = self.down_proj(self.activation(self.gate_proj(inputs)) * self.up_proj(inputs))
        return product


@needs
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("activation", "fused"), [(nn.SiLU(), True), (nn.GELU(), False), (nn.Identity(), False)])
def test_only_blocks_that_compute_the_same_are_fused(dtype: torch.dtype, activation: nn.Module, fused: bool) -> None:
    if not can_prepack(dtype, CPU):
        pytest.skip(f"{dtype} cannot be prepacked on this CPU")
    torch.manual_seed(0)
    weights = [(torch.randn(shape) * shape[1] ** -0.5).to(dtype) for shape in ((160, 64), (160, 64), (64, 160))]
    biases = [torch.randn(160).to(dtype), None, torch.randn(64).to(dtype)]
    layers = [PrepackedLinear(weight, bias) for weight, bias in zip(weights, biases, strict=True)]
    model = nn.ModuleDict({"block": FeedForward(activation, layers)})
    fuse_feed_forward(model)
    assert isinstance(model["block"], PrepackedFeedForward) == fused
    inputs = torch.randn(1, 33, 64).to(dtype)
    gate, up = (exact(inputs, weights[at], biases[at]) for at in (0, 1))
    expected = (activation(gate) * up) @ weights[2].double().T + (biases[2] if biases[2] is not None else 0)
    tolerance = 2e-5 if dtype == torch.float32 else 0.1
    with torch.inference_mode():
        torch.testing.assert_close(model["block"](inputs).double(), expected, rtol=0, atol=tolerance)


def test_layers_to_train_are_not_packed(checkpoint: Path) -> None:
    trainee = make_trainee(checkpoint)
    layers = [module for module in trainee.model.modules() if isinstance(module, nn.Linear)]
    assert len(layers) > 2
    assert all(layer.weight.requires_grad for layer in layers)
