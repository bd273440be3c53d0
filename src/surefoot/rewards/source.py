"""Where an adapter's rewards come from: one scorer per process, loaded when it is first needed.

The rule: a sample that cannot be read has no reward and says why, and costs the others of its batch nothing. A scorer
that cannot be loaded or reached is an error: training must not go on without it in silence.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cache, wraps
from numbers import Number
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

from surefoot.core.options import DEFAULT_OPTIONS, ReadOptions
from surefoot.core.protocols import StepScorer
from surefoot.core.result import SolutionScore
from surefoot.errors import InputError, OptionError
from surefoot.rewards.reward import Reward, RewardResult, find_recipe

logger = logging.getLogger("surefoot")

Given = ParamSpec("Given")
Made = TypeVar("Made")

DEFAULT_MODEL = "Qwen/Qwen2.5-Math-PRM-7B"
"""The model of adapters that are given none, unless the variable SUREFOOT_MODEL names another."""


Model = str | Path | StepScorer
"""A hub id or folder, the address of a server (`http://...`), or anything that can score."""

_lock = threading.Lock()
_shared: dict[Hashable, _Once] = {}


@cache
def say_once(message: str) -> None:
    """A warning that a long training need not repeat."""
    logger.warning("%s", message)


class _Once:
    """Something that is made when it is first asked for. Others who ask meanwhile wait for it, and for nothing else."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: list[Any] = []

    def get(self, make: Callable[[], Any]) -> Any:
        with self._lock:
            if not self._made:
                self._made.append(make())
            return self._made[0]


def shared(make: Callable[Given, Made]) -> Callable[Given, Made]:
    """The function, made to return the same thing for the same arguments. They are compared as text: dicts may be."""

    @wraps(make)
    def find(*args: Given.args, **options: Given.kwargs) -> Made:
        key = (make, *map(str, args), *sorted((name, str(value)) for name, value in options.items()))
        with _lock:
            once = _shared.setdefault(key, _Once())
        return cast("Made", once.get(lambda: make(*args, **options)))

    return find


def find_scorer(model: Model | None = None, **options: Any) -> StepScorer:
    """The scorer of this process for `model`: loaded with `options` when it is first asked for, then shared by all."""
    if model is None:
        model = os.environ.get("SUREFOOT_MODEL", DEFAULT_MODEL)
    if not isinstance(model, str | Path):
        if options:
            raise OptionError(
                f"The model is a scorer that is loaded already, so {', '.join(options)} would do nothing. Leave it "
                "out, or give the model's name or folder instead of the scorer."
            )
        return model
    return _open(str(model), **options)


@shared
def _open(model: str, **options: Any) -> StepScorer:
    from surefoot.scoring.loading import load

    return load(model, **options)


def _forget() -> None:
    """A forked process gets its own scorer: threads, locks and devices do not survive a fork."""
    global _lock
    _lock = threading.Lock()
    _shared.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


class Source:
    """Rewards for batches of completions: a model, a recipe, and how to read the solutions.

    `load` holds options for `surefoot.load` (or the client). Nothing is loaded before the first batch.
    """

    def __init__(
        self,
        model: Model | None = None,
        recipe: str | Reward = "seed",
        *,
        options: ReadOptions = DEFAULT_OPTIONS,
        load: Mapping[str, Any] | None = None,
    ) -> None:
        self.model = model
        self.recipe = find_recipe(recipe)
        self.options = options
        self._load = dict(load or {})
        if model is not None and not isinstance(model, str | Path):
            find_scorer(model, **self._load)  # what does not go with a ready scorer is refused before training starts

    @property
    def scorer(self) -> StepScorer:
        """The scorer, loaded now if it was not yet."""
        return find_scorer(self.model, **self._load)

    def rewards(
        self, questions: Sequence[Any], solutions: Sequence[Any], golds: Sequence[Any] | None = None
    ) -> list[RewardResult]:
        """The reward of every solution, scored together. Gold answers may be any plain value: numbers become text."""
        golds = [None] * len(questions) if golds is None else golds
        if not len(questions) == len(solutions) == len(golds):
            raise InputError(
                f"There are {len(questions)} questions, {len(solutions)} solutions and {len(golds)} gold answers; "
                "give one of each a sample."
            )
        scores = self.scores(list(zip(questions, solutions, strict=True)))
        return [self.reward(score, gold) for score, gold in zip(scores, golds, strict=True)]

    def scores(self, items: Sequence[tuple[Any, Any]]) -> list[SolutionScore]:
        """The scores of pairs of question and solution. One that cannot be read is unscored and says why."""
        if not items:
            return []
        return list(self.scorer.score_stream(items, self.options, window=len(items)))

    def reward(self, score: SolutionScore, gold: Any) -> RewardResult:
        """The reward of a solution that is scored already."""
        if getattr(gold, "shape", None) == ():
            gold = gold.item()
        if gold is None or (isinstance(gold, float) and math.isnan(gold)):  # so a table writes that there is none
            return self.recipe(score, None)
        if isinstance(gold, str | Number):
            return self.recipe(score, str(gold))
        result = self.recipe(score, None)
        reason = f"The gold answer is of type {type(gold).__name__}; give a str or a number."
        return replace(result, value=None, reason=reason) if self.recipe.needs_gold else result


def compute_reward(
    question: str,
    solution: str | Sequence[str],
    gold: str | None = None,
    *,
    model: Model | None = None,
    recipe: str | Reward = "seed",
    options: ReadOptions = DEFAULT_OPTIONS,
    **load: Any,
) -> RewardResult:
    """The reward of one solution. The model is loaded once per process; `load` holds options for `surefoot.load`."""
    source = Source(model, recipe, options=options, load=load)
    return source.rewards([question], [solution], [gold])[0]
