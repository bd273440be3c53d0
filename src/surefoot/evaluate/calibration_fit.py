"""Fit the two kinds of calibration maps to labelled scores by maximum likelihood.

A map has to increase: data in which higher scores are not more often correct raise `InputError`, because the map would
reverse or discard the model's ranking.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from surefoot.core.calibration import EDGE, METHODS, Isotonic, Logistic, Map, Method
from surefoot.core.intervals import Numbers
from surefoot.core.logistic_regression import fit_weights
from surefoot.errors import InputError, OptionError

TILT = 1e-3
"""The weight of the raw score in an isotonic map."""


def fit(scores: Numbers, correct: Numbers, method: Method, *, bias: bool = True) -> Map:
    """Fit a map to scores and labels (1 for a correct step, else 0). `bias=False` fits the temperature alone."""
    if method not in METHODS:
        raise OptionError(f"method={method!r} is unknown. Choose one of: {', '.join(METHODS)}.")
    hits = int(correct.sum())
    if not 0 < hits < len(correct):
        raise InputError(
            f"{hits} of {len(correct)} steps are correct; fitting needs correct and incorrect ones. "
            "Add more labelled solutions."
        )
    return fit_logistic(scores, correct, bias=bias) if method == "temperature" else fit_isotonic(scores, correct)


def fit_logistic(scores: Numbers, correct: Numbers, *, bias: bool = True) -> Logistic:
    """Fit the slope and, if requested, the bias of the logit.

    The targets are smoothed as in Platt scaling: (n + 1) / (n + 2) for the n correct steps, 1 / (m + 2) for the m
    incorrect ones. So the maximum is finite even if the scores separate the two perfectly.
    """
    safe = np.clip(scores, EDGE, 1.0 - EDGE)
    logits = np.log(safe) - np.log1p(-safe)
    columns = np.stack([logits, np.ones_like(logits)], axis=1)[:, : 2 if bias else 1]
    hits, misses = correct.sum(), (1.0 - correct).sum()
    targets = np.where(correct > 0.5, (hits + 1.0) / (hits + 2.0), 1.0 / (misses + 2.0))
    start = np.eye(columns.shape[1])[0]
    weights = fit_weights(columns, targets, start)
    if not weights[0] > 1e-6:
        raise _not_increasing()
    return Logistic(float(weights[0]), float(weights[1]) if bias else 0.0)


def fit_isotonic(scores: Numbers, correct: Numbers) -> Isotonic:
    """Fit a piecewise linear map by pooling adjacent violators: flat over a block, linear between blocks.

    Values stay 1 / (steps + 2) away from 0 and 1. A thousandth of the raw score is mixed in, so that scores within a
    block keep their order; it moves no value by more than that.
    """
    knots_at, which = np.unique(scores, return_inverse=True)
    counts = np.bincount(which).astype(np.float64)
    blocks = pool(np.bincount(which, weights=correct) / counts, counts)
    if len(blocks) < 2:
        raise _not_increasing()
    edge = 1.0 / (len(scores) + 2.0)
    knots: dict[float, float] = {}
    for block in blocks:
        value = min(max(block.mean, edge), 1.0 - edge)
        knots |= {float(knots_at[block.start]): value, float(knots_at[block.end - 1]): value}
    # Beyond the outermost scores, their values continue.
    knots[0.0], knots[1.0] = (min(max(blocks[at].mean, edge), 1.0 - edge) for at in (0, -1))
    kept = sorted(knots.items())
    return Isotonic(
        tuple(score for score, _ in kept), tuple((1.0 - TILT) * value + TILT * score for score, value in kept)
    )


@dataclass(frozen=True)
class Block:
    """Neighbours that share one value: indices from `start` (inclusive) to `end` (exclusive)."""

    start: int
    end: int
    weight: float
    mean: float


def pool(values: Numbers, weights: Numbers) -> list[Block]:
    """Return the increasing sequence with the smallest weighted squared error: pool adjacent violators."""
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


def _not_increasing() -> InputError:
    return InputError(
        "Steps with higher scores are not more often correct in these data, so no calibration keeps their order. "
        "Check the labels, or add more data."
    )
