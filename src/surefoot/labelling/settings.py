"""How steps are labelled: which ones are measured, with how many rollouts, and what decides."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from surefoot.core.generation import DEFAULT_SAMPLING, Sampling
from surefoot.core.labels import Outcomes
from surefoot.errors import OptionError

Procedure = Literal["every", "until-error", "binary"]
"""Which steps are measured: all, all up to the first wrong one, or those that a binary search for it needs."""
Stop = Literal["first-right", "interval", "never"]
"""When sampling ends before k rollouts: at the first right one, when the interval excludes the threshold, or never."""
CountedWrong = Literal["cut_off", "unanswered"]


@dataclass(frozen=True)
class LabelBudget:
    """Limits on rollouts and their tokens. None is no limit.

    The limits per question are never exceeded. A question is started only if the questions before it spent less than
    the limits in total.

    >>> surefoot.LabelBudget(calls=64)
    LabelBudget(tokens=None, calls=64, total_tokens=None, total_calls=None)
    """

    tokens: int | None = None
    """Generated tokens per question."""
    calls: int | None = None
    """Continuations per question."""
    total_tokens: int | None = None
    total_calls: int | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and value < 1:
                raise OptionError(f"The budget {name}={value} allows nothing. Pass a number above 0, or None.")


NO_LIMIT = LabelBudget()


@dataclass(frozen=True)
class LabelSettings:
    """The settings of labelling.

    >>> surefoot.LabelSettings(procedure="binary", k=16, stop="first-right").threshold
    0.0
    """

    procedure: Procedure = "every"
    k: int = 8
    """The most rollouts per step."""
    round_size: int = 4
    """Rollouts that are sampled at a time."""
    stop: Stop = "never"
    """Soft and relative labels need `never`, or one round: values are biased if the rollouts decide how many there
    are."""
    threshold: float = 0.0
    """A step is right if its value is above this. 0 means: if any rollout is right."""
    relative: float = 0.8
    """A step is right relative to the one before if its value is at least this share of that value."""
    min_known: float = 0.5
    """The least share of rollouts that can be judged. With fewer, a step is undecided, unless one right rollout
    decides."""
    count_as_wrong: tuple[CountedWrong, ...] = ()
    """Rollouts that count as wrong instead of unknown: `cut_off` at max_tokens, `unanswered`."""
    checks: int = 1
    """For binary search: steps that are measured after the error that was found, to check "once 0, always 0"."""
    samples: int = 4
    """Solutions that are sampled per question, if none are given."""
    pass_rollouts: int = 8
    """Whole answers that are sampled to measure the pass rate, the value before the first step. Sampled solutions are
    among them. 0 saves them if solutions are given; the first step then has no relative label."""
    min_pass: float | None = None
    """Questions with a lower pass rate are not labelled."""
    max_pass: float | None = None
    """Questions with a higher pass rate are not labelled."""
    step_end: str = "\n\n"
    """The text that ends a step."""
    max_tokens: int = 2048
    """The most tokens of a rollout."""
    sampling: Sampling = DEFAULT_SAMPLING
    budget: LabelBudget = NO_LIMIT
    certain: float = 0.9
    """For screening: a step with max(p, 1 - p) below this is uncertain."""
    max_spread: float = 0.01
    """For screening: a step with a larger spread over heads or over the members of an ensemble is uncertain."""

    def __post_init__(self) -> None:
        for name, choices in (("procedure", get_args(Procedure)), ("stop", get_args(Stop))):
            if getattr(self, name) not in choices:
                raise OptionError(f"{name}={getattr(self, name)!r} is unknown. Choose one of: {', '.join(choices)}.")
        if wrong := [name for name in self.count_as_wrong if name not in get_args(CountedWrong)]:
            raise OptionError(f"count_as_wrong={wrong[0]!r} is unknown. Choose from: cut_off, unanswered.")
        for name in ("k", "round_size", "samples", "max_tokens"):
            if getattr(self, name) < 1:
                raise OptionError(f"{name}={getattr(self, name)}: pass a number above 0.")
        for name in ("checks", "pass_rollouts"):
            if getattr(self, name) < 0:
                raise OptionError(f"{name}={getattr(self, name)}: pass 0 or a number above it.")
        for name in ("threshold", "relative", "min_known", "min_pass", "max_pass", "certain", "max_spread"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and 0 <= value <= 1):
                raise OptionError(f"{name}={value}: pass a number from 0 to 1.")
        if self.threshold == 1:
            raise OptionError("threshold=1: no value is above 1. Pass a number below it.")
        if self.stop == "first-right" and self.threshold:
            raise OptionError(
                f"stop='first-right' decides nothing at threshold={self.threshold}. Use stop='interval', or the "
                "threshold 0."
            )
        if self.filters and not self.pass_rollouts:
            raise OptionError("`min_pass` and `max_pass` need whole answers. Set `pass_rollouts` to a number above 0.")
        if self.min_pass is not None and self.max_pass is not None and self.min_pass > self.max_pass:
            raise OptionError(f"min_pass={self.min_pass} is above max_pass={self.max_pass}: no question would be left.")
        if not self.step_end:
            raise OptionError("`step_end` is empty. Pass the text that ends a step, such as a blank line.")
        if self.sampling.greedy:
            raise OptionError("temperature=0 makes all rollouts equal. Pass a temperature above 0.")

    @property
    def filters(self) -> bool:
        """Whether questions are filtered by pass rate."""
        return self.min_pass is not None or self.max_pass is not None

    @property
    def adaptive(self) -> bool:
        """Whether the rollouts of a step decide how many there are."""
        return self.stop != "never" and self.round_size < self.k

    def decide(self, outcomes: Outcomes) -> bool | None:
        """Whether rollouts show that a step is right; None if they do not tell."""
        if outcomes.right and not self.threshold:
            return True
        if outcomes.value is None or outcomes.known < self.min_known * outcomes.total:
            return None
        return outcomes.value > self.threshold

    def certain_about(self, outcomes: Outcomes) -> bool:
        """Whether more rollouts are not needed, by the rule of `stop`."""
        if self.stop == "first-right":
            return outcomes.right > 0
        interval = outcomes.interval if self.stop == "interval" else None
        return interval is not None and (interval.low > self.threshold or interval.high < self.threshold)

    def rejects(self, pass_rate: Outcomes | None) -> str | None:
        """Why a question is not labelled; None if it is."""
        if not self.filters or pass_rate is None:
            return None
        if (rate := pass_rate.value) is None:
            return f"The pass rate is unknown: none of {pass_rate.total} whole answers can be judged."
        if self.min_pass is not None and rate < self.min_pass:
            return f"The pass rate {rate:.4g} is below min_pass={self.min_pass}."
        if self.max_pass is not None and rate > self.max_pass:
            return f"The pass rate {rate:.4g} is above max_pass={self.max_pass}."
        return None

    def identity(self) -> dict[str, Any]:
        """Return what decides the labels of a question: everything but the limits in total."""
        data = {field.name: getattr(self, field.name) for field in fields(self)}
        budget = {"tokens": self.budget.tokens, "calls": self.budget.calls}
        return data | {
            "sampling": asdict(self.sampling),
            "budget": budget,
            "count_as_wrong": sorted(self.count_as_wrong),
        }
