"""Applies the verdicts of people to labels, and writes the result as training data.

Invariant: a step that a person judged has that label and no other. After the first wrong step, only steps that a person
judged have a label.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from surefoot.core.intervals import Interval
from surefoot.core.labels import WILSON, LabelledSolution, StepLabel
from surefoot.data.files import json_line, write_file
from surefoot.data.output import check_place
from surefoot.display.tables import percent
from surefoot.labelling.review.corrections import NO_OPINIONS, Corrections, Opinion, Opinions
from surefoot.labelling.review.labels import SolutionKey, key_of, read_labels
from surefoot.labelling.steps import AFTER_ERROR

UNSURE = "A person is unsure about the step."
NOT_AFTER_ERROR = "The step comes after an error that a person removed, and nobody has judged it."


@dataclass(frozen=True)
class ReviewSummary:
    """Counts what people said about labels."""

    solutions: int
    """Solutions with steps."""
    reviewed: int
    """Those of which every step up to the first wrong one has a verdict."""
    started: int
    """Those of which only some of these steps have one."""
    confirmed: int
    """Labels that a person repeated."""
    changed: int
    """Labels that a person reversed."""
    added: int
    """Steps without a label that a person found right or wrong."""
    unsure: int
    """Steps about which a person is unsure. They have no label."""
    not_applied: int
    """Verdicts on solutions whose text has changed or that are gone. They are kept in the file, but not used."""

    @property
    def agreement(self) -> float | None:
        """The share of confirmed labels among those that were confirmed or changed."""
        judged = self.confirmed + self.changed
        return self.confirmed / judged if judged else None

    @property
    def interval(self) -> Interval | None:
        """Wilson's 95% interval of the agreement."""
        return WILSON.wilson(self.confirmed, self.confirmed + self.changed)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-compatible data."""
        interval = None if self.interval is None else list(self.interval)
        return {**asdict(self), "agreement": self.agreement, "interval": interval}

    def __str__(self) -> str:
        """Show the counts in a few lines."""
        lines = [
            f"{self.reviewed:,} of {self.solutions:,} solutions are reviewed, {self.started:,} more in part",
            f"labels: {self.confirmed:,} confirmed, {self.changed:,} changed, {self.added:,} added, "
            f"{self.unsure:,} unsure",
        ]
        if self.agreement is not None:
            lines.append(f"people agree with {percent(self.agreement, self.interval)}% of the labels that they judged")
        if self.not_applied:
            lines.append(f"{self.not_applied:,} verdicts do not apply, because the solution has changed")
        return "\n".join(lines)


@dataclass(frozen=True)
class Corrected:
    """Labels with the verdicts of people."""

    solutions: tuple[LabelledSolution, ...]
    """All solutions of the folder. Steps that a person judged have the source `person`."""
    summary: ReviewSummary

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield one row per solution with a label, as `surefoot train` and `surefoot convert` read them.

        Of solutions that the judge does not confirm, only the labels of people are used.
        """
        for solution in self.solutions:
            targets = [
                float(step.hard) if step.hard is not None and (solution.kept or step.source == "person") else None
                for step in solution.steps
            ]
            if any(target is not None for target in targets):
                yield {
                    **({} if solution.id is None else {"id": solution.id}),
                    "question": solution.question,
                    "steps": [step.text.strip() for step in solution.steps],
                    "targets": targets,
                    "answer": solution.gold,
                }

    def lines(self) -> list[bytes]:
        """Return the rows as lines of JSON."""
        return [json_line(row) for row in self.rows()]

    def write(self, path: str | Path) -> int:
        """Write the rows as a JSONL file, as a whole, and return how many there are."""
        place = Path(path).expanduser().absolute()
        check_place("export", place)
        lines = self.lines()
        write_file(place.parent, place.name, lambda file: file.write_bytes(b"".join(lines)))
        return len(lines)


def corrected(folder: str | Path) -> Corrected:
    """Return the labels in the folder of `surefoot label`, with the corrections of people.

    found = corrected("labels")
    print(found.summary.agreement)
    found.write("train.jsonl")
    """
    place = Path(folder).expanduser()
    return apply_all(read_labels(place), Corrections(place).current())


def apply_all(solutions: Sequence[LabelledSolution], current: Mapping[SolutionKey, Opinions]) -> Corrected:
    """Apply opinions to all solutions."""
    keys = [key_of(solution) for solution in solutions]
    found = tuple(apply(solution, current.get(key, NO_OPINIONS)) for solution, key in zip(solutions, keys, strict=True))
    with_steps = {key: solution for key, solution in zip(keys, solutions, strict=True) if solution.steps}
    return Corrected(found, summarize(with_steps, current))


def apply(solution: LabelledSolution, opinions: Opinions) -> LabelledSolution:
    """Return the solution with the labels of people, who may disagree with those after the first error, too."""
    if not opinions:
        return solution
    steps: list[StepLabel] = []
    after_error = False
    for at, step in enumerate(solution.steps):
        if at in opinions:
            step = _judged(step, opinions[at])
        elif after_error and step.state == "labelled":
            step = replace(step, state="unknown", reason=AFTER_ERROR, hard=None, relative=None)
        elif not after_error and step.reason == AFTER_ERROR:
            step = replace(step, reason=NOT_AFTER_ERROR)
        after_error = after_error or step.hard is False
        steps.append(step)
    return replace(solution, steps=tuple(steps))


def summarize(
    solutions: Mapping[SolutionKey, LabelledSolution], current: Mapping[SolutionKey, Opinions]
) -> ReviewSummary:
    """Count what people said about solutions with steps. The time depends on the number of opinions only."""
    counts = Counter[str]()
    for key, opinions in current.items():
        labels = solutions[key].steps if key in solutions else ()
        counts[progress(len(labels), opinions)] += 1
        for step, opinion in opinions.items():
            counts[_kind(labels[step].hard, opinion) if step < len(labels) else "not_applied"] += 1
    names = ("reviewed", "started", "confirmed", "changed", "added", "unsure", "not_applied")
    return ReviewSummary(len(solutions), *(counts[name] for name in names))


def progress(count: int, opinions: Opinions) -> str:
    """Say how far the review of a solution with `count` steps is: open, started or reviewed."""
    if not any(step < count for step in opinions):
        return "open"
    needed = next((step + 1 for step in range(count) if opinions.get(step) == "wrong"), count)
    return "reviewed" if all(step in opinions for step in range(needed)) else "started"


def _kind(label: bool | None, opinion: Opinion) -> str:
    if opinion == "unsure":
        return "unsure"
    if label is None:
        return "added"
    return "confirmed" if label == (opinion == "right") else "changed"


def _judged(step: StepLabel, opinion: Opinion) -> StepLabel:
    """The counts of rollouts stay. The value does not: it would be a soft label that contradicts the person."""
    bare = replace(step, relative=None, value=None, stopped_early=False, source="person")
    if opinion == "unsure":
        return replace(bare, state="unknown", reason=UNSURE, hard=None)
    return replace(bare, state="labelled", reason=None, hard=opinion == "right")
