"""Expected accuracy of selecting among N solutions of one problem.

N solutions are drawn without replacement; a pool smaller than N is used whole. Ties count by their expected accuracy.
Results are exact, except for votes over more draws than can be listed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from surefoot.core.intervals import Numbers
from surefoot.text.answer_groups import NO_ANSWER

Draws = NDArray[np.int64]
"""One row per draw: the indices of its N solutions."""


@dataclass(frozen=True)
class Pool:
    """The solutions of one problem."""

    values: dict[str, Numbers]
    """By aggregation: one score per solution."""
    correct: Numbers
    """1 for a correct solution, 0 for an incorrect one."""
    groups: NDArray[np.int64]
    """The answer group of each solution: a number from 0, or NO_ANSWER."""

    @property
    def size(self) -> int:
        """The number of solutions."""
        return len(self.correct)


def best(values: Numbers, correct: Numbers, n: int) -> float:
    """Return the exact accuracy of selecting the solution with the highest value."""
    size = len(values)
    n = min(n, size)
    order = np.argsort(-values, kind="stable")
    ranked_values, ranked_correct = values[order], correct[order]
    draws = math.comb(size, n)
    expected = 0.0
    start = 0
    while start < size:
        end = start + int(np.count_nonzero(ranked_values[start:] == ranked_values[start]))
        # The best of a draw lies in start..end if the draw avoids everything before `start`, but not before `end`.
        chance = (math.comb(size - start, n) - math.comb(size - end, n)) / draws
        expected += chance * float(ranked_correct[start:end].mean())
        start = end
    return expected


def oracle(correct: Numbers, n: int) -> float:
    """Return the exact probability that a correct solution is among the N."""
    size = len(correct)
    n = min(n, size)
    return 1.0 - math.comb(size - int(correct.sum()), n) / math.comb(size, n)


def draw(size: int, n: int, limit: int, generator: np.random.Generator) -> Draws:
    """Return every draw of N out of `size` if there are at most `limit`, else `limit` random ones."""
    if n >= size:
        return np.arange(size)[None, :]
    if math.comb(size, n) <= limit:
        return np.array(list(combinations(range(size), n)))
    return np.argsort(generator.random((limit, size)), axis=1)[:, :n]


def vote(pool: Pool, weights: Numbers, draws: Draws) -> float:
    """Return the accuracy of the answer with the highest total weight, averaged over the draws.

    The accuracy of an answer is the fraction of its solutions that are correct.
    """
    count = int(pool.groups.max(initial=NO_ANSWER)) + 1
    if count == 0:
        return 0.0
    answered = pool.groups != NO_ANSWER
    members = np.bincount(pool.groups[answered], minlength=count)
    accuracy = np.bincount(pool.groups[answered], pool.correct[answered], minlength=count) / np.maximum(members, 1)
    groups = pool.groups[draws]
    voting = groups != NO_ANSWER
    cell = (np.arange(len(draws))[:, None] * count + groups)[voting]
    weight = np.bincount(cell, weights[draws][voting], minlength=len(draws) * count).reshape(-1, count)
    present = np.bincount(cell, minlength=len(draws) * count).reshape(-1, count) > 0
    weight = np.where(present, weight, -np.inf)
    winners = present & (weight == weight.max(axis=1, keepdims=True))
    ties = winners.sum(axis=1)
    return float(np.divide(winners @ accuracy, ties, out=np.zeros(len(draws)), where=ties > 0).mean())
