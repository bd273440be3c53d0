"""The built-in reward recipes. To add one, add an entry to `RECIPES`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from surefoot.core.aggregation import AGGREGATIONS
from surefoot.errors import OptionError
from surefoot.rewards.reward import Reward
from surefoot.rewards.terms import answered, coverage, outcome, process

WITH_GOLD = "outcome+process"
WITHOUT_GOLD = "final+mean+correct_prefix"


def _single(aggregation: str) -> Reward:
    return Reward(aggregation, (process(aggregation, any_scale=not AGGREGATIONS[aggregation].needs_probabilities),))


RECIPES: Mapping[str, Reward] = MappingProxyType(
    {
        recipe.name: recipe
        for recipe in (
            Reward(
                WITHOUT_GOLD,
                (process("final", weight=0.45), process("mean", weight=0.35), process("correct_prefix", weight=0.20)),
            ),
            *(_single(name) for name in ("mean", "min", "final", "product", "geometric_mean", "soft_min", "clip")),
            Reward("outcome", (outcome(),)),
            # With these weights no wrong answer, however well its steps score, is rewarded as much as a correct one.
            Reward(WITH_GOLD, (outcome(weight=0.7), process("min", weight=0.3))),
            Reward(
                "outcome+process+format",
                (outcome(weight=0.7), process("min", weight=0.2), answered(weight=0.05), coverage(weight=0.05)),
            ),
        )
    }
)
"""Recipes by name. Those with `outcome` need a gold answer; the others use step scores only."""


def find_recipe(recipe: str | Reward) -> Reward:
    """Return the recipe of that name. A `Reward` is returned unchanged."""
    if isinstance(recipe, Reward):
        return recipe
    if recipe not in RECIPES:
        raise OptionError(f"There is no recipe {recipe!r}. Choose one of: {', '.join(RECIPES)}. Or pass a Reward.")
    return RECIPES[recipe]


def default_recipe(*, gold: bool) -> Reward:
    """Return the recipe of reward functions that are given none: with the outcome if there are gold answers.

    >>> default_recipe(gold=True).name
    'outcome+process'
    """
    return RECIPES[WITH_GOLD if gold else WITHOUT_GOLD]
