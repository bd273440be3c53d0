"""Surefoot scores every step of a solution with a process reward model (PRM).

    import surefoot

    scorer = surefoot.load()  # mini, the model inside; or "Qwen/Qwen2.5-Math-PRM-7B", a folder, or "http://..."
    result = scorer.score(question, solution)
    print(result.step_scores, result.min)

Importing this package does not import torch; loading a model does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from surefoot._version import __version__
from surefoot.core.options import ReadOptions
from surefoot.core.protocols import StepScorer
from surefoot.core.result import SolutionScore, StepScore
from surefoot.core.solution import Solution, Step
from surefoot.errors import SurefootError
from surefoot.rewards.reward import Reward, RewardResult
from surefoot.text.split import split

if TYPE_CHECKING:
    from surefoot import evaluate
    from surefoot.client import AsyncClient, Client, connect
    from surefoot.rewards.source import compute_reward
    from surefoot.scoring.loading import load
    from surefoot.scoring.scorer import Scorer

__all__ = [
    "AsyncClient",
    "Client",
    "ReadOptions",
    "Reward",
    "RewardResult",
    "Scorer",
    "Solution",
    "SolutionScore",
    "Step",
    "StepScore",
    "StepScorer",
    "SurefootError",
    "__version__",
    "compute_reward",
    "connect",
    "evaluate",
    "load",
    "split",
]

_MODULES = {
    "AsyncClient": "surefoot.client",
    "Client": "surefoot.client",
    "Scorer": "surefoot.scoring.scorer",
    "compute_reward": "surefoot.rewards.source",
    "connect": "surefoot.client",
    "load": "surefoot.scoring.loading",
}
"""Where names live that are imported on first use, because they need torch or an HTTP client."""


def __getattr__(name: str) -> Any:
    if name == "evaluate":
        return import_module("surefoot.evaluate")
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'surefoot' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
