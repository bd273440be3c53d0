"""Compare scorers on ProcessBench: who finds the first error, and where their predictions differ."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from surefoot.core.intervals import Bootstrap, Numbers, ratio
from surefoot.core.result import Scale
from surefoot.core.threshold_sweep import harmonic_mean
from surefoot.evaluate.comparison.paired import Agreement, Difference, difference
from surefoot.evaluate.comparison.result import ComparedSolution, Disagreement, Pair
from surefoot.evaluate.processbench.result import Judgement, ProcessBenchResult, average
from surefoot.evaluate.reliability import LabelledScore, labelled_scores
from surefoot.evaluate.step_auc import ScoreRanking

Counts = NDArray[np.float64]
"""Per solution: erroneous; found by the first, by the second; correct; accepted by the first, by the second."""


def compare_pair(
    numbers: tuple[int, int], results: tuple[ProcessBenchResult, ProcessBenchResult], bootstrap: Bootstrap
) -> Pair:
    """Compare two scorers on the solutions that both have a prediction for."""
    first, second = (result.judgements for result in results)
    outcomes = [_outcome(a, b) for a, b in zip(first, second, strict=True)]
    names = [split.name for split in results[0].splits]
    members = {name: [at for at, item in enumerate(first) if item.row.split == name] for name in names}
    drawn, groups = {}, []
    for name in names:
        at = members[name]
        pairs = [(first[each], second[each]) for each in at]
        drawn[name] = _Split(
            _counts([(first[each], outcomes[each]) for each in at]),
            _shared_steps(pairs),
            np.array(list(bootstrap.resampled_times(name, len(at))), dtype=np.int64).reshape(bootstrap.draws, len(at)),
        )
        groups.append(_differences(name, [drawn[name]], bootstrap))
    if len(names) > 1:
        groups.insert(0, _differences("average", list(drawn.values()), bootstrap))
    return Pair(*numbers, tuple(each for group in groups for each in group), Agreement.of(outcomes))


def _outcome(first: Judgement, second: Judgement) -> tuple[bool, bool, bool] | None:
    if first.outcome is None or second.outcome is None:
        return None
    return first.outcome == "right", second.outcome == "right", first.predicted == second.predicted


def _counts(items: Sequence[tuple[Judgement, tuple[bool, bool, bool] | None]]) -> Counts:
    counts = np.zeros((len(items), 6))
    for row, (item, outcome) in enumerate(items):
        if outcome is not None:
            start = 3 * (item.row.label == -1)
            counts[row, start : start + 3] = 1.0, outcome[0], outcome[1]
    return counts


def _shared_steps(
    pairs: Sequence[tuple[Judgement, Judgement]],
) -> tuple[list[list[LabelledScore]], list[list[LabelledScore]]]:
    """Return the labelled steps that both scorers have a score for."""
    found: tuple[list[list[LabelledScore]], list[list[LabelledScore]]] = ([], [])
    for first, second in pairs:
        known = [a is not None and b is not None for a, b in zip(first.scores, second.scores, strict=True)]
        for into, item in zip(found, (first, second), strict=True):
            scores = [score if both else None for score, both in zip(item.scores, known, strict=True)]
            into.append(labelled_scores(item.row.steps, scores, item.row.label))
    return found


class _Split:
    """One split of a pair: its counts, its ranked steps, and its bootstrap draws."""

    def __init__(
        self,
        counts: Counts,
        steps: tuple[list[list[LabelledScore]], list[list[LabelledScore]]],
        times: NDArray[np.int64],
    ) -> None:
        self.counts, self.steps, self.times = counts, steps, times

    def accuracies(self) -> tuple[Numbers, Numbers]:
        """Return the sums of the counts: over all solutions, and per draw."""
        return self.counts.sum(axis=0), self.times @ self.counts


def _differences(name: str, splits: Sequence[_Split], bootstrap: Bootstrap) -> list[Difference]:
    """Compare F1, both accuracies and the step AUC, averaged over splits; the AUC is over the steps of all of them."""
    sums = [split.accuracies() for split in splits]
    total = sum((whole for whole, _ in sums), np.zeros(6))
    found: dict[str, list[tuple[float | None, Numbers]]] = {"F1": [], "error": [], "correct": [], "step AUC": []}
    for scorer in (0, 1):
        parts = [[_share(whole, at, scorer) for whole, _ in sums] for at in (0, 3)]
        f1s = [
            None if error is None or correct is None else harmonic_mean(error, correct)
            for error, correct in zip(*parts, strict=True)
        ]
        drawn = [[ratio(draws[:, at + 1 + scorer], draws[:, at]) for _, draws in sums] for at in (0, 3)]
        f1_draws = [
            np.where(error + correct == 0, 0.0, ratio(2 * error * correct, error + correct))
            for error, correct in zip(*drawn, strict=True)
        ]
        found["F1"].append((average(f1s), np.mean(f1_draws, axis=0)))
        found["error"].append((average(parts[0]), np.mean(drawn[0], axis=0)))
        found["correct"].append((average(parts[1]), np.mean(drawn[1], axis=0)))
        found["step AUC"].append(_areas(splits, scorer))
    solutions = int(total[0] + total[3])
    discordant = _discordant(splits) if len(splits) == 1 else {}
    totals = {"error": int(total[0]), "correct": int(total[3])}
    return [
        difference(
            metric,
            name,
            (first[0], second[0]),
            (first[1], second[1]),
            bootstrap,
            total=totals.get(metric, solutions),
            discordant=discordant.get(metric),
        )
        for metric, (first, second) in found.items()
    ]


def _share(whole: Numbers, at: int, scorer: int) -> float | None:
    return float(whole[at + 1 + scorer] / whole[at]) if whole[at] else None


def _areas(splits: Sequence[_Split], scorer: int) -> tuple[float | None, Numbers]:
    """Return the step AUC of one scorer, overall and per draw."""
    ranking = ScoreRanking.of([solution for split in splits for solution in split.steps[scorer]])
    times = np.concatenate([split.times for split in splits], axis=1)
    area = ranking.area(np.ones(ranking.solutions, dtype=np.int64))
    return None if math.isnan(area) else area, np.array([ranking.area(each) for each in times])


def _discordant(splits: Sequence[_Split]) -> dict[str, tuple[int, int]]:
    """Return how often only the second and only the first is right, on erroneous and on correct solutions."""
    found = {}
    for metric, at in (("error", 0), ("correct", 3)):
        first, second = (np.concatenate([split.counts[:, at + 1 + which] for split in splits]) for which in (0, 1))
        found[metric] = (int((second > first).sum()), int((first > second).sum()))
    return found


def disagreements(results: Sequence[ProcessBenchResult]) -> list[Disagreement]:
    """Return the solutions for which the scorers predict different first errors, the largest disagreement first."""
    found = []
    for items in zip(*(result.judgements for result in results), strict=True):
        predicted = tuple(item.predicted for item in items)
        if len(set(predicted)) == 1:
            continue
        row = items[0].row
        found.append(
            Disagreement(
                id=row.id,
                split=row.split,
                problem=row.problem,
                label=_place(row.label),
                label_index=row.label,
                predicted=tuple(map(_place, predicted)),
                predicted_indices=predicted,
                right=tuple(None if item.outcome is None else item.outcome == "right" for item in items),
                size=disagreement_size(items, [result.scale for result in results]),
                solutions=(ComparedSolution(row.steps, tuple(item.scores for item in items)),),
            )
        )
    return sorted(found, key=lambda each: -1.0 if each.size is None else each.size, reverse=True)


def _place(at: int | None) -> str:
    return "unscored" if at is None else "no error" if at == -1 else f"step {at + 1}"


def disagreement_size(items: Sequence[Judgement], scales: Sequence[Scale]) -> float | None:
    """Return how far apart the scorers are at the first step that divides them; None if one has no prediction.

    That step is the earliest predicted error: at least one scorer is at or below its threshold there, and another one
    above. The size is the largest distance between their scores, each relative to its own threshold, as probabilities.
    """
    predicted = [item.predicted for item in items]
    if None in predicted:
        return None
    at = min(each for each in predicted if each is not None and each != -1)
    gaps = [
        as_probability(score, scale) - as_probability(item.threshold, scale)
        for item, scale in zip(items, scales, strict=True)
        if (score := item.scores[at]) is not None
    ]
    return max(gaps) - min(gaps)


def as_probability(score: float, scale: Scale) -> float:
    """Map a score of any scale to 0..1.

    >>> as_probability(0.0, "margin"), as_probability(0.0, "log_ratio"), as_probability(0.3, "probability")
    (0.5, 0.5, 0.3)
    """
    if scale == "margin":
        return (score + 1.0) / 2.0
    if scale == "log_ratio":
        return 1.0 / (1.0 + math.exp(-min(max(score, -30.0), 30.0)))
    return score
