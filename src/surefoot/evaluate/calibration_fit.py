"""Fitting the two maps of a calibration to scored steps whose truth is known.

The rule: maximum likelihood. A map that would not rise, because higher scores are no more often right, is refused: it
would turn the model's opinion around, or throw it away.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from surefoot.core.calibration import EDGE, METHODS, Isotonic, Logistic, Map, Method
from surefoot.errors import InputError, OptionError
from surefoot.evaluate.intervals import Numbers

TILT = 1e-3
"""How much of the raw score an isotonic map keeps."""
_ROUNDS = 100
_CLOSE = 1e-10


def fit(scores: Numbers, right: Numbers, method: Method, *, bias: bool = True) -> Map:
    """The map that makes the truth `right` (1 or 0 a step) most likely. `bias=False` fits the temperature alone."""
    if method not in METHODS:
        raise OptionError(f"method={method!r} is not offered. Choose one of: {', '.join(METHODS)}.")
    hits = int(right.sum())
    if not 0 < hits < len(right):
        raise InputError(
            f"{hits} of {len(right)} steps are right; fitting needs right and wrong ones. Give more labelled solutions."
        )
    return fit_logistic(scores, right, bias=bias) if method == "temperature" else fit_isotonic(scores, right)


def fit_logistic(scores: Numbers, right: Numbers, *, bias: bool = True) -> Logistic:
    """Newton's method on the slope and, if wanted, the bias of the logit.

    As Platt did, a right step counts as right with (n + 1) / (n + 2) and a wrong one as wrong likewise, n being how
    many there are: so the maximum is finite where the scores tell right from wrong without a mistake.
    """
    safe = np.clip(scores, EDGE, 1.0 - EDGE)
    logits = np.log(safe) - np.log1p(-safe)
    columns = np.stack([logits, np.ones_like(logits)], axis=1)[:, : 2 if bias else 1]
    hits, misses = right.sum(), (1.0 - right).sum()
    targets = np.where(right > 0.5, (hits + 1.0) / (hits + 2.0), 1.0 / (misses + 2.0))
    weights = np.zeros(columns.shape[1])
    weights[0] = 1.0
    loss = _loss(columns @ weights, targets)
    for _ in range(_ROUNDS):
        chances = 1.0 / (1.0 + np.exp(-np.clip(columns @ weights, -700.0, 700.0)))
        slope = columns.T @ (chances - targets)
        curve = (columns * (chances * (1.0 - chances))[:, None]).T @ columns
        # A trace of the identity, for scores that are all alike.
        move = np.linalg.solve(curve + 1e-9 * np.eye(len(weights)), slope)
        while (better := _loss(columns @ (weights - move), targets)) > loss and np.abs(move).max() > _CLOSE:
            move = move / 2.0
        weights, loss = weights - move, min(better, loss)
        if np.abs(move).max() <= _CLOSE:
            break
    if not weights[0] > 1e-6:
        raise _useless()
    return Logistic(float(weights[0]), float(weights[1]) if bias else 0.0)


def fit_isotonic(scores: Numbers, right: Numbers) -> Isotonic:
    """Pools adjacent violators; the map is flat over a block of them and straight from one block to the next.

    Values keep 1 / (steps + 2) away from 0 and 1. So that scores within a block stay in order, a thousandth of the raw
    score is mixed in, which moves no value by more than that.
    """
    places, which = np.unique(scores, return_inverse=True)
    counts = np.bincount(which).astype(np.float64)
    blocks = pool(np.bincount(which, weights=right) / counts, counts)
    if len(blocks) < 2:
        raise _useless()
    edge = 1.0 / (len(scores) + 2.0)
    knots: dict[float, float] = {}
    for block in blocks:
        value = min(max(block.mean, edge), 1.0 - edge)
        knots |= {float(places[block.start]): value, float(places[block.end - 1]): value}
    # Beyond the outermost scores nothing was seen; what holds at them is taken to hold there.
    knots[0.0], knots[1.0] = (min(max(blocks[at].mean, edge), 1.0 - edge) for at in (0, -1))
    kept = sorted(knots.items())
    return Isotonic(
        tuple(score for score, _ in kept), tuple((1.0 - TILT) * value + TILT * score for score, value in kept)
    )


@dataclass(frozen=True)
class Block:
    """Neighbours that share one value: those from `start` to before `end`."""

    start: int
    end: int
    weight: float
    mean: float


def pool(values: Numbers, weights: Numbers) -> list[Block]:
    """The rising values that are nearest to the given ones in weighted squares: pool adjacent violators."""
    blocks: list[Block] = []
    for at, (value, weight) in enumerate(zip(values.tolist(), weights.tolist(), strict=True)):
        block = Block(at, at + 1, weight, value)
        while blocks and blocks[-1].mean >= block.mean:
            before = blocks.pop()
            total = before.weight + block.weight
            mean = (before.weight * before.mean + block.weight * block.mean) / total
            block = Block(before.start, block.end, total, mean)
        blocks.append(block)
    return blocks


def _loss(logits: Numbers, targets: Numbers) -> float:
    # log(1 + e^x) - t x, without overflow
    return float((np.logaddexp(0.0, logits) - targets * logits).sum())


def _useless() -> InputError:
    return InputError(
        "Steps with higher scores are no more often right in these data, so no calibration keeps the order of scores. "
        "Look at the labels, or give more data."
    )
