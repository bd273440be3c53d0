"""ProcessBench: does a PRM find the first wrong step?

The rule: a solution's verdict is the first step whose score is not above the threshold, or -1. Accuracy on erroneous
solutions (the very step must be found), accuracy on correct ones (none may be found), F1 as the harmonic mean of both;
the average over splits is plain. A solution without a verdict, because a step that decides it has no score, is counted
apart and guessed nowhere. What is not defined is None: F1 needs solutions of both kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from surefoot.core.threshold_sweep import Case, Stretch, best_threshold, harmonic_mean, sweep
from surefoot.errors import InputError
from surefoot.evaluate.header import envelope
from surefoot.evaluate.intervals import Bootstrap, Interval, Numbers, ratio
from surefoot.evaluate.published import PublishedProcessBench, published_processbench
from surefoot.evaluate.reliability import Reliability, known_steps, reliability
from surefoot.evaluate.rows import PROCESSBENCH_SPLITS, ProcessBenchRow, Rows, as_rows, processbench_rows, usual_split
from surefoot.evaluate.scoring import calibration_of, judged, name_of, scale_of, score_labelled, threshold_of

if TYPE_CHECKING:
    from surefoot.core.protocols import StepScorer
    from surefoot.core.result import Scale

Outcome = Literal["right", "early", "late", "missed", "false_alarm"]
"""`early`, `late`: a step before or after the first wrong one was taken for it. `missed`: none was."""

POSITIONS = (("1", 0, 0), ("2", 1, 1), ("3", 2, 2), ("4", 3, 3), ("5-8", 4, 7), ("9+", 8, None))


@dataclass(frozen=True)
class Judgement:
    """One solution: its scores, and the verdict."""

    row: ProcessBenchRow
    scores: tuple[float | None, ...]
    threshold: float
    reason: str | None = None
    """Why a step has no score."""

    @property
    def predicted(self) -> int | None:
        """The index of the first step taken for wrong, -1 for none; None when an unscored step hides the answer."""
        steps = judged(self.row.steps, self.scores)
        for at, score in steps:
            if score is None:
                return None
            if score <= self.threshold:
                return at
        return -1 if steps else None

    @property
    def outcome(self) -> Outcome | None:
        """How the verdict compares with the label; None without a verdict."""
        predicted, label = self.predicted, self.row.label
        if predicted is None:
            return None
        if predicted == label:
            return "right"
        if label == -1:
            return "false_alarm"
        if predicted == -1:
            return "missed"
        return "early" if predicted < label else "late"


@dataclass(frozen=True)
class Share:
    """So many of so many, with the confidence interval of their quotient."""

    hits: int
    total: int
    interval: Interval | None = None

    @property
    def value(self) -> float | None:
        """The quotient; None when there is nothing to count."""
        return self.hits / self.total if self.total else None

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {"value": self.value, "hits": self.hits, "total": self.total, "interval": _pair(self.interval)}


@dataclass(frozen=True)
class GroupResult:
    """A split, or the solutions of one generator."""

    name: str
    error: Share
    """Erroneous solutions whose first wrong step was found."""
    correct: Share
    """Correct solutions in which no wrong step was found."""
    f1: float | None
    f1_interval: Interval | None
    unscored: int
    """Solutions without a verdict; they are in neither share."""
    outcomes: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "name": self.name,
            "error": self.error.to_dict(),
            "correct": self.correct.to_dict(),
            "f1": self.f1,
            "f1_interval": _pair(self.f1_interval),
            "unscored": self.unscored,
            "outcomes": self.outcomes,
        }


@dataclass(frozen=True)
class ProcessBenchResult:
    """Everything that was measured. Shares are fractions of 1."""

    model: str
    threshold: float
    tuned_on: str | None
    """The split on which the threshold was chosen; None when it was given."""
    splits: tuple[GroupResult, ...]
    f1: float | None
    """The plain average of the splits' F1; None unless each has one."""
    f1_interval: Interval | None
    generators: tuple[GroupResult, ...]
    positions: dict[str, Share]
    """Accuracy on erroneous solutions by where the first wrong step stands, counted from 1."""
    sneaky_located: Share
    """Solutions with a right answer and a wrong process: the first wrong step was found."""
    sneaky_detected: Share
    """The same solutions: some step was taken for wrong."""
    judgements: tuple[Judgement, ...]
    published: PublishedProcessBench | None
    notes: tuple[str, ...] = ()
    reliability: Reliability | None = None
    """Over steps up to the first error; None without any, or when the scores are no probabilities."""
    calibration: str | None = None
    """What the scores were calibrated with."""
    scale: Scale = "probability"
    """What the scores are; ready-made ones are taken for probabilities."""

    @property
    def unscored(self) -> int:
        """Solutions without a verdict."""
        return sum(split.unscored for split in self.splits)

    def split(self, name: str) -> GroupResult:
        """The result of one split."""
        for split in self.splits:
            if split.name == name:
                return split
        raise InputError(f"There is no split {name!r}. There are: {', '.join(split.name for split in self.splits)}.")

    def sweep(self, split: str | None = None) -> list[Stretch]:
        """The accuracies at every threshold, over one split or over all solutions."""
        return sweep(_cases(item for item in self.judgements if split in (None, item.row.split)))

    def to_dict(self) -> dict[str, Any]:
        """As plain data, without the single solutions."""
        common = envelope(
            "processbench",
            self.model,
            scale=self.scale,
            calibration=self.calibration,
            threshold=self.threshold,
            solutions=len(self.judgements),
            unscored=self.unscored,
            published=self.published,
            reliability=self.reliability,
            notes=self.notes,
        )
        return common | {
            "tuned_on": self.tuned_on,
            "f1": self.f1,
            "f1_interval": _pair(self.f1_interval),
            "splits": [split.to_dict() for split in self.splits],
            "generators": [group.to_dict() for group in self.generators],
            "positions": {name: share.to_dict() for name, share in self.positions.items()},
            "right_answer_wrong_process": {
                "located": self.sneaky_located.to_dict(),
                "detected": self.sneaky_detected.to_dict(),
            },
        }

    def __str__(self) -> str:
        from surefoot.evaluate.tables import processbench_tables

        return processbench_tables(self)


