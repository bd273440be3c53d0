"""The options of a training run.

Invariant: `Settings` determine the weights after every step; `Sitting` (how long to run, how often to evaluate, what to
export) does not. A run can therefore be resumed with another `Sitting`, but not with other `Settings`. The best weights
are the best that were evaluated: to reproduce them, evaluate every N steps rather than every N minutes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from surefoot.errors import OptionError
from surefoot.train.batch import Mixture, Shape
from surefoot.train.trackers import check_trackers

DECAYS = ("cosine", "linear", "constant")
PRECISIONS = ("auto", "float32", "bfloat16")


@dataclass(frozen=True)
class Settings:
    """The options that determine the weights."""

    steps: int | None = None
    """Optimizer steps; None means as many as `epochs` takes."""
    epochs: float = 1.0
    learning_rate: float = 1e-4
    head_learning_rate: float | None = None
    """None means five times `learning_rate`: the head is trained from scratch."""
    weight_decay: float = 0.01
    warmup: float = 0.05
    """Fraction of the steps."""
    decay: str = "cosine"
    floor: float = 0.0
    """Final learning rate, as a fraction of the peak."""
    clip: float = 1.0
    accumulate: int = 1
    """Batches per optimizer step."""
    max_tokens: int = 1024
    """Steps of a solution that end after this many tokens are not trained on."""
    wrong_weight: float = 1.0
    """Weight of incorrect steps in the loss, relative to correct ones."""
    language_weight: float = 0.0
    """Weight of a second loss: predicting the tokens of correct solutions, averaged over them."""
    freeze_embeddings: bool = False
    freeze_layers: int = 0
    """Number of lowest layers to freeze."""
    ema: float = 0.0
    """Decay of the moving average of the weights, which is evaluated and exported; 0 means no average."""
    precision: str = "auto"
    gradient_checkpointing: bool = False
    seed: int = 0
    share: bool = False
    """Whether to merge the solutions of each question, drawing as many correct as incorrect ones."""
    shape: Shape = field(default_factory=Shape)
    mixture: Mixture = field(default_factory=lambda: Mixture({}))

    def __post_init__(self) -> None:
        for name, allowed in (("decay", DECAYS), ("precision", PRECISIONS)):
            if getattr(self, name) not in allowed:
                offered = ", ".join(allowed)
                raise OptionError(f"{name}={getattr(self, name)!r} is not supported. Choose one of: {offered}.")
        if self.share and self.mixture.wrong_share is not None:
            raise OptionError("`share` already balances correct and incorrect solutions. Omit `wrong_share`.")
        for name in ("learning_rate", "head_learning_rate", "epochs", "accumulate", "max_tokens", "wrong_weight"):
            if (value := getattr(self, name)) is not None and not 0 < value < math.inf:
                raise OptionError(f"{name}={value} must be above 0 and finite.")
        if not self.clip > 0:
            raise OptionError(f"clip={self.clip} must be above 0; use inf to disable clipping.")
        for name in ("weight_decay", "language_weight"):
            if not 0 <= getattr(self, name) < math.inf:
                raise OptionError(f"{name}={getattr(self, name)} must be at least 0 and finite.")
        if not -(2**63) <= self.seed < 2**64:
            raise OptionError(f"seed={self.seed} does not fit into 64 bits. Choose a smaller number.")
        if self.freeze_layers < 0:
            raise OptionError(f"freeze_layers={self.freeze_layers} must be at least 0.")
        if self.steps is not None and self.steps < 1:
            raise OptionError(f"steps={self.steps} must be at least 1.")
        for name in ("warmup", "floor", "ema"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise OptionError(f"{name}={getattr(self, name)} must be at least 0 and below 1.")


@dataclass(frozen=True)
class Sitting:
    """When the run pauses, evaluates and saves, where it logs, and what it exports."""

    minutes: float | None = None
    """Pause after this time; the same call resumes the run."""
    steps: int | None = None
    """Pause after this many steps in one call."""
    last_step: int | None = None
    """Finish and export after this step, although the schedule of the learning rate has more. 0 trains nothing: it only
    selects the threshold of the base, and exports it."""
    evaluate_steps: int | None = None
    evaluate_minutes: float | None = 10.0
    save_steps: int | None = None
    save_minutes: float | None = 10.0
    keep: int = 2
    """Number of snapshots to keep, in addition to the best weights."""
    progress: bool = False
    export: Literal["best", "last"] = "best"
    dtype: str = "float32"
    """Data type of the exported weights."""
    log_to: Sequence[str] = ()
    """Trackers that log.jsonl is also sent to: tensorboard, wandb, trackio."""

    def __post_init__(self) -> None:
        check_trackers(self.log_to)
        for name in ("evaluate_steps", "save_steps"):
            if (every := getattr(self, name)) is not None and every < 1:
                raise OptionError(f"{name}={every} must be at least 1. Omit it to use minutes instead.")
        for name in ("minutes", "evaluate_minutes", "save_minutes"):
            if (minutes := getattr(self, name)) is not None and not minutes >= 0:
                raise OptionError(f"{name}={minutes} must be at least 0.")
