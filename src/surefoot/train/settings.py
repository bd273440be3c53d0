"""Everything that can be chosen about a training run.

The rule: what is in `Settings` decides the weights after every step; what is in `Sitting` (how long to work, how often
to look, what to export) does not, so a run may be continued with another `Sitting`, but not with other `Settings`. The
best weights are the best of those that were looked at: to get the same ones again, look every so many steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from surefoot.errors import OptionError
from surefoot.train.batch import Mixture, Shape

DECAYS = ("cosine", "linear", "constant")
PRECISIONS = ("auto", "float32", "bfloat16")


@dataclass(frozen=True)
class Settings:
    """The run itself."""

    steps: int | None = None
    """Optimiser steps; None is as many as `epochs` needs."""
    epochs: float = 1.0
    learning_rate: float = 1e-4
    head_learning_rate: float | None = None
    """None is five times the other one: the head starts from nothing."""
    weight_decay: float = 0.01
    warmup: float = 0.05
    """Share of the steps."""
    decay: str = "cosine"
    floor: float = 0.0
    """Share of the learning rate that is left at the end."""
    clip: float = 1.0
    accumulate: int = 1
    """Batches to an optimiser step."""
    max_tokens: int = 1024
    """Steps of a solution that end past it are not learnt from."""
    wrong_weight: float = 1.0
    """How much more a wrong step counts in the loss than a right one."""
    freeze_embeddings: bool = False
    freeze_layers: int = 0
    """The lowest layers, which stay as they are."""
    ema: float = 0.0
    """Decay of the moving average of the weights that is evaluated and exported; 0 is no average."""
    precision: str = "auto"
    gradient_checkpointing: bool = False
    seed: int = 0
    share: bool = False
    """Whether solutions of one question are merged, drawn by question with as many right as wrong ones."""
    shape: Shape = field(default_factory=Shape)
    mixture: Mixture = field(default_factory=lambda: Mixture({}))

    def __post_init__(self) -> None:
        for name, allowed in (("decay", DECAYS), ("precision", PRECISIONS)):
            if getattr(self, name) not in allowed:
                offered = ", ".join(allowed)
                raise OptionError(f"{name}={getattr(self, name)!r} is not offered. Choose one of: {offered}.")
        if self.share and self.mixture.wrong_share is not None:
            raise OptionError("With share, right and wrong solutions are balanced by question: leave wrong_share out.")
        for name in ("learning_rate", "head_learning_rate", "epochs", "accumulate", "max_tokens", "wrong_weight"):
            if (value := getattr(self, name)) is not None and not 0 < value < math.inf:
                raise OptionError(f"{name}={value} must be above 0, and finite.")
        if not self.clip > 0:
            raise OptionError(f"clip={self.clip} must be above 0; infinity does not clip.")
        if not 0 <= self.weight_decay < math.inf:
            raise OptionError(f"weight_decay={self.weight_decay} must not be below 0, and finite.")
        if not -(2**63) <= self.seed < 2**64:
            raise OptionError(f"seed={self.seed} has more than 64 bits. Give a smaller number.")
        if self.freeze_layers < 0:
            raise OptionError(f"freeze_layers={self.freeze_layers} must not be below 0.")
        if self.steps is not None and self.steps < 1:
            raise OptionError(f"steps={self.steps} trains nothing. Give a number above 0.")
        for name in ("warmup", "floor", "ema"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise OptionError(f"{name}={getattr(self, name)} must lie between 0 and 1.")


@dataclass(frozen=True)
class Sitting:
    """How the run is watched, and when it pauses."""

    minutes: float | None = None
    """Pause after so long; the same call goes on from there."""
    steps: int | None = None
    """Pause after so many steps of this sitting."""
    evaluate_steps: int | None = None
    evaluate_minutes: float | None = 10.0
    save_steps: int | None = None
    save_minutes: float | None = 10.0
    keep: int = 2
    """Snapshots to keep, besides the best weights."""
    progress: bool = False
    export: Literal["best", "last"] = "best"
    dtype: str = "float32"
    """The number format of the exported weights."""

    def __post_init__(self) -> None:
        for name in ("evaluate_steps", "save_steps"):
            if (every := getattr(self, name)) is not None and every < 1:
                raise OptionError(f"{name}={every} never comes. Give a number above 0, or leave it out.")
        for name in ("minutes", "evaluate_minutes", "save_minutes"):
            if (minutes := getattr(self, name)) is not None and not minutes >= 0:
                raise OptionError(f"{name}={minutes} is no length of time. Give a number from 0 on.")