def processbench(
    scorer: StepScorer | None,
    rows: Rows[ProcessBenchRow],
    *,
    threshold: float | None = None,
    tune_on: str | None = None,
    seed: int = 0,
    draws: int = 1000,
    progress: bool = False,
    name: str | None = None,
    scores: str = "scores",
) -> ProcessBenchResult:
    """Scores every solution and measures how well the first wrong step is found.

    `threshold` is 0.5 unless said otherwise; 0 for models whose scores are no probabilities.

    `rows` come from `read_processbench`, or are mappings with the same fields. `tune_on` names a split: the threshold
    that gives the highest F1 there is used for all. `draws` bootstrap draws make the intervals. Without a scorer the
    field `scores` of the rows is used. `name` is what the model is called, where its folder says otherwise.
    """
    bootstrap = Bootstrap(draws, seed)
    threshold = threshold_of(scorer, threshold)
    read = partial(processbench_rows, scores=scores if scorer is None else None)
    asked = as_rows(rows, ProcessBenchRow, read)
    if tune_on is not None and tune_on not in {row.split for row in asked}:
        raise InputError(f"The threshold cannot be tuned on {tune_on!r}: no row belongs to that split.")
    found = score_labelled(scorer, asked, progress=progress)
    items = [Judgement(row, each.scores, threshold, each.reason) for row, each in zip(asked, found, strict=True)]
    notes = []
    if tune_on is not None:
        tuned = best_threshold(_cases(item for item in items if item.row.split == tune_on))
        if tuned is None:
            notes.append(f"No threshold gives an F1 above 0 on {tune_on}; {threshold} was used.")
            tune_on = None
        else:
            items, threshold = [replace(item, threshold=tuned) for item in items], tuned
    names = sorted({row.split for row in asked}, key=_usual_order)
    splits, drawn = [], []
    for split in names:
        group, f1_draws = _measure(split, [item for item in items if item.row.split == split], bootstrap)
        splits.append(group)
        drawn.append(f1_draws)
    complete = [split.f1 for split in splits if split.f1 is not None]
    average = sum(complete) / len(complete) if len(complete) == len(splits) else None
    sneaky = [item for item in items if item.row.answer_correct and item.row.label != -1]
    return ProcessBenchResult(
        model=name_of(scorer, name),
        threshold=threshold,
        tuned_on=tune_on,
        splits=tuple(splits),
        f1=average,
        f1_interval=None if average is None else bootstrap.interval(np.mean(drawn, axis=0)),
        generators=tuple(_by_generator(items, bootstrap)),
        positions=_by_position(items, bootstrap),
        sneaky_located=_share(sneaky, lambda item: item.outcome == "right", bootstrap),
        sneaky_detected=_share(sneaky, lambda item: item.predicted != -1, bootstrap),
        judgements=tuple(items),
        published=published_processbench(name_of(scorer, name)),
        notes=(*notes, *_unscored_notes(items)),
        reliability=reliability(
            [known_steps(item.row.steps, item.scores, item.row.label) for item in items], bootstrap=bootstrap
        )
        if scale_of(scorer) == "probability"
        else None,
        calibration=calibration_of(scorer),
        scale=scale_of(scorer),
    )


