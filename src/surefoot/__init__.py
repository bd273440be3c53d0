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

if TYPE_CHECKING:
    from surefoot import evaluate
    from surefoot.client import AsyncClient, Client, connect
    from surefoot.core.arrow import to_arrow, to_pandas
    from surefoot.core.options import ReadOptions
    from surefoot.core.protocols import StepScorer
    from surefoot.core.result import SolutionScore, StepScore
    from surefoot.core.solution import Solution, Step
    from surefoot.errors import SurefootError
    from surefoot.jobs.bulk import bulk
    from surefoot.rewards.reward import Reward, RewardResult
    from surefoot.rewards.source import compute_reward
    from surefoot.scoring.loading import load
    from surefoot.scoring.scorer import Scorer
    from surefoot.text.split import split

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
    "bulk",
    "compute_reward",
    "connect",
    "evaluate",
    "load",
    "split",
    "to_arrow",
    "to_pandas",
]

_MODULES = {
    "AsyncClient": "client",
    "Client": "client",
    "ReadOptions": "core.options",
    "Reward": "rewards.reward",
    "RewardResult": "rewards.reward",
    "Scorer": "scoring.scorer",
    "Solution": "core.solution",
    "SolutionScore": "core.result",
    "Step": "core.solution",
    "StepScore": "core.result",
    "StepScorer": "core.protocols",
    "SurefootError": "errors",
    "bulk": "jobs.bulk",
    "compute_reward": "rewards.source",
    "connect": "client",
    "load": "scoring.loading",
    "split": "text.split",
    "to_arrow": "core.arrow",
    "to_pandas": "core.arrow",
}
"""Where the public names live. They are imported on first use: the command line starts faster, and torch stays out."""


def __getattr__(name: str) -> Any:
    if name in ("compat", "errors", "evaluate", "integrations", "testing"):
        return import_module(f"surefoot.{name}")
    if name in _MODULES:
        value = globals()[name] = getattr(import_module(f"surefoot.{_MODULES[name]}"), name)
        return value
    raise AttributeError(f"module 'surefoot' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
