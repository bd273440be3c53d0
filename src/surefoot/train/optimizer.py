"""Set up the optimizer, the frozen weights and the learning rate schedule.

Weight decay applies to matrices, not to norms, biases and embeddings (rare tokens would decay to zero).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from surefoot.errors import OptionError
from surefoot.train.model import RewardModel
from surefoot.train.settings import Settings

HEAD_FACTOR = 5.0


def freeze(model: RewardModel, settings: Settings, added_tokens: Sequence[int] = ()) -> None:
    """Freeze the embeddings (except those of our own tokens) or the lowest layers, according to the settings."""
    if settings.freeze_layers > len(model.layers):
        raise OptionError(f"freeze_layers={settings.freeze_layers}, but the model has {len(model.layers)} layers.")
    if settings.freeze_embeddings:
        _freeze_rows(model.model.get_submodule("embed_tokens"), added_tokens)
    for layer in model.layers[: settings.freeze_layers]:
        layer.requires_grad_(False)


def _freeze_rows(embedding: nn.Module, learning: Sequence[int]) -> None:
    """Zero the gradient of all rows except `learning`. Embeddings have no weight decay, so AdamW leaves those rows."""
    if not learning:
        embedding.requires_grad_(False)
        return
    weight = embedding.get_parameter("weight")
    learns = torch.zeros(len(weight), 1, dtype=weight.dtype, device=weight.device)
    learns[list(learning)] = 1.0
    hook: Any = weight.register_hook  # untyped in torch
    hook(lambda gradient: gradient * learns)


def make_optimizer(model: RewardModel, settings: Settings) -> torch.optim.AdamW:
    """Return AdamW over the trainable weights, in up to four groups: backbone and head, with and without decay."""
    head_rate = settings.head_learning_rate
    if head_rate is None:
        head_rate = HEAD_FACTOR * settings.learning_rate
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            fades = parameter.ndim > 1 and "embed_tokens" not in name
            rate = head_rate if name.startswith(("score.", "surprise.")) else settings.learning_rate
            groups.setdefault((rate, settings.weight_decay if fades else 0.0), []).append(parameter)
    layout: list[dict[str, Any]] = [
        {"params": parameters, "lr": rate, "peak": rate, "weight_decay": decay}
        for (rate, decay), parameters in groups.items()
    ]
    return torch.optim.AdamW(layout, betas=(0.9, 0.98), eps=1e-8)


def rate_factor(step: int, steps: int, settings: Settings) -> float:
    """Return the factor on the learning rate at a step (from 0): rising during warm-up, then decaying to the floor."""
    warm = math.ceil(settings.warmup * steps)
    if step < warm:
        return (step + 1) / warm
    done = (step - warm) / max(1, steps - warm)
    if settings.decay == "constant":
        return 1.0
    shape = 1 - done if settings.decay == "linear" else (1 + math.cos(math.pi * done)) / 2
    return settings.floor + (1 - settings.floor) * shape


def set_rate(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Set the learning rate of every group to `factor` times its peak."""
    for group in optimizer.param_groups:
        group["lr"] = group["peak"] * factor
