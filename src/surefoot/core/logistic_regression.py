"""Logistic regression by Newton's method, for the few weights of calibration and of a head's parts."""

from __future__ import annotations

import numpy as np

from surefoot.core.intervals import Numbers

ROUNDS = 100
CLOSE = 1e-10
"""The fit ends when no weight moves by more than this."""
RIDGE = 1e-9
"""Keeps the system solvable if columns are constant or equal."""


def fit_weights(columns: Numbers, targets: Numbers, start: Numbers, penalty: Numbers | float = 0.0) -> Numbers:
    """Return the weights of the columns with the lowest cross-entropy between their weighted sums and the targets.

    Targets are probabilities. They need to be away from 0 and 1, or the classes need to overlap, or distances from the
    start need a penalty (half of it, times the squared distance, per weight): otherwise the best weights are infinite,
    and the returned ones only large.
    """

    def loss_of(weights: Numbers) -> float:
        return _loss(columns @ weights, targets) + float((penalty * (weights - start) ** 2).sum()) / 2.0

    weights = start
    loss = loss_of(weights)
    for _ in range(ROUNDS):
        chances = 1.0 / (1.0 + np.exp(-np.clip(columns @ weights, -700.0, 700.0)))
        slope = columns.T @ (chances - targets) + penalty * (weights - start)
        curve = (columns * (chances * (1.0 - chances))[:, None]).T @ columns
        move = np.linalg.solve(curve + (RIDGE + penalty) * np.eye(len(weights)), slope)
        while (better := loss_of(weights - move)) > loss and np.abs(move).max() > CLOSE:
            move = move / 2.0
        weights, loss = weights - move, min(better, loss)
        if np.abs(move).max() <= CLOSE:
            break
    return weights


def _loss(logits: Numbers, targets: Numbers) -> float:
    # log(1 + e^x) - t x, without overflow
    return float((np.logaddexp(0.0, logits) - targets * logits).sum())
