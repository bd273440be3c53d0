"""Run best of N: score rollouts and measure the accuracy of every way to select one of N.

N solutions of a problem are drawn at random without replacement; the result is the expected accuracy over such draws
(see `selection`). Unscored and undecided solutions are excluded and counted. A solution without an answer is incorrect
and does not vote.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from surefoot.core.aggregation import AGGREGATIONS, find_aggregation
from surefoot.core.intervals import Bootstrap, Numbers
from surefoot.errors import InputError, OptionError
from surefoot.evaluate.baselines import best_of_n_baselines
from surefoot.evaluate.best_of_n import selection
from surefoot.evaluate.best_of_n.result import AggregationReason, BestOfNResult, Candidate, Curve, Estimate
from surefoot.evaluate.best_of_n.selection import Pool
from surefoot.evaluate.rows import Rollout, Rows, as_rows, rollouts
from surefoot.evaluate.scoring import (
    Scored,
    are_probabilities,
    calibration_of,
    name_of,
    nonblank_steps,
    scale_of,
    score_rows,
)
from surefoot.text.answer_groups import NO_ANSWER, AnswerGrouper, Grouping

if TYPE_CHECKING:
    from surefoot.core.protocols import StepScorer

CorrectBy = Literal["answer", "label"]
"""What makes a solution correct: its answer matches the reference, or `is_correct` in the data says so."""
CORRECT_BY: tuple[CorrectBy, ...] = get_args(CorrectBy)


def best_of_n(
    scorer: StepScorer | None,
    rows: Rows[Rollout],
    *,
    ns: Sequence[int] | None = None,
    aggregation: str | None = None,
    correct_by: CorrectBy = "answer",
    timeout: float = 3.0,
    seed: int = 0,
    draws: int = 1000,
    vote_draws: int = 200,
    progress: bool = False,
    name: str | None = None,
    scores: str = "scores",
) -> BestOfNResult:
    """Measure how accurately a scorer selects one of N solutions.

        print(evaluate.best_of_n(scorer, evaluate.read_rollouts("rollouts.jsonl"), ns=[1, 4, 16]))

    `rows` come from `read_rollouts`, or are mappings with the same fields. `ns` defaults to 1, 2, 4, ... up to the most
    common number of solutions per problem. The result has the accuracy by every common aggregation; `aggregation` is
    the one that reports are about. It defaults to that of the model's makers (`SolutionScore.recommended`) or, if that
    is not known, to the most accurate one. `correct_by="label"` uses `is_correct` of the data instead of comparing
    answers, which takes at most `timeout` seconds per pair. Votes are estimated from `vote_draws` samples where listing
    all draws takes more. See `processbench` for the other options.
    """
    bootstrap = Bootstrap(draws, seed)
    if vote_draws < 1:
        raise OptionError(f"vote_draws={vote_draws} is invalid. Pass a number above 0.")
    samples = as_rows(rows, Rollout, partial(rollouts, scores=scores if scorer is None else None))
    check_options(samples, ns=ns, aggregation=aggregation, correct_by=correct_by)
    problems: dict[str, list[Rollout]] = {}
    for row in samples:
        problems.setdefault(row.group, []).append(row)
    # Precomputed scores do not state their scale; one outside 0..1 settles it.
    precomputed = (score for row in samples for score in row.scores or ())
    probabilities = are_probabilities(precomputed) if scorer is None else scorer.scale == "probability"
    if aggregation is not None and not _applies(aggregation, probabilities):
        raise OptionError(f"The aggregation {aggregation!r} needs probabilities, and these scores are not.")
    in_order = [row for group in problems.values() for row in group]
    sizes = _default_sizes(problems) if ns is None else tuple(sorted(set(ns)))
    # Judge before scoring: invalid data then fails before hours of scoring.
    grouper = AnswerGrouper(timeout)
    judged = [(group, _judge(group, correct_by, grouper)) for group in problems.values()]
    found = score_rows(
        scorer,
        [(row.problem, row.solution) for row in in_order],
        [row.scores for row in in_order],
        progress=progress,
    )
    if any(each.silent for each in found):
        raise OptionError(
            "This critic says nothing about some steps by design, so its solutions cannot be ranked fairly. Use one "
            "that judges every step, such as yes-no."
        )
    recommended = _recommended(found, probabilities)
    names = _names(aggregation or recommended, probabilities)
    results = iter(found)
    pools, candidates, unscored, undecided = [], [], 0, 0
    step_counts: list[Numbers] = []
    for group, verdicts in judged:
        scored = [next(results) for _ in group]
        values = [_aggregate(row, each, names) for row, each in zip(group, scored, strict=True)]
        pool = _pool(values, verdicts, names)
        candidates += [
            Candidate(row, each.scores, numbers, correct, each.reason)
            for row, each, numbers, correct in zip(group, scored, values, verdicts.correct, strict=True)
        ]
        unscored += sum(each is None for each in values)
        undecided += sum(each is not None for each in values) - pool.size
        if pool.size:
            pools.append(pool)
            step_counts.append(_step_counts(group, scored, values, verdicts))
    if not pools:
        raise InputError("No problem has a scored and judged solution, so there is nothing to select from.")
    curves = _curves(_by_problem(pools, sizes, vote_draws, seed), sizes, bootstrap)
    best = {name: curves["best", name] for name in names}
    chosen, reason = _choose(aggregation, recommended, best)
    return BestOfNResult(
        model=name_of(scorer, name),
        ns=sizes,
        problems=len(pools),
        solutions=sum(pool.size for pool in pools),
        best=best,
        weighted={
            name: curves["weighted", name]
            for name in names
            if probabilities and all(pool.values[name].min() >= 0 for pool in pools)
        },
        majority=curves["majority", ""],
        oracle=curves["oracle", ""],
        unscored=unscored,
        undecided=undecided,
        aggregation=chosen,
        aggregation_reason=reason,
        notes=(
            *_notes(problems, pools, sizes, unscored, undecided),
            *([] if probabilities else ["The scores are not probabilities: no products and no weighted votes."]),
        ),
        candidates=tuple(candidates),
        calibration=calibration_of(scorer),
        scale=scale_of(scorer),
        baselines=best_of_n_baselines(
            _without_scores(pools, step_counts, sizes)
            | {"majority vote": {n: point.value for n, point in curves["majority", ""].items()}}
        ),
    )


def _applies(aggregation: str, probabilities: bool) -> bool:
    return probabilities or not find_aggregation(aggregation).needs_probabilities


def _recommended(scored: Sequence[Scored], probabilities: bool) -> str | None:
    """Return the makers' aggregation, if there is one, and one only, and it applies to these scores."""
    recommended = {each.recommended for each in scored}
    (only,) = recommended if len(recommended) == 1 else (None,)
    return only if only is not None and _applies(only, probabilities) else None


