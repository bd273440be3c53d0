"""A PRM written down as plainly as possible, from transformers' own modules: what our scores must equal."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn
from transformers import Qwen2Config, Qwen2Model

from surefoot.prompt import Prompt


class Reference:
    """One forward per prompt, the head as a Sequential, softmax at the marker ids."""

    def __init__(self, folder: Path) -> None:
        raw = json.loads((folder / "config.json").read_text())
        raw.pop("auto_map")
        tensors: dict[str, torch.Tensor] = {}
        for file in folder.glob("*.safetensors"):
            tensors |= load_file(file)
        self.backbone = Qwen2Model(Qwen2Config(**raw)).eval()
        self.backbone.load_state_dict(
            {name.removeprefix("model."): value.float() for name, value in tensors.items() if name.startswith("model.")}
        )
        size = raw["hidden_size"]
        self.head = nn.Sequential(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, 2))
        self.head.load_state_dict(
            {name.removeprefix("score."): value.float() for name, value in tensors.items() if name.startswith("score.")}
        )

    @torch.no_grad()
    def scores(self, prompt: Prompt, marker: int = 151651) -> list[float]:
        ids = torch.tensor([prompt.ids])
        logits = self.head(self.backbone(input_ids=ids).last_hidden_state)
        values: list[float] = logits.softmax(-1)[0, ids[0] == marker, 1].tolist()
        return values
