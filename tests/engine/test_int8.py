"""8-bit layers: exact integer arithmetic, quality with outliers, every engine, and which layers of a model they are."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from surefoot.engine import hardware, int8, quantization
from surefoot.engine.int8 import BLOCK_ROWS, GROUP, DynamicProduct, Int8FeedForward, Int8Linear, OneDnnProduct, rotate
from surefoot.engine.prepacked import PrepackedLinear
from surefoot.errors import OptionError
from surefoot.scoring.local import load_local
from surefoot.testing import write_qwen_checkpoint

CPU = torch.device("cpu")


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def fresh() -> Iterator[None]:
    """Forget what was found out about this machine, before and after."""
    caches = (int8.engine, OneDnnProduct.largest, hardware.runs_on_cpu)
    for each in caches:
        each.cache_clear()
    yield
    for each in caches:
        each.cache_clear()


def rotated_by_hand(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The definition of Sylvester's matrix, without recursion: the sign is the parity of the common bits."""
    size = next(size for size in (64, 32, 16, 8, 4, 2, 1) if rows.shape[1] % size == 0)
    signs = np.array([[(-1) ** (i & j).bit_count() for i in range(size)] for j in range(size)])
    step = rows.shape[1] // size
    return np.hstack([rows[:, offset::step] @ signs.T / np.sqrt(size) for offset in range(step)])


