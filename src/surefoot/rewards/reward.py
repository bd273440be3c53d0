"""From a scored solution to a reward.

The rule: a reward is a weighted sum of named terms, and it is None as soon as a term that it needs is missing. What the
policy did is a number (a solution that states no answer has a wrong outcome: 0.0); what we do not know is None (no gold
answer was given, a step was not scored, it could not be decided whether two answers are the same).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from types import MappingProxyType
from typing import Any

from surefoot.core import aggregation
from surefoot.core.result import NO_STEPS, SolutionScore
from surefoot.errors import InputError, OptionError
from surefoot.text.answers import find_answer
from surefoot.text.equality import same_answer


@dataclass(frozen=True)
class Missing:
    """A term that has no value, and why."""

    reason: str


Reader = Callable[[SolutionScore, str | None], float | Missing]


@dataclass(frozen=True)
class Term:
    """One part of a reward. With weight 0 it is only logged, and the reward does not need it."""

    name: str
    read: Reader
    """The value of this term, or why it has none, from a scored solution and the gold answer if there is one."""
    weight: float = 1.0
    needs_gold: bool = False

    def __post_init__(self) -> None:
        if not math.isfinite(self.weight):
            raise OptionError(f"The weight of {self.name!r} is {self.weight}; give a finite number.")


@dataclass(frozen=True)
class RewardResult:
    """A reward, or the reason why there is none."""

    value: float | None
    """None as soon as a needed term is missing."""
    terms: Mapping[str, float | None]
    """Every term by its name, before its weight."""
    reason: str | None = None
    """Why `value` is None."""
    score: SolutionScore | None = None

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data that JSON can hold."""
        return {
            "value": self.value,
            "terms": dict(self.terms),
            "reason": self.reason,
            "score": None if self.score is None else self.score.to_dict(),
        }


@dataclass(frozen=True)
class Reward:
    """A recipe: the terms of a reward and their weights. Call it with a scored solution."""

    name: str
    terms: tuple[Term, ...]
    empty: float | None = None
    """What a solution without any step earns. None: no reward, and the trainer passes over it. A number is a decision
    about the policy, so it is yours to make."""

    def __post_init__(self) -> None:
        names = [term.name for term in self.terms]
        if not any(term.weight for term in self.terms):
            raise OptionError(f"The recipe {self.name!r} has no term with a weight; give it at least one.")
        if len(set(names)) < len(names):
            raise OptionError(f"The recipe {self.name!r} has two terms of one name: {', '.join(names)}. Rename one.")
        if self.empty is not None and not math.isfinite(self.empty):
            raise OptionError(f"empty={self.empty} is no reward. Give a finite number, or None.")

    def __call__(self, score: SolutionScore, gold: str | None = None) -> RewardResult:
        """The reward of one solution; `gold` is the reference answer, where a term asks for one."""
        if gold is not None and not isinstance(gold, str):
            raise InputError(f"The gold answer is {type(gold).__name__}; give a str, or None if there is none.")
        found = {term.name: _checked(term, term.read(score, gold)) for term in self.terms}
        values = {name: None if isinstance(value, Missing) else value for name, value in found.items()}
        if self.empty is not None and score.reason == NO_STEPS:
            return RewardResult(self.empty, values, None, score)
        needed = [term for term in self.terms if term.weight]
        for term in needed:
            value = found[term.name]
            if isinstance(value, Missing):
                return RewardResult(None, values, f"{term.name}: {value.reason}", score)
        parts = [(term.weight, values[term.name]) for term in needed]
        return RewardResult(math.fsum(weight * part for weight, part in parts if part is not None), values, None, score)

    @property
    def needs_gold(self) -> bool:
        """Whether there is no reward without a gold answer."""
        return any(term.needs_gold for term in self.terms if term.weight)

    def plus(self, *terms: Term, name: str | None = None) -> Reward:
        """This recipe with more terms."""
        return replace(self, terms=self.terms + terms, name=name or "+".join([self.name, *(t.name for t in terms)]))


def _checked(term: Term, value: float | Missing) -> float | Missing:
    if isinstance(value, Missing):
        return value
    try:
        if math.isfinite(value):
            return value
    except TypeError:
        message = f"The term {term.name!r} gave {value!r}; a term gives a number, or a Missing that says why not."
        raise OptionError(message) from None
    return Missing(f"its value is {value}, which is not a finite number")


# --- terms -------------------------------------------------------------------------------------------------------

AGGREGATIONS: Mapping[str, Callable[..., float | None]] = MappingProxyType(
    {
        "mean": aggregation.mean,
        "min": aggregation.minimum,
        "final": aggregation.final,
        "product": aggregation.product,
        "geometric-mean": aggregation.geometric_mean,
        "correct-prefix": aggregation.correct_prefix,
        "soft-min": aggregation.soft_minimum,
        "clip": aggregation.clipped,
        "delta": aggregation.first,
    }
)
"""How step scores become one number. `delta` is what the differences of neighbouring steps sum to (see `placement`)."""

ON_PROBABILITIES = frozenset(("product", "geometric-mean", "correct-prefix", "clip"))
"""Aggregations that multiply scores or compare them with a threshold, which says nothing on another scale."""


