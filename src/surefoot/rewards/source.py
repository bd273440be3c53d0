"""Compute rewards for trainers: one scorer per process, loaded on first use and shared by all reward functions.

Invariant: an invalid sample has no reward but a reason, and does not affect the other samples of its batch. A scorer
that cannot be loaded or reached raises, because training must not continue without it.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from numbers import Number
from typing import Any, NamedTuple

from surefoot.core.options import DEFAULT_OPTIONS, ReadOptions
from surefoot.core.protocols import StepScorer
from surefoot.core.result import SolutionScore
from surefoot.core.shared import forget_shared as forget_shared
from surefoot.core.shared import shared as shared
from surefoot.errors import OptionError
from surefoot.rewards.recipes import default_recipe, find_recipe
from surefoot.rewards.reward import Reward, RewardResult, Term
from surefoot.scoring.scorer_like import ScorerLike as ScorerLike
from surefoot.scoring.scorer_like import as_scorer, is_model

logger = logging.getLogger("surefoot")

DEFAULT_MODEL = "Qwen/Qwen2.5-Math-PRM-7B"
"""The model of reward functions if neither the caller nor the environment variable SUREFOOT_MODEL names one."""


@cache
def warn_once(message: str) -> None:
    """Log a warning once per process."""
    logger.warning("%s", message)


def find_scorer(model: ScorerLike | None = None, **load: Any) -> StepScorer:
    """Return this process's scorer for `model`, which the first call loads with the options `load`."""
    if model is None:
        model = os.environ.get("SUREFOOT_MODEL", DEFAULT_MODEL)
    if "model" in load:
        raise OptionError("load has no option `model`. To choose one of several served models, use `served_name`.")
    return _load(model, **load) if is_model(model) else as_scorer(model, **load)


_load = shared(as_scorer)


class Sample(NamedTuple):
    """One completion to reward."""

    question: Any
    solution: Any
    gold: Any = None
    error: str | None = None
    """Why the sample cannot be read. It is then not scored and has no reward."""


class RewardSource:
    """Computes rewards for batches of samples. Loads the model when the first batch arrives.

        source = RewardSource("Qwen/Qwen2.5-Math-PRM-7B", "outcome+process", load={"quantize": "nf4"})
        results = source.rewards([Sample(question, solution, gold="14")])

    Without a `recipe`, a sample with a gold answer gets `outcome+process`, and one without gets step scores only
    (`default_recipe`). `options` say how solutions are read; `load` holds options for `surefoot.load`.
    """

    def __init__(
        self,
        model: ScorerLike | None = None,
        recipe: str | Reward | None = None,
        *,
        options: ReadOptions = DEFAULT_OPTIONS,
        load: Mapping[str, Any] | None = None,
    ) -> None:
        self.model = model
        self._recipe = None if recipe is None else find_recipe(recipe)
        self.options = options
        self._load = dict(load or {})
        if model is not None and not is_model(model):
            find_scorer(model, **self._load)  # rejects load options for a loaded scorer before training starts

    @property
    def scorer(self) -> StepScorer:
        """The scorer. Loads it if necessary."""
        return find_scorer(self.model, **self._load)

    def recipe(self, *, gold: bool) -> Reward:
        """Return the recipe for samples with or without a gold answer."""
        return self._recipe or default_recipe(gold=gold)

    def recipe_of(self, sample: Sample) -> Reward:
        """Return the recipe for a sample."""
        return self.recipe(gold=_gold(sample) is not None)

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms that the reward of a sample may have, each name once."""
        terms = [*self.recipe(gold=True).terms, *self.recipe(gold=False).terms]
        return tuple({term.name: term for term in terms}.values())

    def rewards(self, samples: Sequence[Sample]) -> list[RewardResult]:
        """Score the samples as one batch and compute their rewards."""
        if not samples:
            return []
        scorer = self.scorer
        scores = scorer.score_stream(items_to_score(samples), self.options, window=len(samples))
        merged = merge_scores(samples, list(scores), scorer.name)
        return [self.reward(sample, score) for sample, score in zip(samples, merged, strict=True)]

    def reward(self, sample: Sample, score: SolutionScore) -> RewardResult:
        """Compute the reward of a scored sample. Gold answers may be numbers; None and NaN mean that there is none."""
        if sample.error is not None:
            return RewardResult(None, dict.fromkeys(term.name for term in self.terms), sample.error, score)
        recipe, gold = self.recipe_of(sample), _gold(sample)
        if gold is None:
            return recipe(score, None)
        if isinstance(gold, str | Number):
            return recipe(score, str(gold))
        result = recipe(score, None)
        reason = f"The gold answer is {type(gold).__name__}. Pass a str or a number."
        return replace(result, value=None, reason=reason) if recipe.needs_gold else result


def _gold(sample: Sample) -> Any:
    """Return the gold answer without a wrapper of numpy. Tables represent a missing value as NaN."""
    gold = sample.gold.item() if getattr(sample.gold, "shape", None) == () else sample.gold
    return None if isinstance(gold, float) and math.isnan(gold) else gold


def items_to_score(samples: Iterable[Sample]) -> list[tuple[Any, Any]]:
    """Return question and solution of the samples without an error."""
    return [(sample.question, sample.solution) for sample in samples if sample.error is None]


def merge_scores(samples: Iterable[Sample], scores: Iterable[SolutionScore], model: str) -> list[SolutionScore]:
    """Return one score per sample: those of `items_to_score`, and unscored ones for the samples with an error."""
    rest = iter(scores)
    return [next(rest) if sample.error is None else SolutionScore((), model, reason=sample.error) for sample in samples]


def compute_reward(
    question: str,
    solution: str | Sequence[str],
    gold: str | float | None = None,
    *,
    model: ScorerLike | None = None,
    recipe: str | Reward | None = None,
    options: ReadOptions = DEFAULT_OPTIONS,
    load: Mapping[str, Any] | None = None,
) -> RewardResult:
    """Compute the reward of one solution.

    >>> result = surefoot.compute_reward("What is 2 + 3?", "2 + 3 = 5.", model="mini", recipe="min")
    >>> result.value == result.score.min
    True

    `gold` is the reference answer, a text or a number, for recipes that need one. `model` is a scorer or anything that
    `surefoot.load` accepts; without it, the environment variable SUREFOOT_MODEL or Qwen2.5-Math-PRM-7B. `recipe` is a
    `Reward` or the name of one; without it, `outcome+process` if there is a gold answer, else step scores only. `load`
    holds options for `surefoot.load`. The model is loaded once per process.
    """
    return RewardSource(model, recipe, options=options, load=load).rewards([Sample(question, solution, gold)])[0]
