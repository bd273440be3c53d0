"""Choosing among N of the solutions of one problem: the expected accuracy.

The rule: N solutions are drawn without replacement from all of the pool; where the pool is smaller, all of it is used.
Ties are broken by an equal chance, in expectation. Numbers are exact, but for votes over more draws than can be listed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from surefoot.evaluate.intervals import Numbers

NO_ANSWER = -1

Picks = NDArray[np.int64]
"""Draws of solutions: one row a draw, the indices of its N solutions."""


@dataclass(frozen=True)
class Pool:
    """The solutions of one problem."""

    values: dict[str, Numbers]
    """By aggregation rule: one score a solution."""
    correct: Numbers
    """1 for a right solution, 0 for a wrong one."""
    classes: NDArray[np.int64]
    """Which answer a solution gives: a number from 0, or NO_ANSWER."""

    @property
    def size(self) -> int:
        """How many solutions there are."""
        return len(self.correct)


def best(values: Numbers, correct: Numbers, n: int) -> float:
    """The accuracy of taking the solution with the highest value. Exact."""
    size = len(values)
    n = min(n, size)
    order = np.argsort(-values, kind="stable")
    ranked, right = values[order], correct[order]
    draws = math.comb(size, n)
    expected = 0.0
    start = 0
    while start < size:
        end = start + int(np.count_nonzero(ranked[start:] == ranked[start]))
        # The best of a draw lies in start..end when the draw avoids all before `start`, and not all before `end`.
        chance = (math.comb(size - start, n) - math.comb(size - end, n)) / draws
        expected += chance * float(right[start:end].mean())
        start = end
    return expected


def oracle(correct: Numbers, n: int) -> float:
    """The chance that a right solution is among the N. Exact."""
    size = len(correct)
    n = min(n, size)
    return 1.0 - math.comb(size - int(correct.sum()), n) / math.comb(size, n)


def picks(size: int, n: int, most: int, generator: np.random.Generator) -> Picks:
    """Every draw of N out of `size` if there are at most `most`, else `most` random ones."""
    if n >= size:
        return np.arange(size)[None, :]
    if math.comb(size, n) <= most:
        return np.array(list(combinations(range(size), n)))
    return np.argsort(generator.random((most, size)), axis=1)[:, :n]


def vote(pool: Pool, weights: Numbers, drawn: Picks) -> float:
    """The accuracy of the answer with the most weight, averaged over the draws. An answer is as right as those who
    give it."""
    kinds = int(pool.classes.max(initial=NO_ANSWER)) + 1
    if kinds == 0:
        return 0.0
    stated = pool.classes != NO_ANSWER
    members = np.bincount(pool.classes[stated], minlength=kinds)
    right = np.bincount(pool.classes[stated], pool.correct[stated], minlength=kinds) / np.maximum(members, 1)
    classes = pool.classes[drawn]
    voting = classes != NO_ANSWER
    cell = (np.arange(len(drawn))[:, None] * kinds + classes)[voting]
    weight = np.bincount(cell, weights[drawn][voting], minlength=len(drawn) * kinds).reshape(-1, kinds)
    there = np.bincount(cell, minlength=len(drawn) * kinds).reshape(-1, kinds) > 0
    weight = np.where(there, weight, -np.inf)
    winners = there & (weight == weight.max(axis=1, keepdims=True))
    count = winners.sum(axis=1)
    return float(np.divide(winners @ right, count, out=np.zeros(len(drawn)), where=count > 0).mean())
