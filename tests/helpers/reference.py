"""A PRM written down as plainly as possible, from transformers' own modules: what our scores must equal."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn
from transformers import Qwen2Config, Qwen2Model

from surefoot.core.prompt import Prompt


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

    def scores(self, prompt: Prompt) -> list[float]:
        return self.padded_scores([prompt])[0]

    @torch.no_grad()
    def padded_scores(self, prompts: list[Prompt], marker: int = 151651) -> list[list[float]]:
        width = max(len(prompt.ids) for prompt in prompts)
        ids = torch.zeros(len(prompts), width, dtype=torch.long)
        for row, prompt in zip(ids, prompts, strict=True):
            row[: len(prompt.ids)] = torch.tensor(prompt.ids)
        logits = self.head(self.backbone(input_ids=ids).last_hidden_state)
        return [scores[row == marker].tolist() for scores, row in zip(logits.softmax(-1)[..., 1], ids, strict=True)]
