"""Surefoot scores every step of a solution with a process reward model.

    scorer = surefoot.load()  # mini, the model inside; or "Qwen/Qwen2.5-Math-PRM-7B", or a folder
    result = scorer.score(question, solution)

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

__all__ = [  # noqa: RUF022
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
    "compute_reward",
    "connect",
    "evaluate",
    "load",
    "split",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name in ("Scorer", "load"):
        return getattr(
            import_module("surefoot.scoring.scorer" if name == "Scorer" else "surefoot.scoring.loading"), name
        )
    if name in ("AsyncClient", "Client", "connect"):
        return getattr(import_module("surefoot.client"), name)
    if name == "evaluate":
        return import_module("surefoot.evaluate")
    if name == "compute_reward":
        from surefoot.rewards import source

        return source.compute_reward
    raise AttributeError(f"module 'surefoot' has no attribute {name!r}")