def by_hand(inputs: Tensor, weight: Tensor, largest: int) -> np.ndarray[Any, Any]:
    """The layer in numpy: codes as integers, summed exactly, one group of columns after the other."""
    x, w = rotated_by_hand(inputs.double().numpy()), rotated_by_hand(weight.double().numpy())
    groups = -(-w.shape[1] // GROUP) if w.shape[1] > w.shape[0] else 1
    size = -(-w.shape[1] // groups)
    total = np.zeros((len(x), len(w)))
    for start in range(0, w.shape[1], size):
        rows, columns = x[:, start : start + size], w[:, start : start + size]
        row_scales = np.abs(rows).max(1, keepdims=True) / largest
        column_scales = np.abs(columns).max(1, keepdims=True) / 127
        codes = np.rint(rows / row_scales).astype(np.int64), np.rint(columns / column_scales).astype(np.int64)
        total += codes[0] @ codes[1].T * row_scales * column_scales.T
    return total


@pytest.mark.parametrize(("outputs", "inputs"), [(48, 32), (64, 700), (64, 257), (1, 1), (64, 2 * GROUP + 64)])
def test_it_computes_what_numpy_computes(outputs: int, inputs: int) -> None:
    if int8.engine() != "onednn":
        pytest.skip("the engine of this machine rounds by itself")
    weight, rows = normal(outputs, inputs), normal(9, inputs, seed=1)
    found = Int8Linear(weight, dtype=torch.float32, device=CPU)(rows)
    expected = by_hand(rows, weight, OneDnnProduct.largest())
    # A code may round to the other neighbour where the quotient is halfway in one of the precisions.
    assert np.abs(found.numpy() - expected).max() < 1e-2 * np.abs(expected).max()
    assert np.median(np.abs(found.numpy() - expected)) < 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("columns", [1, 6, 64, 576, 4864])
def test_a_rotation_keeps_products(columns: int) -> None:
    left, right = normal(5, columns), normal(7, columns, seed=1)
    before = left.clone()
    assert torch.allclose(rotate(left) @ rotate(right).T, left @ right.T, rtol=1e-4, atol=1e-4 * columns**0.5)
    assert torch.equal(left, before)
    assert rotate(left).data_ptr() != left.data_ptr(), "products overwrite what they get"
    assert np.allclose(rotate(left).numpy(), rotated_by_hand(left.double().numpy()), atol=1e-5)


def test_a_token_does_not_depend_on_the_others() -> None:
    weight, bias = normal(48, 700), normal(48, seed=2)
    inputs = normal(2, 5, 700, seed=1)
    layer = Int8Linear(weight, bias, dtype=torch.float32, device=CPU)
    calm = layer(inputs)
    # CPUs without VNNI instructions have half as many codes for the inputs.
    tolerance = 0.02 if int8.engine() == "onednn" and OneDnnProduct.largest() == 127 else 0.03
    assert (calm - nn.functional.linear(inputs, weight, bias)).abs().max() < tolerance * calm.abs().max()
    stormy = inputs.clone()
    stormy[0, 0] *= 1e4
    assert torch.allclose(layer(stormy)[1], calm[1], atol=1e-5)
    assert torch.allclose(layer(inputs[1, 2:3]), calm[1, 2:3], atol=1e-5)
    assert torch.equal(layer(torch.zeros(1, 700)), bias[None])


def test_a_rotation_does_not_depend_on_defaults_of_the_process() -> None:
    for each in (int8._hadamard, int8._rotation):
        each.cache_clear()
    rows = normal(3, 64)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            found = rotate(rows)
    finally:
        torch.set_default_dtype(torch.float32)
    assert found.dtype == torch.float32
    assert np.allclose(found.numpy(), rotated_by_hand(rows.double().numpy()), atol=1e-5)


def test_large_columns_cost_little_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in real models: a few columns are a hundred times larger than the others, for every token."""
    weight, inputs = normal(96, 896), normal(64, 896, seed=1)
    inputs[:, [3, 50, 477]] *= 100
    weight[:, [3, 50, 477]] /= 100  # as after training: the products are not larger
    exact = inputs.double() @ weight.double().T

    def error() -> float:
        found = Int8Linear(weight, dtype=torch.float32, device=CPU)(inputs)
        return float((found - exact).square().mean().sqrt() / exact.square().mean().sqrt())

    rotated = error()
    monkeypatch.setattr(int8, "ROTATED", 1)
    assert rotated < error() / 4


@pytest.mark.parametrize("value", [0.0, 1e-30, 1e30])
def test_constant_inputs(value: float) -> None:
    weight, inputs = normal(64, 64), torch.full((8, 64), value)
    found = Int8Linear(weight, dtype=torch.float32, device=CPU)(inputs)
    exact = inputs @ weight.T
    assert (found - exact).abs().max() <= 0.02 * exact.abs().max()


class FeedForward(nn.Module):
    """The block of Llama and Qwen, with another activation if asked for."""

    def __init__(self, activation: nn.Module | None = None, units: int = 300, bias: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.gate_proj, self.up_proj = nn.Linear(96, units, bias=bias), nn.Linear(96, units, bias=bias)
        self.down_proj = nn.Linear(units, 96, bias=bias)
        self.activation = activation or nn.SiLU()

    def forward(self, inputs: Tensor) -> Tensor:
        product: Tensor = self.down_proj(self.activation(self.gate_proj(inputs)) * self.up_proj(inputs))
        return product


def quantized(block: nn.Module) -> nn.Module:
    """What takes the place of a block in a model with 8-bit layers."""
    model = nn.ModuleDict({"block": block}).requires_grad_(False)
    int8.quantize_layers(
        model,
        lambda path: dict(model.get_submodule(path).named_parameters()),
        dtype=torch.float32,
        device=CPU,
    )
    return model["block"]


@pytest.mark.parametrize(
    ("block", "fused"),
    [
        (FeedForward(), True),
        (FeedForward(nn.GELU()), False),
        (FeedForward(bias=True), False),
    ],
)
def test_feed_forward_blocks_compute_what_they_did(block: FeedForward, fused: bool) -> None:
    inputs = normal(2, BLOCK_ROWS + 40, 96, seed=4)
    expected = block(inputs)
    model = quantized(block)
    assert isinstance(model, Int8FeedForward) == fused
    found = model(inputs)
    assert found.shape == expected.shape
    assert (found - expected).abs().max() < 0.05 * expected.abs().max()
    assert (found - expected).square().mean().sqrt() < 0.02 * expected.square().mean().sqrt()


def test_tokens_of_a_fused_block_do_not_depend_on_each_other() -> None:
    block = quantized(FeedForward())
    inputs = normal(BLOCK_ROWS + 40, 96, seed=4)
    inputs[3] *= 1e4
    together = block(inputs)
    for row in (0, 3, BLOCK_ROWS - 1, BLOCK_ROWS, BLOCK_ROWS + 39):
        alone = block(inputs[row : row + 1])
        assert (alone - together[row]).abs().max() < 1e-3 * together[row].abs().max(), row
    assert torch.equal(block(torch.zeros(2, 96)), torch.zeros(2, 96))
    assert block(torch.full((1, 96), torch.inf)).isnan().all(), "not a number that looks like a result"


def test_a_gate_with_several_scales_is_not_fused() -> None:
    """It has more inputs than outputs. No architecture we know does this."""
    block = FeedForward()
    block.gate_proj, block.up_proj = nn.Linear(2 * GROUP, 96, bias=False), nn.Linear(2 * GROUP, 96, bias=False)
    block.down_proj = nn.Linear(96, 2 * GROUP, bias=False)
    inputs = normal(4, 2 * GROUP)
    expected = block(inputs)
    model = quantized(block)
    assert isinstance(model, FeedForward)
    assert (model(inputs) - expected).abs().max() < 0.05 * expected.abs().max()


OVERFLOW = """
import torch
from surefoot.engine.int8 import Int8Linear, OneDnnProduct
weight, rows = torch.ones(64, 512), torch.ones(4, 512)
found = Int8Linear(weight, dtype=torch.float32, device=torch.device("cpu"))(rows)
print(OneDnnProduct.largest(), float((found - 512).abs().max()))
"""


@pytest.mark.parametrize("instructions", ["AVX2", "AVX512_CORE", "AVX512_CORE_VNNI"])
def test_sums_do_not_overflow_without_vnni(instructions: str) -> None:
    """Older instructions add two products in 16 bits. All codes are at their largest here, the worst case."""
    if int8.engine() != "onednn":
        pytest.skip("oneDNN does not run here")
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": instructions}
    child = subprocess.run(
        [sys.executable, "-c", OVERFLOW], env=environment, capture_output=True, text=True, timeout=300, check=True
    )
    largest, error = child.stdout.split()
    assert float(error) < 1e-3
    if instructions in ("AVX2", "AVX512_CORE"):
        assert largest == "63"


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("name", ["fbgemm", "qnnpack"])
def test_other_engines(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU whose AMX crashes, oneDNN cannot run, and another engine takes over."""
    if name not in torch.backends.quantized.supported_engines:
        pytest.skip(f"torch was built without {name}")
    monkeypatch.setattr(int8, "runs_on_cpu", lambda how: how == name)
    assert quantization.computation("int8", CPU) == f"int8 6 {name}"
    quantization.require("int8", CPU)
    weight, inputs = normal(48, 700), normal(6, 700, seed=1)
    layer = Int8Linear(weight, dtype=torch.float32, device=CPU)
    assert all(isinstance(product, DynamicProduct) for product in layer.products)
    exact = inputs @ weight.T
    assert (layer(inputs) - exact).abs().max() < 0.03 * exact.abs().max()
    inputs[0] *= 1e4
    assert torch.allclose(layer(inputs)[1:], layer(inputs[1:]), atol=1e-5)


@pytest.mark.usefixtures("fresh")
def test_without_an_engine_it_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(int8, "runs_on_cpu", lambda how: False)
    with pytest.raises(OptionError, match="int8.*cannot run on this CPU"):
        quantization.require("int8", CPU)
    with pytest.raises(OptionError, match="int8.*runs on the CPU only"):
        quantization.require("int8", torch.device("cuda"))


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("name", int8.ENGINES)
def test_the_probe_of_an_engine_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the CPU reports AMX, a child process tries the engine. Here it has to succeed."""
    if name not in torch.backends.quantized.supported_engines:
        pytest.skip(f"torch was built without {name}")
    command = [sys.executable, "-c", hardware.PROBE, name]
    found = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if hardware.cpu_has_flag("amx_tile") and found.returncode < 0:
        pytest.skip("the AMX of this CPU does not work")
    assert found.returncode == 0, found.stderr
    monkeypatch.setattr(hardware, "PROBE", "import sys; sys.exit(sys.argv[1] == 'onednn')")
    monkeypatch.setattr(hardware, "cpu_has_flag", lambda flag: flag == "amx_tile")
    assert hardware.runs_on_cpu(name) == (name != "onednn")


# --- whole models ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_qwen_checkpoint(tmp_path_factory.mktemp("int8"))


@pytest.mark.parametrize("prepacked", [True, False])
def test_which_layers_are_quantized(checkpoint: Path, prepacked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not prepacked:  # as on CPUs that report AMX
        monkeypatch.setattr("surefoot.engine.weights.can_prepack", lambda *_: False)
    backbone: Any = load_local(checkpoint, quantize="int8").engine.backbone
    for block in backbone.layers:
        for layer in (block.self_attn.q_proj, block.self_attn.k_proj, block.self_attn.v_proj):
            assert isinstance(layer, nn.Linear | PrepackedLinear)
        assert isinstance(block.self_attn.o_proj, Int8Linear)
        assert isinstance(getattr(block.mlp, "block", block.mlp), Int8FeedForward)
    layers = [module for module in backbone.modules() if isinstance(module, Int8Linear)]
    assert len(layers) == 4 * len(backbone.layers)


def test_one_layer_at_a_time_is_in_memory_in_float() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name in ("q_proj", "gate_proj", "up_proj", "down_proj"):
                setattr(self, name, nn.Linear(64, 64, bias=False))

    with torch.device("meta"):
        backbone = nn.Sequential(Block(), Block(), nn.Linear(64, 64))
    living: list[weakref.ref[Tensor]] = []
    most = 0

    def read(path: str) -> dict[str, Tensor]:
        nonlocal most
        gc.collect()
        weight = torch.ones(64, 64)
        living.append(weakref.ref(weight))
        most = max(most, sum(reference() is not None for reference in living))
        return {"weight": weight}

    int8.quantize_layers(backbone, read, dtype=torch.float32, device=CPU)
    assert len(living) == 2 * 3 + 1
    assert most == 1
    left = [path for path, module in backbone.named_modules() if isinstance(module, nn.Linear)]
    assert left == ["0.q_proj", "1.q_proj"]


def test_layers_of_the_same_name_with_other_inputs() -> None:
    """No architecture we know does this."""

    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate_proj, self.up_proj = nn.Linear(32, 48), nn.Linear(32, 48)

        def forward(self, inputs: Tensor) -> Tensor:
            gate: Tensor = self.gate_proj(inputs)
            up: Tensor = self.up_proj(2 * inputs)
            return gate + up

    model, inputs = Odd(), normal(6, 32)
    expected = model(inputs)
    assert (quantized(model)(inputs) - expected).abs().max() < 0.03 * expected.abs().max()


def test_mini_in_int8_is_close_to_float32() -> None:
    """The bounds that docs/engine.md states, on text that is not in the sample."""
    items = [
        (
            f"A box holds {n} red and {2 * n + 1} blue pens. Ida takes 3 out of each. How many are left in {n} boxes?",
            [
                f"One box holds {n} + {2 * n + 1} = {3 * n + 1} pens.",
                f"After Ida takes 3, a box has {3 * n + 1} - 3 = {3 * n - 2} pens.",
                f"In {n} boxes that is {n} * {3 * n - 2} = {n * (3 * n - 2) + (n % 3 == 0)} pens.",
                f"The answer is {n * (3 * n - 2) + (n % 3 == 0)}.",
            ],
        )
        for n in range(3, 27)
    ]
    exact, found = (
        torch.tensor([score for result in each.score_many(items) for score in result.step_scores])
        for each in (load_local("mini"), load_local("mini", quantize="int8"))
    )
    drift = (found - exact).abs()
    assert 1e-6 < drift.mean() < 0.005
    assert drift.max() < 0.03
