"""A two-class PRM as a torch module that returns logits, for code that calls the model itself."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import TokenClassifierOutput

from surefoot.core.prompt import Prompt
from surefoot.engine.runner import Runner
from surefoot.families import Family
from surefoot.families.heads import BoundHead, TwoClassFamily
from surefoot.scoring.scorer import Scorer


class TwoClassModel(nn.Module):
    """The weights of a scorer, called like a token classifier of transformers. It has no gradients.

    model = TwoClassModel(load_local("Qwen/Qwen2.5-Math-PRM-7B"))
    logits = model(input_ids=ids, attention_mask=mask)[0]  # [prompt, token, wrong or right]
    """

    def __init__(self, scorer: Scorer) -> None:
        super().__init__()
        family, runner = scorer.family, scorer.engine
        head = getattr(runner, "head", None)
        adds_more = type(family).combine is not Family.combine  # the logits are then only a part of the score
        if not isinstance(family, TwoClassFamily) or adds_more or not isinstance(head, BoundHead):
            raise AttributeError(f"Models of the family {family.name} do not have two logits per token.")
        self.backbone: nn.Module = runner.backbone
        self.config: Any = runner.backbone.config
        self.device: torch.device = runner.device
        self._runner = Runner(
            runner.backbone,
            lambda hidden, _: family.logits(head.tensors, hidden),
            device=runner.device,
            dtype=runner.dtype,
            attention_name=runner.attention,
        )

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, **_: object) -> TokenClassifierOutput:
        """Return the logits of every token; 0 where `attention_mask` is 0."""
        read = torch.ones_like(input_ids, dtype=torch.bool) if attention_mask is None else attention_mask.bool()
        prompts = [ids[mask].tolist() for ids, mask in zip(input_ids, read, strict=True)]
        rows = self._runner.scores([Prompt(tuple(ids), tuple(range(len(ids))), 0) for ids in prompts])
        logits = torch.zeros(*input_ids.shape, 2, device=input_ids.device)
        for number, row in enumerate(rows):
            logits[number, read[number]] = row.reshape(-1, 2).to(logits.device)
        return TokenClassifierOutput(logits=logits)
