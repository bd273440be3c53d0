"""Turn a scored solution into a reward: a weighted sum of named terms.

Invariant: a reward is None if a term that it needs is missing. What the policy did is a number: a solution without an
answer has the outcome 0.0. What is unknown is None: no gold answer was given, a step is unscored, or two answers could
not be compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from surefoot.core.result import NO_STEPS, SolutionScore
from surefoot.errors import InputError, OptionError


@dataclass(frozen=True)
class Missing:
    """Returned by a term that has no value."""

    reason: str


@dataclass(frozen=True)
class Term:
    """One part of a reward.

        def short(score: surefoot.SolutionScore, gold: str | None) -> float:
            return float(len(score.steps) <= 10)

        recipe = RECIPES["min"].plus(Term("short", short, weight=0.1))

    A term with weight 0 is logged, but the reward does not need it.
    """

    name: str
    read: Callable[[SolutionScore, str | None], float | Missing]
    """Computes the value from the scored solution and the gold answer (None if there is none)."""
    weight: float = 1.0
    needs_gold: bool = False

    def __post_init__(self) -> None:
        if not math.isfinite(self.weight):
            raise OptionError(f"The weight of the term {self.name!r} is {self.weight}. Pass a finite number.")


@dataclass(frozen=True)
class RewardResult:
    """A reward, or the reason why there is none.

    >>> result = surefoot.compute_reward("What is 2 + 3?", "2 + 3 = 5.", model="mini", recipe="min")
    >>> if result.value is None:
    ...     print("not rewarded:", result.reason)
    """

    value: float | None
    """None if a term that the reward needs is missing."""
    terms: Mapping[str, float | None]
    """The value of every term by name, without its weight."""
    reason: str | None = None
    """Why `value` is None."""
    score: SolutionScore | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data that JSON can represent."""
        return {
            "value": self.value,
            "terms": dict(self.terms),
            "reason": self.reason,
            "score": None if self.score is None else self.score.to_dict(),
        }


@dataclass(frozen=True)
class Reward:
    """A reward recipe: terms and their weights. Call it with a scored solution.

    >>> from surefoot.rewards.terms import outcome, process
    >>> recipe = surefoot.Reward("mine", (outcome(weight=0.8), process("product", weight=0.2)))
    >>> score = surefoot.load("mini").score("What is 2 + 3?", "2 + 3 = 5.\\nFinal Answer: 5")
    >>> recipe(score, gold="5").terms["outcome"]
    1.0
    """

    name: str
    terms: tuple[Term, ...]
    empty: float | None = None
    """The reward of a solution without steps. By default it has none."""

    def __post_init__(self) -> None:
        names = [term.name for term in self.terms]
        if not any(term.weight for term in self.terms):
            raise OptionError(f"The recipe {self.name!r} has no term with a weight. Add at least one.")
        if len(set(names)) < len(names):
            raise OptionError(f"The recipe {self.name!r} has terms of the same name: {', '.join(names)}. Rename one.")
        if self.empty is not None and not math.isfinite(self.empty):
            raise OptionError(f"empty={self.empty} is not a reward. Pass a finite number, or None.")

    def __call__(self, score: SolutionScore, gold: str | None = None) -> RewardResult:
        """Compute the reward of a scored solution. `gold` is the reference answer, for terms that need one."""
        if gold is not None and not isinstance(gold, str):
            raise InputError(f"The gold answer is {type(gold).__name__}. Pass a str, or None if there is none.")
        found = {term.name: _checked(term, term.read(score, gold)) for term in self.terms}
        values = {name: None if isinstance(value, Missing) else value for name, value in found.items()}
        if self.empty is not None and score.reason == NO_STEPS:
            return RewardResult(self.empty, values, None, score)
        parts = []
        for term in self.terms:
            value = found[term.name]
            if not term.weight:
                continue
            if isinstance(value, Missing):
                return RewardResult(None, values, f"{term.name}: {value.reason}", score)
            parts.append(term.weight * value)
        return RewardResult(math.fsum(parts), values, None, score)

    @property
    def needs_gold(self) -> bool:
        """Whether the reward is None without a gold answer."""
        return any(term.needs_gold for term in self.terms if term.weight)

    def plus(self, *terms: Term, name: str | None = None) -> Reward:
        """Return this recipe with additional terms."""
        return replace(self, terms=self.terms + terms, name=name or "+".join([self.name, *(t.name for t in terms)]))


def _checked(term: Term, value: float | Missing) -> float | Missing:
    if isinstance(value, Missing):
        return value
    try:
        if math.isfinite(value):
            return value
    except TypeError:
        message = f"The term {term.name!r} returned {value!r}. Return a number, or Missing with a reason."
        raise OptionError(message) from None
    return Missing(f"its value is {value}, which is not a finite number")
