"""Step labels that were estimated from rollouts, with what they rest on and what they cost.

Invariant: a rollout that cannot be judged is unknown, never wrong, and steps after the first error are unknown, not
wrong. A step without a label has a reason.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from surefoot.core.intervals import Bootstrap, Interval, as_list
from surefoot.errors import InputError

Verdict = Literal["right", "wrong", "cut_off", "unanswered", "undecided", "failed"]
"""How a finished answer compares with the reference. `undecided`: the two cannot be compared. All but the first two are
unknown."""

StepState = Literal["labelled", "unknown"]

LabelSource = Literal["rollouts", "answer", "implied", "screen", "person"]
"""Where a label comes from: rollouts from the step, the solution's own answer (for its last step), a later step that is
right (binary search), the scorer that screens solutions, or a person who reviewed it."""

SolutionState = Literal["labelled", "filtered", "unfinished", "failed"]
"""`filtered`: the question's pass rate is out of bounds. `unfinished`: the sampled solution was cut off. `failed`: the
generator failed to write it."""

WILSON = Bootstrap()


@dataclass(frozen=True)
class LabelCost:
    """What labels cost."""

    rollouts: int = 0
    """Continuations that were requested."""
    calls: int = 0
    """Requests to the server, or sequences in a batch of a model in this process."""
    generated_tokens: int = 0
    prompt_tokens: int = 0

    def __add__(self, other: LabelCost) -> LabelCost:
        return LabelCost(
            self.rollouts + other.rollouts,
            self.calls + other.calls,
            self.generated_tokens + other.generated_tokens,
            self.prompt_tokens + other.prompt_tokens,
        )


FREE = LabelCost()


@dataclass(frozen=True)
class Outcomes:
    """How many rollouts reached which verdict.

    >>> outcomes = Outcomes(right=2, wrong=6, cut_off=2)
    >>> outcomes.value, outcomes.unknown
    (0.25, 2)
    """

    right: int = 0
    wrong: int = 0
    cut_off: int = 0
    unanswered: int = 0
    undecided: int = 0
    failed: int = 0

    @property
    def known(self) -> int:
        """Rollouts that are right or wrong."""
        return self.right + self.wrong

    @property
    def unknown(self) -> int:
        """Rollouts that cannot be judged. They do not count as wrong."""
        return self.cut_off + self.unanswered + self.undecided + self.failed

    @property
    def total(self) -> int:
        """All rollouts."""
        return self.known + self.unknown

    @property
    def value(self) -> float | None:
        """The share of right ones among those that can be judged; None if there are none."""
        return self.right / self.known if self.known else None

    @property
    def interval(self) -> Interval | None:
        """Wilson's 95% interval of the value."""
        return WILSON.wilson(self.right, self.known)

    def plus(self, verdict: Verdict) -> Outcomes:
        """Count one more rollout."""
        return Outcomes(**vars(self) | {verdict: getattr(self, verdict) + 1})

    def to_dict(self) -> dict[str, Any]:
        """Return the counts with value and interval as JSON-compatible data."""
        return {**vars(self), "unknown": self.unknown, "value": self.value, "interval": as_list(self.interval)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Outcomes:
        """Rebuild counts from their `to_dict`."""
        return cls(**{name: data[name] for name in cls.__dataclass_fields__})


NONE_SAMPLED = Outcomes()


@dataclass(frozen=True)
class StepLabel:
    """One step, its labels and what they rest on.

    >>> report = surefoot.label("samples.jsonl", "labels", generator="samples.jsonl", gold="target")
    >>> step = report.solutions[0].steps[0]
    >>> step.hard, step.source
    (True, 'answer')
    """

    text: str
    """Exactly as in the solution, with the delimiter after it."""
    state: StepState
    reason: str | None = None
    """Why the step has no label."""
    hard: bool | None = None
    """Whether the value is above the threshold: with the default of 0, whether any rollout is right."""
    relative: bool | None = None
    """Whether the value is at least 0.8 (by default) of the value before the step, as in GenPRM. None if one of the two
    is unknown, or if sampling was `adaptive`."""
    value: float | None = None
    """The share of right rollouts; for the last step of a finished solution, 1 or 0 by its own answer. It is kept for
    steps that were measured after the first error. If sampling was `adaptive`, it is biased."""
    outcomes: Outcomes = NONE_SAMPLED
    source: LabelSource | None = None
    """None if nothing was measured."""
    stopped_early: bool = False
    """Whether sampling ended before k rollouts because the decision was certain."""
    spent: LabelCost = FREE
    adaptive: bool = False
    """Whether the rollouts decided how many there are. The value is then biased, also if all k were sampled: with
    `first-right`, only a step whose first rollouts are wrong gets that far."""

    @property
    def soft(self) -> float | None:
        """The value as a label: None for steps without a label, and if sampling was adaptive."""
        return self.value if self.state == "labelled" and not self.adaptive else None

    @property
    def interval(self) -> Interval | None:
        """Wilson's 95% interval of the value; None without rollouts."""
        return self.outcomes.interval

    def to_dict(self) -> dict[str, Any]:
        """Return everything, including derived values, as JSON-compatible data."""
        return {
            "text": self.text,
            "state": self.state,
            "reason": self.reason,
            "hard": self.hard,
            "soft": self.soft,
            "relative": self.relative,
            "value": self.value,
            "outcomes": self.outcomes.to_dict(),
            "source": self.source,
            "stopped_early": self.stopped_early,
            "spent": dict(vars(self.spent)),
            "adaptive": self.adaptive,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> StepLabel:
        """Rebuild a label from its `to_dict`."""
        data = {"adaptive": data["stopped_early"], **data}  # labels of earlier versions do not have it
        taken = {name: data[name] for name in cls.__dataclass_fields__}
        return cls(**taken | {"outcomes": Outcomes.from_dict(data["outcomes"]), "spent": LabelCost(**data["spent"])})


@dataclass(frozen=True)
class ScorerVerdict:
    """What a PRM says about the steps of a solution."""

    model: str
    first_error: int | None
    """The index of the first incorrect step, -1 if there is none, None if steps are unscored."""
    scores: tuple[float | None, ...]
    spreads: tuple[float | None, ...] = ()
    """Standard deviations over the heads of a model, or over the members of an ensemble."""
    certain: bool | None = None
    """For the scorer that screens: whether its verdict was taken instead of rollouts."""
    incomplete: tuple[int, ...] = ()
    """Indices of steps to which a member of an ensemble gave no score."""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ScorerVerdict:
        """Rebuild a verdict from its fields."""
        names = ("scores", "spreads", "incomplete")
        return cls(**{**data, **{name: tuple(data.get(name, ())) for name in names}})


@dataclass(frozen=True)
class LabelledSolution:
    """A solution with one label per step.

    >>> report = surefoot.label("samples.jsonl", "labels", generator="samples.jsonl", gold="target")
    >>> report.solutions[0].first_error, report.solutions[0].pass_rate.value
    (-1, 1.0)
    """

    index: int
    """Position of the question in the input."""
    number: int
    """Position among the solutions of the question."""
    question: str
    gold: str
    text: str
    """Exactly as given or generated; the texts of the steps together."""
    steps: tuple[StepLabel, ...]
    """Empty unless the state is `labelled`."""
    state: SolutionState = "labelled"
    reason: str | None = None
    id: str | None = None
    sampled: bool = False
    """Whether the generator wrote the solution, or it was given."""
    answer: str | None = None
    """The answer that it states."""
    outcome: Verdict | None = None
    """How its own answer compares with the reference; None for a given solution that states none."""
    pass_rate: Outcomes | None = None
    """Verdicts on whole answers to the question; None if none were sampled."""
    violations: tuple[int, ...] = ()
    """Steps that were found right after one that was found wrong: "once 0, always 0" does not hold."""
    checked: bool = False
    """Whether a violation could be found: a step after the first wrong one was measured, other than by a search that
    assumes that there is none."""
    judge: ScorerVerdict | None = None
    """None without a judge, and if the screening scorer was certain: the judge is then not asked."""
    screen: ScorerVerdict | None = None
    spent: LabelCost = FREE
    """What the labels of this solution cost."""
    question_spent: LabelCost = FREE
    """What the question cost: whole answers, and the labels of all its solutions. The same for all of them."""

    @property
    def first_error(self) -> int | None:
        """The index of the first wrong step, -1 if all are right, None if an unlabelled step comes first."""
        for at, step in enumerate(self.steps):
            if step.hard is not True:
                return None if step.hard is None else at
        return -1 if self.steps else None

    @property
    def agrees(self) -> bool | None:
        """Whether the judge names the same first error, or none like the labels; None if one of the two is unknown."""
        if self.judge is None or self.judge.first_error is None or self.first_error is None:
            return None
        return self.judge.first_error == self.first_error

    @property
    def kept(self) -> bool:
        """Whether the labels may be used: if the judge was asked, only if it agrees."""
        return self.state == "labelled" and (self.judge is None or self.agrees is True)

    def to_dict(self) -> dict[str, Any]:
        """Return everything, including derived values, as JSON-compatible data."""
        return {
            **{name: getattr(self, name) for name in ("index", "number", "id", "question", "gold", "text")},
            **{name: getattr(self, name) for name in ("state", "reason", "sampled", "answer", "outcome")},
            "first_error": self.first_error,
            "agrees": self.agrees,
            "kept": self.kept,
            "steps": [step.to_dict() for step in self.steps],
            "pass_rate": None if self.pass_rate is None else self.pass_rate.to_dict(),
            "violations": list(self.violations),
            "checked": self.checked,
            "judge": None if self.judge is None else asdict(self.judge),
            "screen": None if self.screen is None else asdict(self.screen),
            "spent": dict(vars(self.spent)),
            "question_spent": dict(vars(self.question_spent)),
        }

    def to_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> LabelledSolution:
        """Rebuild a solution from its `to_dict`. Derived values are computed anew."""
        try:
            taken = {name: data[name] for name in cls.__dataclass_fields__}
            verdicts = {
                name: None if data[name] is None else ScorerVerdict.from_dict(data[name])
                for name in ("judge", "screen")
            }
            return cls(
                **taken
                | verdicts
                | {
                    "steps": tuple(map(StepLabel.from_dict, data["steps"])),
                    "pass_rate": None if data["pass_rate"] is None else Outcomes.from_dict(data["pass_rate"]),
                    "violations": tuple(data["violations"]),
                    "spent": LabelCost(**data["spent"]),
                    "question_spent": LabelCost(**data["question_spent"]),
                }
            )
        except (KeyError, TypeError) as error:
            raise InputError(f"This is not a labelled solution ({type(error).__name__}: {error}).") from error
