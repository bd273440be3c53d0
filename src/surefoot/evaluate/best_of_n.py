"""Best of N: how often is the solution right that a PRM picks?

The rule: N solutions of a problem are drawn at random from all that there are, without replacement, and the expected
accuracy over such draws is given: exact for picking the best and for the oracle, for votes exact where all draws can be
listed and sampled otherwise. Ties are broken by an equal chance, in expectation. A solution that was not scored, or
whose answer was not decided, is left out and counted; one that states no answer is wrong and has no vote.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from surefoot.core import aggregation
from surefoot.errors import InputError, OptionError
from surefoot.evaluate import selection
from surefoot.evaluate.answer_groups import AnswerBook, Grouping
from surefoot.evaluate.header import envelope
from surefoot.evaluate.intervals import Bootstrap, Interval, Numbers
from surefoot.evaluate.reliability import are_probabilities
from surefoot.evaluate.rows import Rollout, Rows, as_rows, rollouts
from surefoot.evaluate.scoring import Scored, calibration_of, judged, name_of, scale_of, score_rows
from surefoot.evaluate.selection import NO_ANSWER, Pool

if TYPE_CHECKING:
    from surefoot.core.protocols import StepScorer
    from surefoot.core.result import Scale

RULES: Mapping[str, Callable[[aggregation.Scores], float | None]] = {
    "min": aggregation.minimum,
    "product": aggregation.product,
    "mean": aggregation.mean,
    "final": aggregation.final,
    "geometric_mean": aggregation.geometric_mean,
}

FOR_PROBABILITIES = ("product", "geometric_mean")
"""Rules that mean nothing for other scores. Votes weighted by scores below 0 mean nothing either."""

Verdict = Literal["answer", "label"]
"""What makes a solution right: its answer means the reference, or the file's `is_correct` says so."""


@dataclass(frozen=True)
class Estimate:
    """An accuracy, with its confidence interval over problems."""

    value: float
    interval: Interval | None


Curve = dict[int, Estimate]
"""Accuracy by N."""


@dataclass(frozen=True)
class Candidate:
    """One solution of a problem: its scores, and whether it is right."""

    row: Rollout
    scores: tuple[float | None, ...]
    values: dict[str, float] | None
    """One number an aggregation rule; None when a step has no score."""
    correct: bool | None
    """None where it was not decided."""
    reason: str | None = None
    """Why a step has no score."""


