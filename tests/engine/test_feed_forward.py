"""Which feed-forward blocks count as gated by SiLU: those of transformers, and not what only looks like one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import silu
from transformers import GemmaConfig, LlamaConfig, Qwen2Config, Qwen3Config
from transformers.models.gemma.modeling_gemma import GemmaMLP
from transformers.models.llama.modeling_llama import LlamaMLP
from transformers.models.qwen2.modeling_qwen2 import Qwen2MLP
from transformers.models.qwen3.modeling_qwen3 import Qwen3MLP

from surefoot.engine.feed_forward import gated_blocks, is_gated_by_silu

SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2}


@pytest.mark.parametrize(
    ("block", "config", "expected"),
    [
        (Qwen2MLP, Qwen2Config(**SIZES), True),
        (Qwen3MLP, Qwen3Config(**SIZES), True),
        (LlamaMLP, LlamaConfig(**SIZES), True),
        (LlamaMLP, LlamaConfig(**SIZES, mlp_bias=True), True),
        (LlamaMLP, LlamaConfig(**SIZES, hidden_act="gelu"), False),
        (GemmaMLP, GemmaConfig(**SIZES), False),
    ],
)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_blocks_of_transformers(block: type[nn.Module], config: object, expected: bool, device: str) -> None:
    with torch.device(device):
        made = block(config)
    assert is_gated_by_silu(made) == expected
    assert isinstance(made.gate_proj, nn.Linear), "the trial does not change the block"
    found = [path for path, *_ in gated_blocks(nn.ModuleDict({"mlp": made}), nn.Linear)]
    assert found == ["mlp"] * expected


class Swapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = (nn.Linear(64, 64) for _ in range(3))

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.down_proj(silu(self.up_proj(inputs)) * self.gate_proj(inputs))
        return outputs


class WithResidual(Swapped):
    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = inputs + self.down_proj(silu(self.gate_proj(inputs)) * self.up_proj(inputs))
        return outputs


class UsesWeights(Swapped):
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs @ self.gate_proj.weight.T


class ReturnsMore(Swapped):
    def forward(self, inputs: Tensor) -> Any:
        return inputs, None


@pytest.mark.parametrize("block", [Swapped(), WithResidual(), UsesWeights(), ReturnsMore()])
def test_other_blocks(block: nn.Module) -> None:
    assert not is_gated_by_silu(block)
