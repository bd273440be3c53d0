"""Labels the steps of one solution from what was measured.

Invariant: steps after the first wrong one have no label, whatever was measured there. What was measured is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from surefoot.core.labels import ScorerVerdict, StepLabel
from surefoot.labelling.procedures import PROCEDURES
from surefoot.labelling.rollouts import Judged, Measurement, RolloutSampler
from surefoot.labelling.settings import LabelSettings

AFTER_ERROR = "The step comes after the first error."


@dataclass(frozen=True)
class StepLabels:
    """The labels of a solution, and whether later steps contradict earlier ones."""

    steps: tuple[StepLabel, ...]
    violations: tuple[int, ...] = ()
    checked: bool = False


@dataclass
class SolutionProbes:
    """Measures the steps of one solution. The last step of a finished one is judged by its answer."""

    texts: Sequence[str]
    number: int
    """Position of the solution among those of its question."""
    sampler: RolloutSampler
    settings: LabelSettings
    own: Judged | None
    """The finished solution itself; None if it is not finished."""
    measured: dict[int, Measurement] = field(default_factory=dict)
    known: dict[int, bool | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.count = len(self.texts)
        self._prefixes = list(accumulate(self.texts))
        if self.own is not None:
            self.known[self.count - 1] = self.last

    @property
    def last(self) -> bool | None:
        """Whether the own answer is right; None if it does not tell."""
        verdict = None if self.own is None else self.own.verdict
        return verdict == "right" if verdict in ("right", "wrong") else None

    async def at(self, step: int) -> bool | None:
        """Measure a step, once."""
        if step not in self.known:
            found = await self.sampler.measure(self._prefixes[step], self.number, step)
            self.measured[step] = found
            decided = self.settings.decide(found.outcomes)
            # Too few rollouts decide nothing, except that one right rollout is enough at threshold 0.
            enough = found.missing is None or (decided is True and not self.settings.threshold)
            self.known[step] = decided if enough else None
        return self.known[step]


async def label_steps(probes: SolutionProbes, pass_value: float | None) -> StepLabels:
    """Measure the steps of a solution by the procedure of the settings, and label them."""
    settings = probes.settings
    telling = await PROCEDURES[settings.procedure](probes, settings.checks)
    known = probes.known
    error = next((step for step in sorted(known) if known[step] is False), probes.count)
    violations = tuple(step for step in sorted(known) if step > error and known[step])
    checked = any(step > error and known.get(step) is not None for step in telling)
    implied = max((step for step in known if step < error and known[step]), default=-1)
    if settings.procedure != "binary":
        implied = -1
    steps = [_label(probes, step, error, implied) for step in range(probes.count)]
    return StepLabels(_with_relative(steps, pass_value, settings.relative), violations, checked)


def screened_steps(texts: Sequence[str], verdict: ScorerVerdict) -> StepLabels:
    """Take over the verdict of the scorer that screens."""
    assert verdict.first_error is not None
    error = len(texts) if verdict.first_error < 0 else verdict.first_error
    return StepLabels(
        tuple(
            StepLabel(text, "unknown", AFTER_ERROR, source=None)
            if step > error
            else StepLabel(text, "labelled", hard=step < error, source="screen")
            for step, text in enumerate(texts)
        )
    )


def _label(probes: SolutionProbes, step: int, error: int, implied: int) -> StepLabel:
    text, hard = probes.texts[step], probes.known.get(step)
    found = probes.measured.get(step, Measurement())
    own = probes.own if probes.own is not None and step == probes.count - 1 else None
    label = StepLabel(text, "labelled", hard=hard, outcomes=found.outcomes, spent=found.spent)
    if own is not None:
        value = None if hard is None else float(hard)
        label = replace(label, value=value, source=None if hard is None else "answer")
    elif step in probes.measured:
        label = replace(label, value=found.outcomes.value, source="rollouts" if found.outcomes.total else None)
        label = replace(label, stopped_early=found.stopped_early, adaptive=probes.settings.adaptive)
    if step > error:
        return replace(label, state="unknown", hard=None, reason=AFTER_ERROR)
    if hard is not None:
        return label
    if step < implied and step not in probes.measured:
        return replace(label, hard=True, source="implied")
    return replace(label, state="unknown", reason=_why_unknown(probes, step, own, found))


def _why_unknown(probes: SolutionProbes, step: int, own: Judged | None, found: Measurement) -> str:
    if own is not None:
        return "The solution states no answer." if own.answer is None else "The answer cannot be compared."
    if step not in probes.measured:
        return "The step was not reached."
    if found.missing is not None:
        return found.missing
    outcomes = found.outcomes
    return f"{outcomes.unknown} of {outcomes.total} rollouts cannot be judged."


def _with_relative(steps: Sequence[StepLabel], pass_value: float | None, share: float) -> tuple[StepLabel, ...]:
    labelled = []
    before = pass_value
    for step in steps:
        relative = step.hard if step.source == "answer" else None
        if step.source == "rollouts" and step.soft is not None and before:
            relative = step.soft / before >= share
        labelled.append(replace(step, relative=relative))
        before = step.soft
    return tuple(labelled)
