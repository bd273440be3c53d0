"""What scoring gives back: a score for every step, or the reason why there is none.

The rule: a number in here was read from the model. A step that was not scored has `score=None` and says why in its
`status`; a solution of which any step was not scored says why in its `reason`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from surefoot.core import aggregation
from surefoot.core.solution import Span, StepKind
from surefoot.errors import InputError

StepStatus = Literal["scored", "over_length", "not_finite"]
"""`over_length`: the step ends past the token limit. `not_finite`: the model gave NaN or infinity."""

SolutionStatus = Literal["scored", "partial", "unscored"]

NO_STEPS = "The solution has no steps."
"""The reason of a solution that was read and has no step in it; any other reason without steps: it was not read."""

Scale = Literal["probability", "margin", "log_ratio"]
"""What a score is: a probability between 0 and 1, a difference of two of them between -1 and 1, or a log-ratio of two
models without bounds."""

NATURAL_THRESHOLDS: dict[Scale, float] = {"probability": 0.5, "margin": 0.0, "log_ratio": 0.0}
"""Above it a step is right, unless another threshold is given."""


@dataclass(frozen=True)
class StepScore:
    """One step, with its score: on most models' scale the probability that it is right."""

    text: str
    start: int
    end: int
    score: float | None
    status: StepStatus
    index: int
    """Position among all pieces of the solution, dropped empty ones counted."""
    kind: StepKind = "body"
    raw: float | None = None
    """What the model gave, where a calibration made another score of it; None where nothing was changed."""
    spread: float | None = None
    """How far apart the heads of an ensemble are, as a standard deviation; None for models with one head."""


@dataclass(frozen=True)
class SolutionScore:
    """All steps of one solution, and the numbers made of them."""

    steps: tuple[StepScore, ...]
    model: str
    answer: str | None = None
    reason: str | None = None
    """Why a step, or the whole solution, has no score."""
    warnings: tuple[str, ...] = ()
    outside: tuple[Span, ...] = ()
    """Text that belongs to no step and was not scored."""
    empty_steps: int = 0
    split: str = "list"
    tokens: int = 0
    """Tokens of this solution's prompt as far as it was read, shared with other solutions or not."""
    seconds: float = 0.0
    """Wall time of the call that scored it, shared among the call's solutions by their tokens."""
    scale: Scale = "probability"
    calibration: str | None = None
    """What the scores were calibrated with, or None: they are as the model gave them."""

    @property
    def step_scores(self) -> list[float | None]:
        """The score of every step, in order."""
        return [step.score for step in self.steps]

    @property
    def status(self) -> SolutionStatus:
        """`scored`: every step has a score. `partial`: some have. `unscored`: none has, or there is no step."""
        known = sum(score is not None for score in self.step_scores)
        if known == 0:
            return "unscored"
        return "scored" if known == len(self.steps) else "partial"

    @property
    def unscored_chars(self) -> int:
        """Characters of the solution that no score speaks of: text outside the steps, and steps without a score."""
        outside = sum(span.end - span.start for span in self.outside)
        return outside + sum(step.end - step.start for step in self.steps if step.score is None)

    @property
    def mean(self) -> float | None:
        """See `aggregation.mean`."""
        return aggregation.mean(self.step_scores)

    @property
    def min(self) -> float | None:
        """See `aggregation.minimum`."""
        return aggregation.minimum(self.step_scores)

    @property
    def final(self) -> float | None:
        """See `aggregation.final`."""
        return aggregation.final(self.step_scores)

    @property
    def product(self) -> float | None:
        """See `aggregation.product`. None for scores that are no probabilities."""
        return aggregation.product(self.step_scores) if self.scale == "probability" else None

    @property
    def geometric_mean(self) -> float | None:
        """See `aggregation.geometric_mean`. None for scores that are no probabilities."""
        return aggregation.geometric_mean(self.step_scores) if self.scale == "probability" else None

    @property
    def natural_threshold(self) -> float:
        """Above it a step is right: 0.5 for probabilities, 0 for margins and log-ratios."""
        return NATURAL_THRESHOLDS[self.scale]

    def first_error(self, threshold: float | None = None) -> int | None:
        """See `aggregation.first_error`. Without a threshold the natural one of the scale is used."""
        return aggregation.first_error(self.step_scores, self.natural_threshold if threshold is None else threshold)

    def correct_prefix(self, threshold: float | None = None) -> float | None:
        """See `aggregation.correct_prefix`. Without a threshold the natural one of the scale is used."""
        return aggregation.correct_prefix(self.step_scores, self.natural_threshold if threshold is None else threshold)

    def to_dict(self, threshold: float | None = None) -> dict[str, Any]:
        """Everything, aggregations included, as plain data that JSON can hold. A step is right above `threshold`."""
        return {
            "status": self.status,
            "reason": self.reason,
            "model": self.model,
            "steps": [dict(vars(step)) for step in self.steps],
            "mean": self.mean,
            "min": self.min,
            "final": self.final,
            "product": self.product,
            "geometric_mean": self.geometric_mean,
            "first_error": self.first_error(threshold),
            "correct_prefix": self.correct_prefix(threshold),
            "answer": self.answer,
            "warnings": list(self.warnings),
            "outside": [list(span) for span in self.outside],
            "unscored_chars": self.unscored_chars,
            "empty_steps": self.empty_steps,
            "split": self.split,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "scale": self.scale,
            "calibration": self.calibration,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SolutionScore:
        """The result whose `to_dict` this is. What follows from the steps, such as the mean, is derived anew."""
        try:
            taken = {field.name: data[field.name] for field in fields(cls) if field.name in data}
            return cls(
                **taken
                | {
                    "steps": tuple(StepScore(**step) for step in data["steps"]),
                    "model": data["model"],
                    "warnings": tuple(data.get("warnings", ())),
                    "outside": tuple(Span(*span) for span in data.get("outside", ())),
                }
            )
        except (KeyError, TypeError) as error:
            raise InputError(f"This is not the data of a scored solution ({type(error).__name__}: {error}).") from error

    def to_json(self, threshold: float | None = None) -> str:
        """One line of JSON."""
        return json.dumps(self.to_dict(threshold), ensure_ascii=False)

    def _repr_html_(self) -> str:
        """How a notebook shows it."""
        from surefoot.display.html import solution_html

        return solution_html(self)
