"""Compare scorers on best of N: who selects a correct solution, and where they select different ones.

Two scorers select from the same solutions: those that both scored and that could be judged.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from surefoot.core.aggregation import AGGREGATIONS
from surefoot.core.intervals import Bootstrap, Numbers
from surefoot.evaluate.best_of_n import selection
from surefoot.evaluate.best_of_n.result import BestOfNResult, Candidate
from surefoot.evaluate.comparison.paired import Agreement, Difference, difference
from surefoot.evaluate.comparison.processbench import as_probability
from surefoot.evaluate.comparison.result import ComparedSolution, Disagreement, Pair
from surefoot.text.split import split

Solutions = list[tuple[Candidate, ...]]
"""The solutions of one problem; each with one candidate per scorer, which differ in their scores only."""


def problems(results: Sequence[BestOfNResult]) -> list[Solutions]:
    """Return the solutions by problem."""
    groups: dict[str, Solutions] = {}
    for candidates in zip(*(result.candidates for result in results), strict=True):
        groups.setdefault(candidates[0].row.group, []).append(candidates)
    return list(groups.values())


def selectable(solutions: Solutions) -> Solutions:
    """Return the solutions that every scorer scored and that could be judged."""
    return [
        each
        for each in solutions
        if each[0].correct is not None and all(candidate.values is not None for candidate in each)
    ]


def compare_pair(numbers: tuple[int, int], results: tuple[BestOfNResult, BestOfNResult], bootstrap: Bootstrap) -> Pair:
    """Compare two scorers by the accuracy of the solution that each selects, for every N."""
    groups = [selectable(group) for group in problems(results)]
    pools = [group for group in groups if group]
    names = [result.aggregation for result in results]
    sizes = results[0].ns
    accuracy = np.zeros((len(pools), 2, len(sizes)))
    for row, pool in enumerate(pools):
        correct = np.array([bool(each[0].correct) for each in pool], dtype=np.float64)
        for which, name in enumerate(names):
            values = _values(pool, which, name)
            accuracy[row, which] = [selection.best(values, correct, n) for n in sizes]
    drawn = bootstrap.resampled_sums("problems", accuracy.reshape(len(pools), -1)).reshape(-1, 2, len(sizes))
    drawn /= max(1, len(pools))
    means = accuracy.mean(axis=0) if pools else None
    differences: list[Difference] = []
    for column in reversed(range(len(sizes))):
        both = (None, None) if means is None else (float(means[0, column]), float(means[1, column]))
        draws = (drawn[:, 0, column], drawn[:, 1, column])
        differences.append(difference("accuracy", f"N={sizes[column]}", both, draws, bootstrap, total=len(pools)))
    return Pair(*numbers, tuple(differences), Agreement.of([_outcome(group, names) for group in groups]))


def _values(pool: Solutions, which: int, aggregation: str) -> Numbers:
    return np.array([(each[which].values or {})[aggregation] for each in pool], dtype=np.float64)


def _selected(pool: Solutions, which: int, aggregation: str) -> int:
    """Return the index of the solution with the highest value; the first of equal ones."""
    return int(np.argmax(_values(pool, which, aggregation)))


def _outcome(pool: Solutions, names: Sequence[str]) -> tuple[bool, bool, bool] | None:
    """Return whether each scorer's selection among all solutions is correct, and whether it is the same."""
    if not pool:
        return None
    first, second = (_selected(pool, which, name) for which, name in enumerate(names))
    return bool(pool[first][0].correct), bool(pool[second][0].correct), first == second


def disagreements(results: Sequence[BestOfNResult]) -> list[Disagreement]:
    """Return the problems for which the scorers select different solutions, the largest disagreement first."""
    names = [result.aggregation for result in results]
    found = []
    for group in problems(results):
        pool = selectable(group)
        selected = [_selected(pool, which, name) for which, name in enumerate(names)] if pool else []
        if len(set(selected)) < 2:
            continue
        row = pool[0][0].row
        shown = [_solution(pool, at, selected, names) for at in dict.fromkeys(selected)]
        places = [next(number for number, each in enumerate(group) if each is pool[at]) for at in selected]
        found.append(
            Disagreement(
                id=row.group if len(row.group) < 60 else row.group[:60] + "…",
                split="",
                problem=row.problem,
                label="none" if row.reference is None else f"answer {row.reference}",
                label_index=None,
                predicted=tuple(_verdict(pool[at][0]) for at in selected),
                predicted_indices=tuple(places),
                right=tuple(bool(pool[at][0].correct) for at in selected),
                size=_size(pool, selected, names, results),
                solutions=tuple(shown),
            )
        )
    return sorted(found, key=lambda each: (len(set(each.right)) > 1, each.size or 0.0), reverse=True)


def _verdict(candidate: Candidate) -> str:
    return f"answer {candidate.row.answer or 'none'} ({'correct' if candidate.correct else 'incorrect'})"


def _size(pool: Solutions, selected: Sequence[int], names: Sequence[str], results: Sequence[BestOfNResult]) -> float:
    """Return how much a scorer prefers its selection to that of another one, at most: a distance of probabilities."""
    gaps = []
    for which, name in enumerate(names):
        values = [as_probability(float(value), results[which].scale) for value in _values(pool, which, name)]
        gaps += [values[selected[which]] - values[other] for other in selected]
    return max(gaps)


def _solution(pool: Solutions, at: int, selected: Sequence[int], names: Sequence[str]) -> ComparedSolution:
    letters = [chr(ord("A") + which) for which in range(len(names))]
    by = " and ".join(letter for letter, chosen in zip(letters, selected, strict=True) if chosen == at)
    values = " · ".join(
        f"{letter} {AGGREGATIONS[name].label} {(pool[at][which].values or {})[name]:.3f}"
        for which, (letter, name) in enumerate(zip(letters, names, strict=True))
    )
    candidates = pool[at]
    return ComparedSolution(*_steps(candidates), title=f"selected by {by} · {_verdict(candidates[0])} · {values}")


def _steps(candidates: Sequence[Candidate]) -> tuple[tuple[str, ...], tuple[tuple[float | None, ...], ...]]:
    """Return the steps and each scorer's scores. Scores of another split than ours stand next to the whole text."""
    solution = candidates[0].row.solution
    steps = tuple(step.text for step in split(solution).steps) if isinstance(solution, str) else solution
    scores = tuple(candidate.scores for candidate in candidates)
    if all(len(each) == len(steps) for each in scores):
        return steps, scores
    return (str(solution),), tuple((None,) for _ in scores)