def _names(chosen: str | None, probabilities: bool) -> list[str]:
    """Return the aggregations that are compared: those in every result, and the chosen one."""
    return [
        each.name
        for each in AGGREGATIONS.values()
        if (each.in_results or each.name == chosen) and _applies(each.name, probabilities)
    ]


def _choose(given: str | None, recommended: str | None, best: Mapping[str, Curve]) -> tuple[str, AggregationReason]:
    if given is not None:
        return given, "given"
    if recommended is not None:
        return recommended, "makers"
    return max(best, key=lambda name: list(best[name].values())[-1].value), "most accurate"


def check_options(
    rows: Sequence[Rollout],
    *,
    ns: Sequence[int] | None = None,
    aggregation: str | None = None,
    correct_by: str = "answer",
    timeout: float = 3.0,
) -> None:
    """Reject invalid options. `rows` and `timeout` are unused: every check takes the rows and all options."""
    check_sizes(ns)
    if aggregation is not None:
        find_aggregation(aggregation)
    if correct_by not in CORRECT_BY:
        raise OptionError(f"correct_by={correct_by!r} is unknown. Choose one of: {', '.join(CORRECT_BY)}.")


def check_sizes(ns: Sequence[int] | None) -> None:
    """Reject numbers of solutions that cannot be drawn."""
    if ns is not None and (not ns or min(ns) < 1):
        raise OptionError(f"ns={list(ns)} is invalid. Pass numbers above 0.")


def _default_sizes(problems: Mapping[str, Sequence[Rollout]]) -> tuple[int, ...]:
    usual, _ = max(Counter(map(len, problems.values())).items(), key=lambda item: (item[1], item[0]))
    powers = [2**power for power in range(usual.bit_length())]
    return tuple(powers) if powers[-1] == usual else (*powers, usual)


def _judge(group: Sequence[Rollout], correct_by: CorrectBy, grouper: AnswerGrouper) -> Grouping:
    problem = group[0].group
    if len({row.problem for row in group}) > 1:
        raise InputError(f"The rollouts of problem {problem!r} have different questions.")
    references = {row.reference for row in group}
    if len(references) > 1:
        raise InputError(f"The rollouts of problem {problem!r} have different reference answers: {references}.")
    grouping = grouper.group([row.answer for row in group], group[0].reference)
    if correct_by == "label":
        if any(row.label is None for row in group):
            raise InputError(f"A rollout of problem {problem!r} has no `is_correct`. Use correct_by='answer'.")
        return Grouping(grouping.groups, tuple(row.label for row in group))
    if group[0].reference is None:
        raise InputError(f"Problem {problem!r} has no reference answer. Use correct_by='label'.")
    return grouping


