"""What functions take where they need a scorer: one that is loaded, or anything that `surefoot.load` takes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeGuard

from surefoot.core.addresses import is_server
from surefoot.core.protocols import StepScorer
from surefoot.errors import OptionError

ModelLike = str | Path | Sequence[str | Path | StepScorer]
"""What `surefoot.load` takes: a hub id, a folder, the address of a service or vLLM server, or a list of those and of
scorers."""

ScorerLike = ModelLike | StepScorer
"""Anything that `surefoot.load` takes, or a scorer."""


def is_model(given: object) -> TypeGuard[ModelLike]:
    """Whether this names what to load, and is not a scorer."""
    return isinstance(given, str | Path | Sequence)


def as_scorer(given: ScorerLike, **options: Any) -> StepScorer:
    """Return a scorer as it is, and load anything else with the options of `surefoot.load`."""
    if isinstance(given, str | Path | Sequence):
        from surefoot.scoring.loading import load

        return load(given, **options)
    if given is None:
        raise OptionError("The scorer is None. Pass a scorer, or what surefoot.load takes.")
    if options:
        raise OptionError(
            f"The model is a loaded scorer, so {', '.join(options)} would have no effect. Omit it, or pass the name or "
            "folder of the model instead."
        )
    return given


def listed(model: ScorerLike) -> list[str | Path | StepScorer]:
    """Return the members of a list, or the one model."""
    return list(model) if isinstance(model, Sequence) and not isinstance(model, str) else [model]


def computes_here(model: ScorerLike) -> bool:
    """Whether loading this loads weights into the process, and does not only reach servers."""
    return any(isinstance(each, str | Path) and not is_server(each) for each in listed(model))
