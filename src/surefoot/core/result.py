"""The result of scoring: one score per step, or the reason why there is none.

Invariant: every score was read from the model. An unscored step has `score=None` and a `status` that says why; a
solution with an unscored step has a `reason`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from surefoot.core.aggregation import AGGREGATIONS, correct_prefix, find_aggregation, first_error
from surefoot.core.members import MemberScore, plain_members, read_members
from surefoot.core.solution import Span, StepKind
from surefoot.display.numbers import short_score
from surefoot.errors import InputError, OptionError

if TYPE_CHECKING:
    import pandas
    import pyarrow
    from matplotlib.axes import Axes

StepStatus = Literal[
    "scored",
    "over_length",
    "not_finite",
    "member_missing",
    "no_verdict",
    "cut_off",
    "low_mass",
    "generator_error",
    "after_error",
    "not_judged",
]
"""`over_length`: the step ends after the token limit. `not_finite`: the model returned NaN or infinity.
`member_missing`: a member of the ensemble gave no score.

Of critics: `no_verdict`: the reply has no verdict that can be read. `cut_off`: the reply reached its token limit.
`low_mass`: the labels for right and wrong are improbable. `generator_error`: the generator failed. `after_error`: the
critic stopped at an error in an earlier step. `not_judged`: the critic does not judge this step."""

SolutionStatus = Literal["scored", "partial", "unscored"]

NO_STEPS = "The solution has no steps."
"""The reason of a solution that was read but has no steps. A result without steps and another reason was not read."""

Scale = Literal["probability", "margin", "log_ratio"]
"""What a score means: a probability in [0, 1], a difference of two probabilities in [-1, 1], or an unbounded number
with the natural threshold 0: the log-ratio of two models, or log-odds."""

DEFAULT_AGGREGATION = "min"
"""How solutions are ranked if it is not known how the makers of the model rank them."""

NATURAL_THRESHOLDS: dict[Scale, float] = {"probability": 0.5, "margin": 0.0, "log_ratio": 0.0}
"""Default thresholds: scores above count as correct."""

_RANGES: dict[Scale, tuple[float, float]] = {
    "probability": (0.0, 1.0),
    "margin": (-1.0, 1.0),
    "log_ratio": (-math.inf, math.inf),
}


def threshold_for(scale: Scale, threshold: float | None = None) -> float:
    """Return the threshold to use for scores on this scale: the given one, or the natural one.

    A threshold that is not finite or lies outside the scale raises `OptionError`: no score could be on its other side.

    >>> threshold_for("margin"), threshold_for("margin", -0.5)
    (0.0, -0.5)
    """
    if threshold is None:
        return NATURAL_THRESHOLDS[scale]
    low, high = _RANGES[scale]
    if math.isfinite(threshold) and low <= threshold <= high:
        return threshold
    if math.isinf(high):
        raise OptionError(f"threshold={threshold} is not finite. Pass a finite number.")
    raise OptionError(
        f"threshold={threshold} is outside the scale: the scores are on the scale {scale!r}, from {low:g} to {high:g}."
    )


@dataclass(frozen=True)
class StepScore:
    """One step and its score: for most models, the probability that the step is correct.

    >>> result = surefoot.load("mini").score("What is 2 + 3?", "2 + 3 = 6.")
    >>> for step in result.steps:
    ...     print(step.status, step.text)
    scored 2 + 3 = 6.
    """

    text: str
    start: int
    end: int
    score: float | None
    status: StepStatus
    index: int
    """Position among all pieces of the solution, including dropped empty ones."""
    kind: StepKind = "body"
    raw: float | None = None
    """The model's score before calibration; None if the score is not calibrated."""
    spread: float | None = None
    """Standard deviation over the heads of a model, the members of an ensemble or the votes of a critic; None if there
    is only one."""
    members: tuple[MemberScore, ...] = ()
    """What each member of an ensemble, or each vote of a critic, gave for this step; empty if there is only one."""
    label_mass: float | None = None
    """The probability of a critic's two labels together: the lowest over its votes; None for other models."""


