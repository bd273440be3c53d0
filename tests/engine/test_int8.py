"""8-bit layers: exact integer arithmetic, quality with outliers, every engine, and the sample they are fitted to."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import surefoot
from surefoot.core.prompt import Prompt
from surefoot.engine import hardware, int8, quantization
from surefoot.engine.int8 import (
    GROUP,
    LARGEST_FACTOR,
    DynamicProduct,
    Int8Linear,
    JointInt8Linear,
    OneDnnProduct,
    balance,
)
from surefoot.errors import OptionError
from surefoot.scoring.activation_sample import SAMPLE
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


def by_hand(inputs: Tensor, weight: Tensor, largest: int) -> np.ndarray[Any, Any]:
    """The layer in numpy: codes as integers, summed exactly, one group of columns after the other."""
    x, w = inputs.double().numpy(), weight.double().numpy()
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


@pytest.mark.parametrize(("outputs", "inputs"), [(48, 32), (64, 700), (64, 257), (1, 1)])
def test_it_computes_what_numpy_computes(outputs: int, inputs: int) -> None:
    if int8.engine() != "onednn":
        pytest.skip("the engine of this machine rounds by itself")
    weight, rows = normal(outputs, inputs), normal(9, inputs, seed=1)
    found = Int8Linear(weight, None, torch.float32, CPU)(rows)
    expected = by_hand(rows, weight, OneDnnProduct.largest())
    # A code may round to the other neighbour where the quotient is halfway in one of the precisions.
    assert np.abs(found.numpy() - expected).max() < 1e-2 * np.abs(expected).max()
    assert np.median(np.abs(found.numpy() - expected)) < 1e-5 * np.abs(expected).max()


def test_a_token_does_not_depend_on_the_others() -> None:
    weight, bias = normal(48, 700), normal(48, seed=2)
    inputs = normal(2, 5, 700, seed=1)
    layer = Int8Linear(weight, bias, torch.float32, CPU, peaks=inputs.abs().amax((0, 1)))
    calm = layer(inputs)
    assert (calm - nn.functional.linear(inputs, weight, bias)).abs().max() < 0.02 * calm.abs().max()
    stormy = inputs.clone()
    stormy[0, 0] *= 1e4
    assert torch.allclose(layer(stormy)[1], calm[1], atol=1e-5)
    assert torch.allclose(layer(inputs[1, 2:3]), calm[1, 2:3], atol=1e-5)
    assert torch.equal(layer(torch.zeros(1, 700)), bias[None])


def test_large_columns_cost_no_precision() -> None:
    """As in real models: a few columns are a hundred times larger than the others, for every token."""
    weight, inputs = normal(96, 96), normal(64, 96, seed=1)
    inputs[:, [3, 50, 77]] *= 100
    inputs[:, 10:20] *= 5
    exact = inputs.double() @ weight.double().T

    def error(peaks: Tensor | None) -> float:
        found = Int8Linear(weight, None, torch.float32, CPU, peaks)(inputs)
        return float((found - exact).square().mean().sqrt())

    assert error(inputs.abs().amax(0)) < error(None) / 20


@pytest.mark.parametrize("large", [0, 7, 200])
def test_factors_equalize_inputs_and_weights(large: int) -> None:
    """SmoothQuant with strength 0.5: both have the same largest value per column, up to a common factor.

    The twelfth of the columns with the largest common values stays in float.
    """
    count = 100
    weight, peaks = normal(40, 1200).abs() + 0.1, torch.linspace(5, 6, 1200)
    weight[0] = 3.0 + torch.linspace(0, 0.1, 1200)  # the largest of each column
    weight[1:].clamp_(max=3.0)
    peaks[:large] *= 10
    factors, columns = balance(weight, peaks)
    assert factors.max() <= LARGEST_FACTOR
    assert len(columns) == count == int((factors == 0).sum())
    kept = (factors > 0) & (factors < LARGEST_FACTOR)
    ratio = (peaks * factors)[kept] / (weight.abs().amax(0) / factors)[kept]
    assert torch.allclose(ratio, ratio[:1].expand_as(ratio), rtol=1e-4)
    largest = torch.sqrt(peaks * weight.abs().amax(0)).topk(count).indices
    assert set(columns.tolist()) == set(largest.tolist())


@pytest.mark.parametrize("peaks", [torch.zeros(64), torch.full((64,), 1e30), torch.linspace(0, 1e-30, 64)])
def test_a_sample_without_information_changes_little(peaks: Tensor) -> None:
    weight, inputs = normal(64, 64), normal(8, 64, seed=1)
    found = Int8Linear(weight, None, torch.float32, CPU, peaks)(inputs)
    assert (found - inputs @ weight.T).abs().max() < 0.1 * found.abs().max()


def test_layers_with_the_same_inputs_are_one_layer() -> None:
    weights = [normal(40, 96), normal(8, 96, seed=1), normal(24, 96, seed=2)]
    bias, inputs = normal(8, seed=3), normal(5, 96, seed=4)
    peaks = inputs.abs().amax(0)
    joint = JointInt8Linear(weights, [None, bias, None], torch.float32, CPU, peaks)
    parts = joint.parts()
    exact = [inputs @ weights[0].T, inputs @ weights[1].T + bias, inputs @ weights[2].T]
    calls: list[Tensor] = []
    joint.layer.register_forward_pre_hook(lambda _, given: calls.append(given[0]))
    for _ in range(2):
        for part, expected in zip(parts, exact, strict=True):
            assert (part(inputs) - expected).abs().max() < 0.02 * expected.abs().max()
    assert len(calls) == 2, "once per pass, and again for the next pass although the tensor is the same"
    assert joint._pass.inputs is None

    other = inputs.clone().neg_()
    first = parts[0](inputs)
    assert torch.allclose(parts[0](other), -first, atol=1e-5), "other inputs are not mixed up"
    assert torch.allclose(parts[1](inputs), exact[1], atol=0.02 * float(exact[1].abs().max()))

    calls.clear()
    third = inputs.clone()
    parts[0](third)
    with ThreadPoolExecutor(1) as other_thread:
        other_thread.submit(parts[0], other).result()
    assert len(calls) == 2
    parts[1](third)
    assert len(calls) == 2, "another thread does not disturb the pass of this one"


OVERFLOW = """
import torch
from surefoot.engine.int8 import Int8Linear, OneDnnProduct
weight, rows = torch.ones(64, 512), torch.ones(4, 512)
found = Int8Linear(weight, None, torch.float32, torch.device("cpu"))(rows)
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
    assert quantization.computation("int8", CPU) == f"int8 3 {name}"
    quantization.require("int8", CPU)
    weight, inputs = normal(48, 700), normal(6, 700, seed=1)
    layer = Int8Linear(weight, None, torch.float32, CPU, inputs.abs().amax(0))
    assert all(isinstance(product, DynamicProduct) for product in layer._products)
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


