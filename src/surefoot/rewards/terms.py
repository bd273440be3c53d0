"""The terms that recipes consist of: step scores, their uncertainty, the outcome, and the format of a solution."""

from __future__ import annotations

import math
from functools import partial
from inspect import signature
from typing import Literal, get_args

from surefoot.core.aggregation import Aggregation, find_aggregation
from surefoot.core.result import NO_STEPS, SolutionScore
from surefoot.errors import OptionError
from surefoot.rewards.reward import Missing, Term
from surefoot.text.answers import reference_answer
from surefoot.text.equality import same_answer

UNSCORED_STEP = "a step is unscored"
NO_TEXT = "the solution is empty"

UncertaintyMode = Literal["withhold", "shrink"]


def process(
    aggregation: str, *, weight: float = 1.0, name: str | None = None, any_scale: bool = False, **options: float
) -> Term:
    """Aggregate the step scores.

        process("soft_min", weight=0.3, temperature=0.05)

    `aggregation` is a name in `surefoot.core.aggregation.AGGREGATIONS`; `options` go to its function. By default,
    scores that are not probabilities raise `OptionError`, because they cannot be weighed against terms between 0 and 1.
    `any_scale=True` accepts them, for aggregations that do not need probabilities.
    """
    chosen = find_aggregation(aggregation)
    if any_scale and chosen.needs_probabilities:
        raise OptionError(f"{aggregation!r} needs probabilities, so any_scale=True is not supported.")
    try:
        signature(chosen.function).bind([], **options)
    except TypeError as error:
        raise OptionError(f"{aggregation!r} does not take these options: {error}.") from error
    if options.get("temperature", 1.0) <= 0:
        raise OptionError(f"temperature={options['temperature']} is not above 0. For the exact minimum use 'min'.")
    label = name or aggregation
    return Term(label, partial(_read_process, chosen, any_scale, dict(options), label), weight)


def _read_process(
    aggregation: Aggregation,
    any_scale: bool,
    options: dict[str, float],
    label: str,
    score: SolutionScore,
    gold: str | None,
) -> float | Missing:
    if score.scale != "probability" and not any_scale:
        raise OptionError(
            f"The term {label!r} needs probabilities, but the scores of {score.model} are on the scale "
            f"{score.scale!r}. Use another model or calibrate this one. Aggregations that neither multiply nor compare "
            "scores also work with process(..., any_scale=True)."
        )
    value = aggregation.function(score.step_scores, **options)
    return Missing(score.reason or UNSCORED_STEP) if value is None else value


def uncertainty(limit: float = 0.2, *, mode: UncertaintyMode = "withhold", weight: float = 1.0) -> Term:
    """Limit how far the members of an ensemble may disagree: by the largest `spread` of a step.

        recipe = RECIPES["outcome+process"].plus(uncertainty(0.2))

    Above the limit, `withhold` leaves the solution without a reward, like one with an unscored step. `shrink` subtracts
    `weight` times the part of the spread that is above the limit. Up to the limit, the reward does not change. Scores
    of a model without a spread raise `OptionError`.
    """
    if mode not in get_args(UncertaintyMode):
        raise OptionError(f"mode={mode!r} is unknown. Choose one of: {', '.join(get_args(UncertaintyMode))}.")
    if not (math.isfinite(limit) and limit >= 0.0):
        raise OptionError(f"limit={limit} is not a spread. Pass a finite number of at least 0.")
    if not weight:
        raise OptionError("weight=0 would turn the term `uncertainty` off. Pass another number, or leave the term out.")
    return Term("uncertainty", partial(_read_uncertainty, limit, mode), -abs(weight))


def _read_uncertainty(limit: float, mode: UncertaintyMode, score: SolutionScore, gold: str | None) -> float | Missing:
    spreads = []
    for step in score.steps:
        if step.score is None:
            return Missing(score.reason or UNSCORED_STEP)
        if step.spread is not None:
            spreads.append(step.spread)
        elif step.members:
            return Missing("a step was scored by one member only, so its spread is unknown")
        else:
            raise OptionError(
                f"The term 'uncertainty' needs a spread, but {score.model} is a single model with one head. Load an "
                "ensemble: surefoot.load([...])."
            )
    if not spreads:
        return Missing(score.reason or NO_TEXT)
    largest = max(spreads)
    if mode == "withhold" and largest > limit:
        return Missing(f"the spread of step {spreads.index(largest)} is {largest:.3f}, above the limit of {limit:g}")
    return max(0.0, largest - limit)


def outcome(*, weight: float = 1.0, timeout: float = 3.0) -> Term:
    """Compare the answer with the gold answer: 1.0 if they are equivalent, else 0.0, also if no answer is stated.

        recipe = RECIPES["min"].plus(outcome(weight=2.0))

    Missing if there is no gold answer, if `same_answer` does not decide (None: the texts do not tell, or `timeout`
    seconds passed), or if the solution is not a valid text. A gold solution that states its answer, such as GSM8K's
    `#### 42`, is reduced to that answer.
    """
    return Term("outcome", partial(_read_outcome, timeout), weight, needs_gold=True)


def _read_outcome(timeout: float, score: SolutionScore, gold: str | None) -> float | Missing:
    if gold is None:
        return Missing("no gold answer was given")
    if invalid := _invalid(score):
        return invalid
    reference = reference_answer(gold)
    if not reference:
        return Missing("the gold answer is empty")
    if score.answer is None:
        return 0.0
    same = same_answer(reference, score.answer, timeout=timeout)
    return Missing("the answer could not be compared with the gold answer") if same is None else float(same)


def answered(*, weight: float = 1.0) -> Term:
    """Check the format: 1.0 if the solution states an answer, else 0.0."""
    return Term("answered", _read_answered, weight)


def _read_answered(score: SolutionScore, gold: str | None) -> float | Missing:
    return _invalid(score) or float(score.answer is not None)


def has_steps(*, weight: float = 1.0, at_least: int = 1) -> Term:
    """Check the format: 1.0 if the solution has at least this many steps besides the closing answer, else 0.0."""
    return Term("has_steps", partial(_read_has_steps, at_least), weight)


def _read_has_steps(at_least: int, score: SolutionScore, gold: str | None) -> float | Missing:
    return _invalid(score) or float(sum(step.kind == "body" for step in score.steps) >= at_least)


def coverage(*, weight: float = 1.0) -> Term:
    """Measure the fraction of the solution's characters that belong to steps. Missing for an empty solution."""
    return Term("coverage", _read_coverage, weight)


def _read_coverage(score: SolutionScore, gold: str | None) -> float | Missing:
    outside = outside_fraction(score)
    return Missing(score.reason or NO_TEXT) if outside is None else 1.0 - outside


def outside_fraction(score: SolutionScore) -> float | None:
    """Return the fraction of the solution's characters that belong to no step, or None for an empty solution."""
    inside = sum(step.end - step.start for step in score.steps)
    outside = sum(span.end - span.start for span in score.outside)
    return outside / (inside + outside) if inside + outside else None


def _invalid(score: SolutionScore) -> Missing | None:
    """Return the reason if the solution is not a valid text. The policy is then not charged for a missing answer."""
    return Missing(score.reason) if not score.steps and score.reason not in (None, NO_STEPS) else None