@dataclass(frozen=True)
class SolutionScore:
    """The steps of one solution with their scores, and aggregations of them.

    >>> result = surefoot.load("mini").score("What is 2 + 3?", "2 + 3 = 6.")
    >>> result.first_error()
    0
    >>> result.to_arrow().column_names  # one row per step
    ['index', 'text', 'start', 'end', 'score', 'status', 'kind', 'raw', 'spread', 'members', 'label_mass']
    >>> result.to_pandas()["text"].tolist()
    ['2 + 3 = 6.']
    """

    steps: tuple[StepScore, ...]
    model: str
    answer: str | None = None
    reason: str | None = None
    """Why a step or the whole solution is unscored."""
    warnings: tuple[str, ...] = ()
    outside: tuple[Span, ...] = ()
    """Text outside the steps, which was not scored."""
    skipped: tuple[Span, ...] = ()
    """Text that the option `thinking` excludes from scoring. It is neither outside nor in `unscored_chars`."""
    empty_steps: int = 0
    split: str = "list"
    tokens: int = 0
    """Number of prompt tokens that were read, including those shared with other solutions."""
    generated_tokens: int = 0
    """Number of tokens that a critic wrote."""
    calls: int = 0
    """Number of requests to a critic's generator."""
    seconds: float = 0.0
    """This solution's part of the call's wall time, in proportion to its tokens."""
    scale: Scale = "probability"
    calibration: str | None = None
    """The name of the calibration; None if the scores are not calibrated."""
    recommended: str | None = None
    """The aggregation by which the makers of the model rank solutions; None if that is not known."""
    precision: str | None = None
    """The number format that the scores were computed in, such as float32 or int8; None if that is not known."""

    @property
    def step_scores(self) -> list[float | None]:
        """The score of every step, in order."""
        return [step.score for step in self.steps]

    @property
    def status(self) -> SolutionStatus:
        """`scored`: every step has a score. `partial`: some do. `unscored`: none does, or there are no steps."""
        known = sum(score is not None for score in self.step_scores)
        if known == 0:
            return "unscored"
        return "scored" if known == len(self.steps) else "partial"

    @property
    def unscored_chars(self) -> int:
        """Number of characters that no score covers: text outside the steps, and unscored steps."""
        outside = sum(span.end - span.start for span in self.outside)
        return outside + sum(step.end - step.start for step in self.steps if step.score is None)

    def aggregate(self, name: str | None = None) -> float | None:
        """Return the step scores as one number, by one of `core.aggregation.AGGREGATIONS`.

        The default is `recommended`, or the minimum if that is not known. None if a step that it needs is unscored, or
        if it needs probabilities and the scores are not. The method `correct_prefix` also works on other scales, with
        their own threshold.
        """
        chosen = find_aggregation(name or self.recommended or DEFAULT_AGGREGATION)
        if chosen.needs_probabilities and self.scale != "probability":
            return None
        return chosen.function(self.step_scores)

    @property
    def aggregates(self) -> dict[str, float | None]:
        """The aggregations that every result reports, by name."""
        return {each.name: self.aggregate(each.name) for each in AGGREGATIONS.values() if each.in_results}

    @property
    def mean(self) -> float | None:
        """The mean of all step scores."""
        return self.aggregate("mean")

    @property
    def min(self) -> float | None:
        """The lowest step score."""
        return self.aggregate("min")

    @property
    def final(self) -> float | None:
        """The score of the last step."""
        return self.aggregate("final")

    @property
    def product(self) -> float | None:
        """The product of all step scores. None if the scores are not probabilities."""
        return self.aggregate("product")

    @property
    def geometric_mean(self) -> float | None:
        """The geometric mean of all step scores. None if the scores are not probabilities."""
        return self.aggregate("geometric_mean")

    @property
    def natural_threshold(self) -> float:
        """Scores above this count as correct: 0.5 for probabilities, 0 for margins and log-ratios."""
        return threshold_for(self.scale)

    def first_error(self, threshold: float | None = None) -> int | None:
        """See `aggregation.first_error`. The threshold defaults to that of the scale."""
        return first_error(self.step_scores, threshold_for(self.scale, threshold))

    def correct_prefix(self, threshold: float | None = None) -> float | None:
        """See `aggregation.correct_prefix`. The threshold defaults to that of the scale."""
        return correct_prefix(self.step_scores, threshold_for(self.scale, threshold))

    def to_dict(self, threshold: float | None = None) -> dict[str, Any]:
        """Return everything, including aggregations, as JSON-compatible data. Scores above `threshold` are correct."""
        return {
            "status": self.status,
            "reason": self.reason,
            "model": self.model,
            "steps": [vars(step) | {"members": plain_members(step.members)} for step in self.steps],
            **self.aggregates,
            "first_error": self.first_error(threshold),
            "correct_prefix": self.correct_prefix(threshold),
            "answer": self.answer,
            "warnings": list(self.warnings),
            "outside": [list(span) for span in self.outside],
            "skipped": [list(span) for span in self.skipped],
            "unscored_chars": self.unscored_chars,
            "empty_steps": self.empty_steps,
            "split": self.split,
            "tokens": self.tokens,
            "generated_tokens": self.generated_tokens,
            "calls": self.calls,
            "seconds": self.seconds,
            "scale": self.scale,
            "calibration": self.calibration,
            "recommended": self.recommended,
            "precision": self.precision,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SolutionScore:
        """Rebuild a result from its `to_dict`. Values derived from the steps, such as the mean, are recomputed."""
        try:
            taken = {field.name: data[field.name] for field in fields(cls) if field.name in data}
            return cls(
                **taken
                | {
                    "steps": tuple(
                        StepScore(**step | {"members": read_members(step.get("members", ()))}) for step in data["steps"]
                    ),
                    "model": data["model"],
                    "warnings": tuple(data.get("warnings", ())),
                    "outside": tuple(Span(*span) for span in data.get("outside", ())),
                    "skipped": tuple(Span(*span) for span in data.get("skipped", ())),
                }
            )
        except (KeyError, TypeError) as error:
            raise InputError(f"This is not a scored solution ({type(error).__name__}: {error}).") from error

    def to_json(self, threshold: float | None = None) -> str:
        """Return one line of JSON."""
        return json.dumps(self.to_dict(threshold), ensure_ascii=False)

    def to_arrow(self) -> pyarrow.Table:
        """Return the steps as an Arrow table with one row per step. Needs pyarrow. See also `surefoot.to_arrow`."""
        from surefoot.core.arrow import step_table

        return step_table(self)

    def to_pandas(self) -> pandas.DataFrame:
        """Return the steps as a data frame with one row per step. Needs pyarrow and pandas."""
        from surefoot.core.arrow import data_frame

        return data_frame(self.to_arrow())

    def plot(self, *, threshold: float | None = None, axes: Axes | None = None) -> Axes:
        """Plot the step scores with matplotlib, and return the axes. Needs `pip install "surefoot[report]"`.

        A new figure is made if no `axes` are given. An unscored step is a gap in the line.
        """
        from surefoot.display.plots import plot_steps

        return plot_steps(self, threshold=threshold, axes=axes)

    def __repr__(self) -> str:
        """Show the result in one short line."""
        parts = ["1 step" if len(self.steps) == 1 else f"{len(self.steps)} steps"]
        shown = dict.fromkeys(("min", "mean", self.recommended or "min"))
        parts += [f"{name} {short_score(value)}" for name in shown if (value := self.aggregate(name)) is not None]
        parts += [f"{name} {_shorten(text)!r}" for name in ("answer", "reason") if (text := getattr(self, name))]
        return f"<surefoot.SolutionScore {self.status}: {', '.join(parts)}, model {self.model!r}>"

    def __str__(self) -> str:
        """Show every step with its score, as in a terminal without colours."""
        from surefoot.display.terminal import show

        return show(self)

    def _repr_html_(self) -> str:
        """Render the result in a notebook."""
        from surefoot.display.html import solution_html

        return solution_html(self)


def _shorten(text: str, limit: int = 40) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