def _aggregate(row: Rollout, scored: Scored, names: Sequence[str]) -> dict[str, float] | None:
    """Return one number per aggregation; None if a step has no score."""
    scores = [score for _, score in nonblank_steps(row.solution, scored.scores)]
    if None in scores:
        return None
    values = {name: AGGREGATIONS[name].function(scores) for name in names}
    defined = {name: value for name, value in values.items() if value is not None}
    return defined if len(defined) == len(names) else None


def _pool(values: Sequence[dict[str, float] | None], verdicts: Grouping, names: Sequence[str]) -> Pool:
    kept = [
        (each, correct, group)
        for each, correct, group in zip(values, verdicts.correct, verdicts.groups, strict=True)
        if each is not None and correct is not None
    ]
    return Pool(
        values={name: np.array([each[name] for each, _, _ in kept], dtype=np.float64) for name in names},
        correct=np.array([correct for _, correct, _ in kept], dtype=np.float64),
        groups=np.array([group for _, _, group in kept], dtype=np.int64),
    )


def _step_counts(
    group: Sequence[Rollout],
    scored: Sequence[Scored],
    values: Sequence[dict[str, float] | None],
    verdicts: Grouping,
) -> Numbers:
    """Return the number of steps of every solution in the pool."""
    return np.array(
        [
            len(nonblank_steps(row.solution, each.scores))
            for row, each, numbers, correct in zip(group, scored, values, verdicts.correct, strict=True)
            if numbers is not None and correct is not None
        ],
        dtype=np.float64,
    )


def _without_scores(
    pools: Sequence[Pool], step_counts: Sequence[Numbers], sizes: Sequence[int]
) -> dict[str, dict[int, float]]:
    """Return the accuracy by N of selections that use no scores."""
    random = float(np.mean([pool.correct.mean() for pool in pools]))
    first = float(np.mean([pool.correct[0] for pool in pools]))
    fewest = {
        n: float(
            np.mean([selection.best(-counts, pool.correct, n) for pool, counts in zip(pools, step_counts, strict=True)])
        )
        for n in sizes
    }
    return {
        "one at random": dict.fromkeys(sizes, random),
        "first sample": dict.fromkeys(sizes, first),
        "fewest steps": fewest,
    }


def _by_problem(
    pools: Sequence[Pool], sizes: Sequence[int], vote_draws: int, seed: int
) -> dict[tuple[str, str], Numbers]:
    """Return, per selection method, the expected accuracy on each problem (rows) for each N (columns)."""
    methods = [
        *((kind, name) for kind in ("best", "weighted") for name in pools[0].values),
        ("majority", ""),
        ("oracle", ""),
    ]
    accuracy = {method: np.zeros((len(pools), len(sizes))) for method in methods}
    generator = np.random.default_rng(seed)
    for row, pool in enumerate(pools):
        for column, n in enumerate(sizes):
            draws = selection.draw(pool.size, n, vote_draws, generator)
            for name, values in pool.values.items():
                accuracy["best", name][row, column] = selection.best(values, pool.correct, n)
                accuracy["weighted", name][row, column] = selection.vote(pool, values, draws)
            accuracy["majority", ""][row, column] = selection.vote(pool, np.ones(pool.size), draws)
            accuracy["oracle", ""][row, column] = selection.oracle(pool.correct, n)
    return accuracy


def _curves(
    accuracy: Mapping[tuple[str, str], Numbers], sizes: Sequence[int], bootstrap: Bootstrap
) -> dict[tuple[str, str], Curve]:
    """Average over problems. All methods share the bootstrap draws, so that their intervals are comparable."""
    table = np.concatenate(list(accuracy.values()), axis=1)
    means = table.mean(axis=0)
    resampled = bootstrap.resampled_sums("problems", table) / len(table)
    points = iter([Estimate(float(mean), bootstrap.interval(resampled[:, at])) for at, mean in enumerate(means)])
    return {method: {n: next(points) for n in sizes} for method in accuracy}


def _notes(
    problems: Mapping[str, Sequence[Rollout]],
    pools: Sequence[Pool],
    sizes: tuple[int, ...],
    unscored: int,
    undecided: int,
) -> Iterable[str]:
    if unscored:
        yield f"{unscored} solutions have an unscored step and were excluded."
    if undecided:
        yield f"{undecided} solutions have an answer that could not be compared with the reference and were excluded."
    if lost := len(problems) - len(pools):
        yield f"{lost} problems have no solution left and were excluded."
    if short := sum(pool.size < sizes[-1] for pool in pools):
        yield f"{short} of {len(pools)} problems have fewer than {sizes[-1]} solutions; all of theirs were used."
    unanswered = sum(int(np.count_nonzero(pool.groups == NO_ANSWER)) for pool in pools)
    if unanswered:
        yield f"{unanswered} solutions state no answer: they are incorrect if answers decide, and they do not vote."
