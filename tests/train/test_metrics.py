"""The numbers of an evaluation, on cases that can be worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from surefoot.train.metrics import (
    Judged,
    area_under_curve,
    best_scale,
    best_threshold,
    find_errors,
    fit_head,
    measure,
)

RIGHT = Judged((0.9, 0.8), (1.0, 1.0))
FOUND = Judged((0.9, 0.2), (1.0, 0.0))
MISSED = Judged((0.9, 0.7), (1.0, 0.0))
TOO_EARLY = Judged((0.3, 0.1), (1.0, 0.0))


def test_the_first_error_must_be_found_exactly() -> None:
    assert find_errors([RIGHT, FOUND], 0.5) == (1.0, 1.0, 1.0)
    assert find_errors([RIGHT, MISSED, TOO_EARLY, FOUND], 0.5) == pytest.approx((1 / 3, 1.0, 0.5))
    assert find_errors([RIGHT], 0.5) == (None, 1.0, None)
    assert find_errors([MISSED, Judged((0.1,), (1.0,))], 0.5) == (0.0, 0.0, 0.0)


def test_a_score_at_the_threshold_is_wrong() -> None:
    assert find_errors([Judged((0.5,), (0.0,)), RIGHT], 0.5)[2] == 1.0


def test_the_best_threshold_and_its_f1() -> None:
    threshold, f1 = best_threshold([RIGHT, MISSED])
    assert (0.7 <= threshold < 0.8, f1) == (True, 1.0)
    assert best_threshold([RIGHT]) == (0.5, None)
    assert best_threshold([RIGHT, FOUND])[0] == pytest.approx(0.5)


def test_the_scale_makes_scores_probabilities() -> None:
    # All logits are 1 and eight of ten steps are right, so the logit of a probability is log(0.8 / 0.2).
    steps = [Judged((1 / (1 + math.exp(-1.0)),), (float(number < 8),)) for number in range(10)]
    assert best_scale(steps, 0.5) == pytest.approx(math.log(4), rel=1e-6)
    # With the logit -1 as the threshold, all logits are 2.
    assert best_scale(steps, 1 / (1 + math.exp(1.0))) == pytest.approx(math.log(4) / 2, rel=1e-6)
    assert best_scale([], 0.5) == 1.0


FEATURES = np.random.default_rng(0).normal(size=(50, 2))


def test_the_weights_of_the_head_are_those_of_a_penalized_regression() -> None:
    """At the best weights, the gradient of cross-entropy and penalty is zero (computed by torch)."""
    targets = (FEATURES @ [1.0, -2.0] + np.random.default_rng(1).normal(size=50) > 0).astype(float)
    start = np.array([0.5, 0.1])
    found = fit_head(FEATURES, targets, start)
    assert found is not None
    weights = torch.tensor(found, requires_grad=True)
    logits = torch.tensor(FEATURES) @ weights
    # The constant is not returned; find the best one for these weights by bisection of its gradient.
    low, high = -20.0, 20.0
    for _ in range(100):
        middle = (low + high) / 2
        too_high = float(torch.sigmoid(logits.detach() + middle).sum()) > targets.sum()
        low, high = (low, middle) if too_high else (middle, high)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logits + low, torch.tensor(targets), reduction="sum")
    deviations = torch.tensor(FEATURES.std(0))
    penalty = ((weights - torch.tensor(start)) * deviations).square().sum() / 2
    (gradient,) = torch.autograd.grad(loss + penalty, [weights])
    assert gradient.tolist() == pytest.approx([0.0, 0.0], abs=1e-6)
    assert found != pytest.approx(start, abs=0.1)


def test_a_head_is_not_fitted_to_examples_that_say_too_little() -> None:
    opposed = 1 / (1 + np.exp(FEATURES[:, 0]))
    assert fit_head(FEATURES, opposed, np.ones(2)) is None
    separated = (FEATURES.sum(1) > 0).astype(float)  # without a penalty, any weight is better than a smaller one
    assert fit_head(FEATURES, separated, np.ones(2)) == pytest.approx(np.ones(2), abs=3.0)


@pytest.mark.parametrize(
    ("scores", "right", "area"),
    [
        ([0.1, 0.9], [False, True], 1.0),
        ([0.9, 0.1], [False, True], 0.0),
        ([0.5, 0.5], [False, True], 0.5),
        ([0.1, 0.4, 0.35, 0.8], [False, False, True, True], 0.75),
        ([0.1, 0.2], [True, True], None),
    ],
)
def test_area_under_the_curve(scores: list[float], right: list[bool], area: float | None) -> None:
    assert area_under_curve(np.array(scores), np.array(right)) == area


def test_all_of_it() -> None:
    quality = measure([RIGHT, MISSED])
    assert quality.solutions == 2
    assert quality.step_accuracy == 0.75
    assert quality.step_auc == 1.0
    assert (quality.error, quality.correct, quality.f1) == (0.0, 1.0, 0.0)
    assert quality.best_f1 == 1.0
    assert quality.loss == pytest.approx(-(np.log(0.9) + np.log(0.8) + np.log(0.9) + np.log(0.3)) / 4)