def _usual_order(name: str) -> tuple[int, str]:
    """The four splits in the order of the paper, others after them by name."""
    split = usual_split(name)
    return (len(PROCESSBENCH_SPLITS) if split is None else PROCESSBENCH_SPLITS.index(split), name)


def _cases(items: Iterable[Judgement]) -> list[Case]:
    cases = []
    for item in items:
        steps = judged(item.row.steps, item.scores)
        known = tuple((at, score) for at, score in steps if score is not None)
        if known and len(known) == len(steps):
            cases.append(Case(known, item.row.label))
    return cases


def _measure(name: str, items: Sequence[Judgement], bootstrap: Bootstrap) -> tuple[GroupResult, Numbers]:
    """A group's result, and its F1 in every bootstrap draw."""
    counted: dict[str, int] = dict.fromkeys(("right", "early", "late", "missed", "false_alarm"), 0)
    kinds = [0, 0, 0, 0]  # erroneous: found, not found; correct: left alone, blamed
    for item in items:
        if item.outcome is not None:
            counted[item.outcome] += 1
            kinds[2 * (item.row.label == -1) + (item.outcome != "right")] += 1
    drawn = bootstrap.tallies(name, kinds)
    error = ratio(drawn[:, 0], drawn[:, 0] + drawn[:, 1])
    correct = ratio(drawn[:, 2], drawn[:, 2] + drawn[:, 3])
    # Where both are 0 so is their harmonic mean; where one is not defined, it is not defined either.
    f1_draws = np.where(error + correct == 0, 0.0, ratio(2 * error * correct, error + correct))
    first = _share_of(kinds[0], kinds[0] + kinds[1], bootstrap)
    second = _share_of(kinds[2], kinds[2] + kinds[3], bootstrap)
    both = first.value is not None and second.value is not None
    group = GroupResult(
        name=name,
        error=first,
        correct=second,
        f1=harmonic_mean(first.value, second.value) if first.value is not None and second.value is not None else None,
        f1_interval=bootstrap.interval(f1_draws) if both else None,
        unscored=sum(item.outcome is None for item in items),
        outcomes=counted,
    )
    return group, f1_draws


def _by_generator(items: Sequence[Judgement], bootstrap: Bootstrap) -> Iterable[GroupResult]:
    for name in sorted({item.row.generator for item in items if item.row.generator is not None}):
        yield _measure(name, [item for item in items if item.row.generator == name], bootstrap)[0]


def _by_position(items: Sequence[Judgement], bootstrap: Bootstrap) -> dict[str, Share]:
    found = {}
    for name, first, last in POSITIONS:
        there = [item for item in items if first <= item.row.label and (last is None or item.row.label <= last)]
        if there:
            found[name] = _share(there, lambda item: item.outcome == "right", bootstrap)
    return found


def _share(items: Sequence[Judgement], hit: Callable[[Judgement], bool], bootstrap: Bootstrap) -> Share:
    known = [item for item in items if item.outcome is not None]
    return _share_of(sum(map(hit, known)), len(known), bootstrap)


def _share_of(hits: int, total: int, bootstrap: Bootstrap) -> Share:
    return Share(hits, total, bootstrap.share(hits, total))


def _unscored_notes(items: Sequence[Judgement]) -> Iterable[str]:
    missing = [item for item in items if item.outcome is None]
    if missing:
        first = missing[0]
        yield (
            f"{len(missing)} of {len(items)} solutions have no verdict and are in no accuracy. "
            f"The first is {first.row.id} of {first.row.split}: {first.reason}"
        )


def _pair(interval: Interval | None) -> list[float] | None:
    return None if interval is None else list(interval)
