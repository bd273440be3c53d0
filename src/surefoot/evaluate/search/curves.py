"""Accuracy over tokens: what k independent samples achieve, for growing k.

k samples are drawn without replacement; the numbers are expectations over such draws (see `best_of_n.selection`).
Invariant: all curves are about the same questions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from surefoot.core.intervals import Bootstrap, Numbers, as_list
from surefoot.core.search_result import SearchRecord, SearchResult
from surefoot.evaluate.best_of_n import selection
from surefoot.evaluate.best_of_n.result import Curve, Estimate
from surefoot.evaluate.best_of_n.selection import Pool
from surefoot.evaluate.search.judge import Judge
from surefoot.evaluate.search.measures import Method
from surefoot.evaluate.search.samples import samples_of
from surefoot.text.answer_groups import NO_ANSWER


@dataclass(frozen=True)
class SampleCurves:
    """The accuracy of the baselines by the number of samples."""

    tokens: Mapping[int, float]
    """By k: generated tokens per question."""
    curves: Mapping[Method, Curve]
    questions: int
    undecided: int
    """Questions left out because an answer could not be compared with the reference."""
    unscored: int
    """Questions left out because a sample with an answer has no score."""
    short: int
    """Questions with fewer samples than the largest k. All of theirs were used."""
    vote_draws: int
    estimated: bool
    """Whether votes were estimated from `vote_draws` random draws where there are more. All else is exact."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "questions": self.questions,
            "undecided": self.undecided,
            "unscored": self.unscored,
            "short": self.short,
            "vote_draws": self.vote_draws,
            "votes_estimated": self.estimated,
            "tokens": {str(k): tokens for k, tokens in self.tokens.items()},
            "curves": [
                {"kind": method.kind, "aggregation": method.aggregation}
                | {"by_k": {str(k): {"value": at.value, "interval": as_list(at.interval)} for k, at in curve.items()}}
                for method, curve in self.curves.items()
            ],
        }


@dataclass(frozen=True)
class _Question:
    pool: Pool
    tokens: float
    """Mean tokens of a sample."""


def sample_curves(
    records: Sequence[SearchRecord],
    judge: Judge,
    aggregation: str | None,
    bootstrap: Bootstrap,
    *,
    vote_draws: int,
) -> SampleCurves | None:
    """Compute the curves; None if no question has a reference, samples and decided answers.

    Without an `aggregation`, or if no question is fully scored, there are only the curves that need no scores.
    """
    judged = [(each.samples, _verdicts(each.gold, each.samples, judge)) for each in records if each.gold is not None]
    usable = [(result, verdicts) for result, verdicts in judged if result is not None and samples_of(result)]
    decided = [(result, verdicts) for result, verdicts in usable if None not in verdicts.values()]
    pools = [_question(result, verdicts, aggregation) for result, verdicts in decided]
    scored = [question for question in pools if aggregation is None or question.pool.values]
    if not scored:
        scored = pools = [_question(result, verdicts, None) for result, verdicts in decided]
        aggregation = None
    if not scored:
        return None
    sizes = _sizes([question.pool.size for question in scored])
    methods = [Method("majority"), Method("oracle")]
    if aggregation is not None:
        methods.insert(1, Method("best", aggregation))
        if all(result.scale == "probability" for result, _ in decided):
            methods.insert(2, Method("weighted", aggregation))
    return SampleCurves(
        tokens={k: float(np.mean([min(k, each.pool.size) * each.tokens for each in scored])) for k in sizes},
        curves=_curves([each.pool for each in scored], methods, sizes, bootstrap, vote_draws),
        questions=len(scored),
        undecided=len(usable) - len(decided),
        unscored=len(pools) - len(scored),
        short=sum(each.pool.size < sizes[-1] for each in scored),
        vote_draws=vote_draws,
        estimated=any(math.comb(each.pool.size, k) > vote_draws for each in scored for k in sizes),
    )


def _verdicts(gold: str | None, result: SearchResult | None, judge: Judge) -> dict[int, bool | None]:
    """Return one verdict per answer of the samples."""
    if gold is None or result is None:
        return {}
    return {at: judge.answer(gold, each.answer) for at, each in enumerate(result.answers)}


def _question(result: SearchResult, verdicts: Mapping[int, bool | None], aggregation: str | None) -> _Question:
    """Return the samples of a question as a pool, without values if an answer is unscored.

    A sample without an answer has the lowest possible value: it is chosen only if all are such, and then nothing is.
    """
    samples = samples_of(result)
    group_of = {node: at for at, each in enumerate(result.answers) for node in each.nodes}
    groups = np.array([group_of.get(sample.id, NO_ANSWER) for sample in samples], dtype=np.int64)
    values: dict[str, Numbers] = {}
    if aggregation is not None:
        found = [
            result.path_value(sample.id, aggregation) if sample.id in group_of else float("-inf") for sample in samples
        ]
        known = [value for value in found if value is not None]
        if len(known) == len(found):
            values[aggregation] = np.array(known, dtype=np.float64)
    correct = np.array([at != NO_ANSWER and verdicts[int(at)] is True for at in groups], dtype=np.float64)
    return _Question(Pool(values, correct, groups), float(np.mean([sample.tokens for sample in samples])))


def _sizes(counts: Sequence[int]) -> list[int]:
    """Return 1, 2, 4, ... up to the most common number of samples, and that number."""
    usual, _ = max(Counter(counts).items(), key=lambda item: (item[1], item[0]))
    return sorted({*(2**power for power in range(usual.bit_length())), usual})


def _curves(
    pools: Sequence[Pool], methods: Sequence[Method], sizes: Sequence[int], bootstrap: Bootstrap, vote_draws: int
) -> dict[Method, Curve]:
    """Average over questions. All methods share the bootstrap draws, so that their intervals are comparable."""
    generator = np.random.default_rng(bootstrap.seed)
    expected = np.zeros((len(pools), len(methods), len(sizes)))
    for row, pool in enumerate(pools):
        for column, k in enumerate(sizes):
            draws = selection.draw(pool.size, k, vote_draws, generator)
            for at, method in enumerate(methods):
                expected[row, at, column] = _expected(pool, method, k, draws)
    resampled = bootstrap.resampled_sums("questions", expected.reshape(len(pools), -1)) / len(pools)
    means = expected.mean(axis=0)
    return {
        method: {
            k: Estimate(float(means[at, column]), bootstrap.interval(resampled[:, at * len(sizes) + column]))
            for column, k in enumerate(sizes)
        }
        for at, method in enumerate(methods)
    }


def _expected(pool: Pool, method: Method, k: int, draws: selection.Draws) -> float:
    if method.kind == "majority":
        return selection.vote(pool, np.ones(pool.size), draws)
    if method.kind == "oracle":
        return selection.oracle(pool.correct, k)
    values = pool.values[method.aggregation or ""]
    if method.kind == "best":
        return selection.best(values, pool.correct, k)
    return selection.vote(pool, values, draws)
