"""Counts what a labelling job found: labels, violations of "once 0, always 0", agreement, and what it cost."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from surefoot.core.intervals import Interval
from surefoot.core.labels import FREE, WILSON, LabelCost, LabelledSolution
from surefoot.display.tables import percent

SHARE = re.compile(r"^\d+ of \d+ ")


@dataclass(frozen=True)
class LabelSummary:
    """Counts over all solutions of a job."""

    questions: int
    solutions: int
    states: dict[str, int]
    """Solutions by state."""
    errors_found: int
    """Labelled solutions with a first error."""
    errors_excluded: int
    """Labelled solutions of which all steps are right."""
    steps: int
    labels: int
    """Steps with a hard label."""
    sources: dict[str, int]
    """Hard labels by source."""
    unknown: dict[str, int]
    """Steps without a label, by reason."""
    rollouts: dict[str, int]
    """Verdicts on rollouts from steps."""
    checked: int
    """Solutions in which a step after a wrong one was measured, so that it could be right."""
    violated: int
    """Those of them in which such a step is right."""
    violations: int
    """Steps that are right after a wrong one."""
    judged: int
    """Labelled solutions on which labels and judge both decide."""
    agreed: int
    """Those of them with the same first error."""
    kept: int
    screened: int
    """Solutions whose labels were taken from the screening scorer, without rollouts."""
    spent: LabelCost

    @property
    def kept_share(self) -> float | None:
        """The share of labelled solutions that are kept."""
        return self.kept / self.states["labelled"] if self.states.get("labelled") else None

    @property
    def agreement(self) -> Interval | None:
        """Wilson's 95% interval of the share on which labels and judge agree."""
        return WILSON.wilson(self.agreed, self.judged)

    @property
    def tokens_per_label(self) -> float | None:
        """Generated tokens per hard label, with those of whole answers."""
        return self.spent.generated_tokens / self.labels if self.labels else None

    def __str__(self) -> str:
        """Show the counts in a few lines."""
        spent = self.spent
        lines = [
            f"{self.questions:,} questions, {self.solutions:,} solutions ({_counts(self.states)})",
            f"{self.labels:,} of {self.steps:,} steps have a label ({_counts(self.sources)})",
            f"{self.errors_found:,} solutions with a first error, {self.errors_excluded:,} without errors",
            f"rollouts: {_counts(self.rollouts)}",
            f"right after wrong: {self.violations:,} steps in {self.violated:,} of {self.checked:,} checked solutions",
        ]
        if self.unknown:
            lines.insert(2, f"no label: {_reasons(self.unknown)}")
        labelled = self.states.get("labelled", 0)
        if self.judged or self.kept < labelled:
            agreed = percent(self.agreed / self.judged if self.judged else None, self.agreement)
            kept = f"{self.kept:,} of {labelled:,} ({percent(self.kept_share)}%) are kept"
            lines.append(f"the judge agrees on {agreed}% of {self.judged:,} solutions; {kept}")
        if self.screened:
            lines.append(f"{self.screened:,} solutions were labelled by the screening scorer alone")
        per_label = "" if self.tokens_per_label is None else f", {self.tokens_per_label:,.0f} per label"
        lines.append(
            f"{spent.rollouts:,} rollouts in {spent.calls:,} calls: {spent.generated_tokens:,} generated tokens"
            f"{per_label}; {spent.prompt_tokens:,} prompt tokens"
        )
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-compatible data."""
        return {**asdict(self), "kept_share": self.kept_share, "tokens_per_label": self.tokens_per_label}


def summarize(solutions: Sequence[LabelledSolution]) -> LabelSummary:
    """Count what was found."""
    labelled = [each for each in solutions if each.state == "labelled"]
    steps = [step for each in labelled for step in each.steps]
    firsts = {each.index: each.question_spent for each in solutions}
    rollouts = Counter[str]()
    for step in steps:
        rollouts.update(vars(step.outcomes))
    return LabelSummary(
        questions=len(firsts),
        solutions=len(solutions),
        states=dict(sorted(Counter(str(each.state) for each in solutions).items())),
        errors_found=sum(each.first_error is not None and each.first_error >= 0 for each in labelled),
        errors_excluded=sum(each.first_error == -1 for each in labelled),
        steps=len(steps),
        labels=sum(step.hard is not None for step in steps),
        sources=dict(sorted(Counter(str(step.source) for step in steps if step.hard is not None).items())),
        unknown=dict(sorted(Counter(str(step.reason) for step in steps if step.state == "unknown").items())),
        rollouts=dict(rollouts),
        checked=sum(each.checked for each in labelled),
        violated=sum(bool(each.violations) for each in labelled),
        violations=sum(len(each.violations) for each in labelled),
        judged=sum(each.agrees is not None for each in labelled),
        agreed=sum(each.agrees is True for each in labelled),
        kept=sum(each.kept for each in labelled),
        screened=sum(each.screen is not None and each.screen.certain is True for each in labelled),
        spent=sum(firsts.values(), FREE),
    )


def _reasons(unknown: dict[str, int]) -> str:
    """The reasons, the most frequent one first. "5 of 8 rollouts ..." and "6 of 8 rollouts ..." are one."""
    kinds = Counter[str]()
    for reason, count in unknown.items():
        kinds[SHARE.sub("too many ", reason).rstrip(".")] += count
    return "; ".join(f"{kind[:1].lower()}{kind[1:]} ({count:,})" for kind, count in kinds.most_common())


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in counts.items() if count) or "none"
