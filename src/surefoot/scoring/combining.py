"""Combines the results of the members of an ensemble into one.

Invariant: a combined score uses the scores of all members, unless the caller chose to skip missing ones; the result
then has a warning. Members that found different steps give no score. The order of members changes no number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from surefoot.core.members import MemberScore
from surefoot.core.result import NO_STEPS, Scale, SolutionScore, StepScore

Combine = Literal["mean", "min", "calibrated"]
COMBINES: tuple[Combine, ...] = get_args(Combine)
MissingMember = Literal["unscored", "skip"]
MISSING_MEMBER: tuple[MissingMember, ...] = get_args(MissingMember)


@dataclass(frozen=True)
class Member:
    """What is known about a member besides its results."""

    label: str
    scale: Scale
    calibration: str | None


@dataclass(frozen=True)
class Rule:
    """How results are combined: the function, what happens to missing scores, and what the result is called."""

    name: str
    members: tuple[Member, ...]
    combine: Combine
    missing: MissingMember
    calibration: str | None

    def unscored(self, reason: str) -> SolutionScore:
        """The result of an item that could not be read."""
        return SolutionScore((), self.name, reason=reason, calibration=self.calibration)

    def combined(self, results: Sequence[SolutionScore], seconds: float = 0.0) -> SolutionScore:
        """Combines the results of all members for one item, in the order of `members`."""
        reference = next((result for result in results if result.steps), results[0])
        gaps = [self._gap(member, result, reference) for member, result in zip(self.members, results, strict=True)]
        # If members found different steps, nobody knows which ones the solution has.
        usable = not any(gap is not None and gap.other_steps for gap in gaps)
        steps = tuple(self._step(at, results, gaps, usable=usable) for at in range(len(reference.steps)))
        return SolutionScore(
            steps,
            self.name,
            answer=reference.answer,
            reason=self._reason(steps, results),
            warnings=(*self._shared_warnings(results), *self._skipped(steps)),
            outside=reference.outside,
            skipped=reference.skipped,
            empty_steps=reference.empty_steps,
            split=reference.split,
            tokens=sum(result.tokens for result in results),
            generated_tokens=sum(result.generated_tokens for result in results),
            calls=sum(result.calls for result in results),
            seconds=seconds,
            calibration=self.calibration,
            recommended=reference.recommended if len({result.recommended for result in results}) == 1 else None,
            precision=reference.precision if len({result.precision for result in results}) == 1 else None,
        )

    def _gap(self, member: Member, result: SolutionScore, reference: SolutionScore) -> _Gap | None:
        """Returns why no step of a member's result can be used, or None."""
        if not result.steps and result.reason != NO_STEPS:
            return _Gap(result.reason or "It gave no steps.", other_steps=False)
        if _spans(result) != _spans(reference):
            count, expected = len(result.steps), len(reference.steps)
            found = f"{count} instead of {expected}" if count != expected else "with other texts or spans"
            return _Gap(f"It found other steps than another member: {found}.", other_steps=True)
        scored = any(score is not None for score in result.step_scores)
        if scored and (result.scale, result.calibration) != (member.scale, member.calibration):
            return _Gap(
                f"Its scores are on the scale {result.scale!r} with the calibration {result.calibration}. When the "
                f"ensemble was loaded, it was {member.scale!r} with {member.calibration}.",
                other_steps=False,
            )
        return None

    def _step(
        self, at: int, results: Sequence[SolutionScore], gaps: Sequence[_Gap | None], *, usable: bool
    ) -> StepScore:
        members = []
        for member, result, gap in zip(self.members, results, gaps, strict=True):
            if gap is not None:
                members.append(MemberScore(member.label, None, gap.reason))
            elif (score := result.steps[at].score) is None:
                members.append(MemberScore(member.label, None, result.reason or result.steps[at].status))
            elif not math.isfinite(score):
                members.append(MemberScore(member.label, None, f"Its score is {score}, which is not a finite number."))
            else:
                members.append(MemberScore(member.label, score))
        known = [member.score for member in members if member.score is not None]
        enough = len(known) == len(members) or (self.missing == "skip" and bool(known))
        score = self._number(known) if usable and enough else None
        step = next(result for result in results if result.steps).steps[at]
        return StepScore(
            step.text,
            step.start,
            step.end,
            score,
            "member_missing" if score is None else "scored",
            step.index,
            step.kind,
            spread=None if score is None else _deviation(known),
            members=tuple(members),
        )

    def _number(self, scores: Sequence[float]) -> float:
        return min(scores) if self.combine == "min" else math.fsum(scores) / len(scores)

    def _reason(self, steps: Sequence[StepScore], results: Sequence[SolutionScore]) -> str | None:
        if not steps:
            reasons = {result.reason or NO_STEPS for result in results}
            if len(reasons) == 1:
                return reasons.pop()
            pairs = zip(self.members, results, strict=True)
            return " ".join(f"{member.label}: {result.reason}" for member, result in pairs)
        missing = _missing([step for step in steps if step.score is None])
        return " ".join(f"{label}: {reason}" for label, reason in missing) or None

    def _shared_warnings(self, results: Sequence[SolutionScore]) -> list[str]:
        """Warnings of all members once, and those of some with the names of these members."""
        found = dict.fromkeys(warning for result in results for warning in result.warnings)
        lines = []
        for warning in found:
            pairs = zip(self.members, results, strict=True)
            labels = [member.label for member, result in pairs if warning in result.warnings]
            lines.append(warning if len(labels) == len(results) else f"{', '.join(labels)}: {warning}")
        return lines

    def _skipped(self, steps: Sequence[StepScore]) -> list[str]:
        scored = [step for step in steps if step.score is not None]
        lines = []
        for label, reason in _missing(scored):
            count = sum(MemberScore(label, None, reason) in step.members for step in scored)
            lines.append(f"{count} of {len(steps)} steps are scored without {label}: {reason}")
        return lines


@dataclass(frozen=True)
class _Gap:
    """Why a member's result cannot be used."""

    reason: str
    other_steps: bool


def _missing(steps: Sequence[StepScore]) -> list[tuple[str, str | None]]:
    """The members without a score for one of these steps and their reasons, each once."""
    found = ((member.model, member.reason) for step in steps for member in step.members if member.score is None)
    return list(dict.fromkeys(found))


def _spans(result: SolutionScore) -> list[tuple[str, int, int]]:
    return [(step.text, step.start, step.end) for step in result.steps]


def _deviation(scores: Sequence[float]) -> float | None:
    """The sample standard deviation, as over the heads of a model; None for fewer than two scores."""
    if len(scores) < 2:
        return None
    mean = math.fsum(scores) / len(scores)
    return math.sqrt(math.fsum((score - mean) ** 2 for score in scores) / (len(scores) - 1))