@dataclass(frozen=True)
class BestOfNResult:
    """Everything that was measured. Accuracies are fractions of 1."""

    model: str
    ns: tuple[int, ...]
    problems: int
    solutions: int
    """Solutions that took part."""
    best: dict[str, Curve]
    """By aggregation rule: the solution with the highest score is taken."""
    weighted: dict[str, Curve]
    """By aggregation rule: answers are voted for with the scores as weights."""
    majority: Curve
    oracle: Curve
    """Whether any of the N is right."""
    unscored: int
    """Solutions left out because a step has no score."""
    undecided: int
    """Solutions left out because their answer could not be compared with the reference."""
    notes: tuple[str, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    """Every solution, those left out among them."""
    calibration: str | None = None
    """What the scores were calibrated with."""
    scale: Scale = "probability"
    """What the scores are; ready-made ones are taken for probabilities."""

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        common = envelope(
            "best-of-n",
            self.model,
            scale=self.scale,
            calibration=self.calibration,
            solutions=self.solutions,
            unscored=self.unscored,
            notes=self.notes,
        )
        return common | {
            "n": list(self.ns),
            "problems": self.problems,
            "best": {name: _plain(curve) for name, curve in self.best.items()},
            "weighted_vote": {name: _plain(curve) for name, curve in self.weighted.items()},
            "majority_vote": _plain(self.majority),
            "oracle": _plain(self.oracle),
            "undecided": self.undecided,
        }

    def __str__(self) -> str:
        from surefoot.evaluate.tables import best_of_n_tables

        return best_of_n_tables(self)


def best_of_n(
    scorer: StepScorer | None,
    rows: Rows[Rollout],
    *,
    ns: Sequence[int] | None = None,
    correct_by: Verdict = "answer",
    timeout: float = 3.0,
    seed: int = 0,
    draws: int = 1000,
    vote_draws: int = 200,
    progress: bool = False,
    name: str | None = None,
    scores: str = "scores",
) -> BestOfNResult:
    """Scores rollouts and measures the accuracy of every way to choose among N of them.

    `rows` come from `read_rollouts`, or are mappings with the same fields. `ns` are 1, 2, 4, ... up to the number of
    solutions that most problems have. `correct_by="label"` takes the file's `is_correct` for right or wrong.
    `vote_draws` samples estimate a vote where listing all takes more. The other options are those of `processbench`.
    """
    bootstrap = Bootstrap(draws, seed)
    if vote_draws < 1:
        raise OptionError(f"vote_draws={vote_draws} estimates nothing. Give a number above 0.")
    if correct_by not in ("answer", "label"):
        raise OptionError(f"correct_by={correct_by!r} is not offered. Choose 'answer' or 'label'.")
    asked = as_rows(rows, Rollout, partial(rollouts, scores=scores if scorer is None else None))
    groups: dict[str, list[Rollout]] = {}
    for row in asked:
        groups.setdefault(row.group, []).append(row)
    # Of ready-made scores nobody says what they are; one outside 0..1 settles it.
    ready = (score for row in asked for score in row.scores or ())
    probabilities = are_probabilities(ready) if scorer is None else scorer.scale == "probability"
    rules = [rule for rule in RULES if probabilities or rule not in FOR_PROBABILITIES]
    together = [row for group in groups.values() for row in group]
    sizes = _sizes(ns, groups)
    # Before the scores: what is refused here is then refused before hours of scoring.
    book = AnswerBook(timeout)
    judged_groups = [(group, _verdicts(group, correct_by, book)) for group in groups.values()]
    found = iter(
        score_rows(
            scorer,
            [(row.problem, row.solution) for row in together],
            [row.scores for row in together],
            progress=progress,
        )
    )
    pools, candidates, unscored, undecided = [], [], 0, 0
    for group, verdicts in judged_groups:
        scored = [next(found) for _ in group]
        values = [_values(row, each, rules) for row, each in zip(group, scored, strict=True)]
        pool = _pool(values, verdicts, rules)
        candidates += [
            Candidate(row, each.scores, numbers, correct, each.reason)
            for row, each, numbers, correct in zip(group, scored, values, verdicts.correct, strict=True)
        ]
        unscored += sum(each is None for each in values)
        undecided += sum(each is not None for each in values) - pool.size
        if pool.size:
            pools.append(pool)
    if not pools:
        raise InputError("No problem has a solution that was scored and judged, so there is nothing to choose from.")
    curves = _curves(_by_problem(pools, sizes, vote_draws, seed), sizes, bootstrap)
    return BestOfNResult(
        model=name_of(scorer, name),
        ns=sizes,
        problems=len(pools),
        solutions=sum(pool.size for pool in pools),
        best={rule: curves["best", rule] for rule in rules},
        weighted={rule: curves["weighted", rule] for rule in rules if probabilities},
        majority=curves["majority", ""],
        oracle=curves["oracle", ""],
        unscored=unscored,
        undecided=undecided,
        notes=(
            *_notes(groups, pools, sizes, unscored, undecided),
            *([] if probabilities else ["The scores are no probabilities: no products, and no weighted votes."]),
        ),
        candidates=tuple(candidates),
        calibration=calibration_of(scorer),
        scale=scale_of(scorer),
    )


def check_sizes(ns: Sequence[int] | None) -> None:
    """Refuses numbers of solutions that cannot be drawn."""
    if ns is not None and (not ns or min(ns) < 1):
        raise OptionError(f"ns={list(ns)} cannot be chosen from. Give numbers above 0.")


def _sizes(ns: Sequence[int] | None, groups: Mapping[str, Sequence[Rollout]]) -> tuple[int, ...]:
    check_sizes(ns)
    if ns is not None:
        return tuple(sorted(set(ns)))
    usual, _ = max(Counter(map(len, groups.values())).items(), key=lambda item: (item[1], item[0]))
    powers = [2**power for power in range(usual.bit_length())]
    return tuple(powers) if powers[-1] == usual else (*powers, usual)


def _verdicts(group: Sequence[Rollout], correct_by: Verdict, book: AnswerBook) -> Grouping:
    if len({row.problem for row in group}) > 1:
        raise InputError(f"The rollouts of problem {group[0].group!r} have different questions.")
    references = {row.reference for row in group}
    if len(references) > 1:
        raise InputError(f"The rollouts of problem {group[0].group!r} have different right answers: {references}.")
    grouping = book.group([row.answer for row in group], group[0].reference)
    if correct_by == "label":
        if any(row.label is None for row in group):
            raise InputError(f"A rollout of problem {group[0].group!r} has no `is_correct`. Use correct_by='answer'.")
        return Grouping(grouping.classes, tuple(row.label for row in group))
    if group[0].reference is None:
        raise InputError(f"Problem {group[0].group!r} has no right answer to compare with. Use correct_by='label'.")
    return grouping


def _values(row: Rollout, scored: Scored, rules: Sequence[str]) -> dict[str, float] | None:
    """One number a rule; None when a step has no score."""
    scores = [score for _, score in judged(row.solution, scored.scores)]
    if None in scores:
        return None
    found = {rule: RULES[rule](scores) for rule in rules}
    known = {rule: value for rule, value in found.items() if value is not None}
    return known if len(known) == len(rules) else None


def _pool(values: Sequence[dict[str, float] | None], verdicts: Grouping, rules: Sequence[str]) -> Pool:
    kept = [
        (each, correct, number)
        for each, correct, number in zip(values, verdicts.correct, verdicts.classes, strict=True)
        if each is not None and correct is not None
    ]
    return Pool(
        values={rule: np.array([each[rule] for each, _, _ in kept], dtype=np.float64) for rule in rules},
        correct=np.array([correct for _, correct, _ in kept], dtype=np.float64),
        classes=np.array([number for _, _, number in kept], dtype=np.int64),
    )


def _by_problem(
    pools: Sequence[Pool], sizes: Sequence[int], vote_draws: int, seed: int
) -> dict[tuple[str, str], Numbers]:
    """For every way to choose, the expected accuracy on each problem (rows) for each N (columns)."""
    ways = [
        *((kind, rule) for kind in ("best", "weighted") for rule in pools[0].values),
        ("majority", ""),
        ("oracle", ""),
    ]
    found = {way: np.zeros((len(pools), len(sizes))) for way in ways}
    generator = np.random.default_rng(seed)
    for row, pool in enumerate(pools):
        for column, n in enumerate(sizes):
            drawn = selection.picks(pool.size, n, vote_draws, generator)
            for rule, values in pool.values.items():
                found["best", rule][row, column] = selection.best(values, pool.correct, n)
                found["weighted", rule][row, column] = selection.vote(pool, values, drawn)
            found["majority", ""][row, column] = selection.vote(pool, np.ones(pool.size), drawn)
            found["oracle", ""][row, column] = selection.oracle(pool.correct, n)
    return found


def _curves(
    found: Mapping[tuple[str, str], Numbers], sizes: Sequence[int], bootstrap: Bootstrap
) -> dict[tuple[str, str], Curve]:
    """The means over problems. All ways see the same bootstrap draws of problems, so that they can be compared."""
    everything = np.concatenate(list(found.values()), axis=1)
    means = everything.mean(axis=0)
    drawn = bootstrap.sums("problems", everything) / len(everything)
    points = iter([Estimate(float(mean), bootstrap.interval(drawn[:, at])) for at, mean in enumerate(means)])
    return {way: {n: next(points) for n in sizes} for way in found}


def _notes(
    groups: Mapping[str, Sequence[Rollout]],
    pools: Sequence[Pool],
    sizes: tuple[int, ...],
    unscored: int,
    undecided: int,
) -> Iterable[str]:
    if unscored:
        yield f"{unscored} solutions have a step without a score and were left out."
    if undecided:
        yield f"{undecided} solutions have an answer that could not be compared with the right one and were left out."
    if lost := len(groups) - len(pools):
        yield f"{lost} problems have no solution left and were left out."
    if short := sum(pool.size < sizes[-1] for pool in pools):
        yield f"{short} of {len(pools)} problems have fewer than {sizes[-1]} solutions; for them all were used."
    silent = sum(int(np.count_nonzero(pool.classes == NO_ANSWER)) for pool in pools)
    if silent:
        yield f"{silent} solutions state no answer: they are wrong where answers decide, and do not vote."


def _plain(curve: Curve) -> dict[str, Any]:
    return {
        str(n): {"value": point.value, "interval": None if point.interval is None else list(point.interval)}
        for n, point in curve.items()
    }