def process(
    aggregation: str, *, weight: float = 1.0, name: str | None = None, any_scale: bool = False, **options: float
) -> Term:
    """The step scores, made one number by one of AGGREGATIONS; `options` are those of its function in `aggregate`.

    Scores that are not probabilities are refused, as they cannot be weighed against terms between 0 and 1. `any_scale`
    takes them as they are; the aggregations in ON_PROBABILITIES cannot.
    """
    if aggregation not in AGGREGATIONS:
        raise OptionError(f"aggregation={aggregation!r} is not offered. Choose one of: {', '.join(AGGREGATIONS)}.")
    if any_scale and aggregation in ON_PROBABILITIES:
        raise OptionError(f"{aggregation!r} is defined on probabilities only; any_scale=True does not go with it.")
    try:
        signature(AGGREGATIONS[aggregation]).bind([], **options)
    except TypeError as error:
        raise OptionError(f"{aggregation!r} does not take these options: {error}.") from error
    if options.get("temperature", 1.0) <= 0:
        raise OptionError(f"temperature={options['temperature']} is not above 0. For the minimum itself use 'min'.")
    label = name or aggregation
    return Term(label, partial(_read_process, aggregation, any_scale, dict(options), label), weight)


def _read_process(
    aggregation: str, any_scale: bool, options: dict[str, float], label: str, score: SolutionScore, gold: str | None
) -> float | Missing:
    if score.scale != "probability" and not any_scale:
        raise OptionError(
            f"The term {label!r} needs probabilities, and {score.model} gives scores on the scale {score.scale!r}. "
            "Use another model or a calibrated one, or, for an aggregation that neither multiplies nor compares, "
            "process(..., any_scale=True)."
        )
    value = AGGREGATIONS[aggregation](score.step_scores, **options)
    return Missing(score.reason or "a step was not scored") if value is None else value


def outcome(*, weight: float = 1.0, timeout: float = 3.0) -> Term:
    """1.0 if the solution's answer means the same as the gold answer, else 0.0, also when it states none.

    Missing without a gold answer, when the two could not be compared within `timeout` seconds, and when the solution
    could not be read at all. A gold text that states its answer, as `#### 42` at the end of GSM8K's, is reduced to it.
    """
    return Term("outcome", partial(_read_outcome, timeout), weight, needs_gold=True)


def _read_outcome(timeout: float, score: SolutionScore, gold: str | None) -> float | Missing:
    if gold is None:
        return Missing("no gold answer was given")
    if unread := _unread(score):
        return unread
    stated = find_answer(gold)
    reference = stated.value if stated else gold.strip()
    if not reference:
        return Missing("the gold answer is empty")
    if score.answer is None:
        return 0.0
    same = same_answer(reference, score.answer, timeout=timeout)
    return Missing("it could not be decided whether the answer is the gold answer") if same is None else float(same)


def answered(*, weight: float = 1.0) -> Term:
    """1.0 if the solution states an answer, else 0.0."""
    return Term("answered", _read_answered, weight)


def _read_answered(score: SolutionScore, gold: str | None) -> float | Missing:
    return _unread(score) or float(score.answer is not None)


def stepped(*, weight: float = 1.0, at_least: int = 1) -> Term:
    """1.0 if the solution has so many steps of reasoning, the closing answer not counted, else 0.0."""
    return Term("stepped", partial(_read_stepped, at_least), weight)


def _read_stepped(at_least: int, score: SolutionScore, gold: str | None) -> float | Missing:
    return _unread(score) or float(sum(step.kind == "body" for step in score.steps) >= at_least)


def inside(*, weight: float = 1.0) -> Term:
    """The share of the solution's characters that lies in steps: 1.0 if no text stands outside. None without text."""
    return Term("inside", _read_inside, weight)


def _read_inside(score: SolutionScore, gold: str | None) -> float | Missing:
    within = sum(step.end - step.start for step in score.steps)
    without = sum(span.end - span.start for span in score.outside)
    return within / (within + without) if within + without else Missing(score.reason or "the solution is empty")


def _unread(score: SolutionScore) -> Missing | None:
    """A solution that is no text has no answer either, but that is not the policy's doing."""
    return Missing(score.reason) if not score.steps and score.reason not in (None, NO_STEPS) else None


# --- recipes -----------------------------------------------------------------------------------------------------


def _alone(aggregation: str) -> Reward:
    return Reward(aggregation, (process(aggregation, any_scale=aggregation not in ON_PROBABILITIES),))


RECIPES: Mapping[str, Reward] = MappingProxyType(
    {
        recipe.name: recipe
        for recipe in (
            Reward(
                "seed",
                (
                    process("final", weight=0.45),
                    process("mean", weight=0.35),
                    process("correct-prefix", weight=0.20),
                ),
            ),
            *(_alone(name) for name in ("mean", "min", "final", "product", "geometric-mean", "soft-min", "clip")),
            Reward("outcome", (outcome(),)),
            # Weighed so that no wrong answer, however well argued, earns as much as a right one.
            Reward("outcome+process", (outcome(weight=0.7), process("min", weight=0.3))),
            Reward(
                "outcome+process+format",
                (outcome(weight=0.7), process("min", weight=0.2), answered(weight=0.05), inside(weight=0.05)),
            ),
        )
    }
)
"""Ready recipes by name. Those with `outcome` need a gold answer; the others make do without."""


def find_recipe(recipe: str | Reward) -> Reward:
    """A recipe by its name in RECIPES; one that is ready is given back."""
    if isinstance(recipe, Reward):
        return recipe
    if recipe not in RECIPES:
        raise OptionError(f"There is no recipe {recipe!r}. Choose one of: {', '.join(RECIPES)}; or give a Reward.")
    return RECIPES[recipe]