SAME_INPUTS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""The layers of a decoder block that read the same tensor."""


def sample_prompts(scorer: surefoot.Scorer) -> list[Prompt]:
    return [scorer.family.render(scorer.tokenizer, question, steps) for question, steps in SAMPLE]


def test_layers_know_the_inputs_of_the_sample(checkpoint: Path) -> None:
    """The peaks are those of the stock model in transformers, one prompt at a time."""
    from safetensors.torch import load_file
    from transformers import Qwen2Config, Qwen2Model

    scorer, small = load_local(checkpoint), load_local(checkpoint, quantize="int8")
    model = Qwen2Model(Qwen2Config.from_pretrained(checkpoint)).eval()
    stored = load_file(checkpoint / "model.safetensors")
    model.load_state_dict({name.removeprefix("model."): x for name, x in stored.items() if name.startswith("model.")})
    peaks: dict[str, Tensor] = {}

    def observe(path: str, inputs: Tensor) -> None:
        largest = inputs.abs().amax((0, 1))
        peaks[path] = torch.maximum(peaks.get(path, largest), largest)

    layers = {path: layer for path, layer in model.named_modules() if isinstance(layer, nn.Linear)}
    for path, layer in layers.items():
        layer.register_forward_pre_hook(lambda _, inputs, path=path: observe(path, inputs[0]))
    with torch.inference_mode():
        for prompt in sample_prompts(scorer):
            model(input_ids=torch.tensor([prompt.cut(scorer.max_tokens).ids]))
    backbone: Any = small.engine.backbone
    assert layers
    for path in layers:
        folder, _, name = path.rpartition(".")
        together = next((names for names in SAME_INPUTS if name in names), (name,))
        weights = torch.cat([layers[f"{folder}.{each}"].weight.detach() for each in together])
        factors, columns = balance(weights, peaks[path])
        found = backbone.get_submodule(path)
        if len(together) > 1:
            found = found.joint.layer
        assert isinstance(found, Int8Linear)
        assert found._factors is not None
        assert torch.allclose(found._factors, factors, rtol=1e-3, atol=1e-5)
        assert torch.equal(found._columns, columns)
    assert not any(isinstance(module, nn.Linear) for module in backbone.modules())


def test_only_one_block_is_in_memory_in_float(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from surefoot.engine import sampled_quantization

    full: list[int] = []
    created = Int8Linear.__init__

    def count(layer: Int8Linear, *args: Any, **options: Any) -> None:
        created(layer, *args, **options)
        living = [path for path, module in seen[0].named_modules() if isinstance(module, nn.Linear)]
        full.append(sum(not seen[0].get_parameter(f"{path}.weight").is_meta for path in living))

    seen: list[nn.Module] = []
    plain = sampled_quantization.quantize_blocks

    def remember(backbone: nn.Module, *args: Any, **options: Any) -> None:
        seen.append(backbone)
        plain(backbone, *args, **options)

    monkeypatch.setattr("surefoot.engine.weights.quantize_blocks", remember)
    monkeypatch.setattr(Int8Linear, "__init__", count)
    load_local(checkpoint, quantize="int8")
    assert len(full) == 2 * 4
    assert max(full) == 7


def test_a_model_whose_context_is_shorter_than_the_sample(tmp_path: Path) -> None:
    """Nothing of the sample fits, so the layers are quantized as they are."""
    folder = write_qwen_checkpoint(tmp_path / "short", max_position_embeddings=8)
    backbone: Any = load_local(folder, quantize="int8").engine.backbone
    layers = [module for module in backbone.modules() if isinstance(module, Int8Linear)]
    assert len(layers) == 2 * 7
    assert all(layer._factors is None for layer in layers)


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
