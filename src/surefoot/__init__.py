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
    from surefoot.core.generation import Generator, Sampling
    from surefoot.core.labels import LabelledSolution, StepLabel
    from surefoot.core.options import ReadOptions
    from surefoot.core.protocols import StepScorer
    from surefoot.core.result import SolutionScore, StepScore
    from surefoot.core.search_result import SearchRecord, SearchResult
    from surefoot.core.solution import Solution, Step
    from surefoot.errors import SurefootError
    from surefoot.generate.loading import load_generator
    from surefoot.jobs.bulk import bulk
    from surefoot.labelling.job import label
    from surefoot.labelling.rows import training_rows
    from surefoot.labelling.settings import LabelBudget, LabelSettings
    from surefoot.rewards.reward import Reward, RewardResult
    from surefoot.rewards.source import compute_reward
    from surefoot.scoring.loading import load
    from surefoot.scoring.scorer import Scorer
    from surefoot.searching.job import search_many
    from surefoot.searching.search import search, search_async, search_events
    from surefoot.searching.settings import Budget, SearchSettings
    from surefoot.text.split import split

__all__ = [
    "AsyncClient",
    "Budget",
    "Client",
    "Generator",
    "LabelBudget",
    "LabelSettings",
    "LabelledSolution",
    "ReadOptions",
    "Reward",
    "RewardResult",
    "Sampling",
    "Scorer",
    "SearchRecord",
    "SearchResult",
    "SearchSettings",
    "Solution",
    "SolutionScore",
    "Step",
    "StepLabel",
    "StepScore",
    "StepScorer",
    "SurefootError",
    "__version__",
    "bulk",
    "compute_reward",
    "connect",
    "evaluate",
    "label",
    "load",
    "load_generator",
    "search",
    "search_async",
    "search_events",
    "search_many",
    "split",
    "to_arrow",
    "to_pandas",
    "training_rows",
]

_MODULES = {
    "AsyncClient": "client",
    "Budget": "searching.settings",
    "Client": "client",
    "Generator": "core.generation",
    "LabelBudget": "labelling.settings",
    "LabelSettings": "labelling.settings",
    "LabelledSolution": "core.labels",
    "ReadOptions": "core.options",
    "Reward": "rewards.reward",
    "RewardResult": "rewards.reward",
    "Sampling": "core.generation",
    "Scorer": "scoring.scorer",
    "SearchRecord": "core.search_result",
    "SearchResult": "core.search_result",
    "SearchSettings": "searching.settings",
    "Solution": "core.solution",
    "SolutionScore": "core.result",
    "Step": "core.solution",
    "StepLabel": "core.labels",
    "StepScore": "core.result",
    "StepScorer": "core.protocols",
    "SurefootError": "errors",
    "bulk": "jobs.bulk",
    "compute_reward": "rewards.source",
    "connect": "client",
    "label": "labelling.job",
    "load": "scoring.loading",
    "load_generator": "generate.loading",
    "search": "searching.search",
    "search_async": "searching.search",
    "search_events": "searching.search",
    "search_many": "searching.job",
    "split": "text.split",
    "to_arrow": "core.arrow",
    "to_pandas": "core.arrow",
    "training_rows": "labelling.rows",
}
"""Where the public names live. They are imported on first use: the command line starts faster, and torch stays out."""


def __getattr__(name: str) -> Any:
    if name in ("compat", "critics", "errors", "evaluate", "integrations", "testing"):
        return import_module(f"surefoot.{name}")
    if name in _MODULES:
        value = globals()[name] = getattr(import_module(f"surefoot.{_MODULES[name]}"), name)
        return value
    raise AttributeError(f"module 'surefoot' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
