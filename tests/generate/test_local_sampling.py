"""Sampling: distributions against transformers' own logits processors, independence of rows, and odd logits."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pytest
import torch
from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from surefoot.core.generation import GREEDY, Sampling
from surefoot.generate.local_sampling import _lowest_kept, next_tokens

CRITICAL = {1: 10.828, 2: 13.816, 3: 16.266, 4: 18.467, 5: 20.515, 11: 31.264}
"""Of the chi-square distribution at 0.001, by degrees of freedom, from the tables of NIST's handbook."""
SEEDS = 4000
LOGITS = torch.randn(12, generator=torch.Generator().manual_seed(3)) * 1.5


def transformers_probabilities(sampling: Sampling) -> torch.Tensor:
    """The probabilities from which transformers' `generate` samples."""
    warpers = LogitsProcessorList([TemperatureLogitsWarper(sampling.temperature)])
    if sampling.top_k:
        warpers.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        warpers.append(TopPLogitsWarper(sampling.top_p))
    scores: torch.Tensor = warpers(torch.zeros(1, 1, dtype=torch.long), LOGITS[None])
    return scores.softmax(-1)[0]


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(1.0),
        Sampling(0.5),
        Sampling(2.0, top_k=4),
        Sampling(1.0, top_p=0.7),
        Sampling(1.3, top_p=0.9, top_k=5),
        Sampling(1.0, top_p=0.01),
        Sampling(1.0, top_k=1),
        Sampling(1.0, top_k=99),
    ],
)
def test_tokens_have_the_probabilities_of_transformers(sampling: Sampling) -> None:
    expected = transformers_probabilities(sampling)
    rows = LOGITS.expand(SEEDS, -1)
    found = Counter(next_tokens(rows, [sampling] * SEEDS, [Random(seed) for seed in range(SEEDS)]))
    possible = [token for token, probability in enumerate(expected.tolist()) if probability > 0]
    assert set(found) <= set(possible)
    # Tokens that are expected less than five times share a class.
    classes = [[token] for token in possible if expected[token] * SEEDS >= 5]
    rare = [token for token in possible if expected[token] * SEEDS < 5]
    classes += [rare] if rare else []
    if len(classes) > 1:
        wanted = [float(expected[each].sum()) * SEEDS for each in classes]
        counts = [sum(found[token] for token in each) for each in classes]
        statistic = sum((count - want) ** 2 / want for count, want in zip(counts, wanted, strict=True))
        limits = [limit for freedom, limit in CRITICAL.items() if freedom >= len(classes) - 1]
        assert statistic < limits[0]


@pytest.mark.parametrize("spread", [0.1, 3.0])
@pytest.mark.parametrize("top_p", [0.3, 0.9, 0.999])
def test_top_p_keeps_the_tokens_that_transformers_keeps_in_a_large_vocabulary(spread: float, top_p: float) -> None:
    logits = torch.randn(1, 5000, generator=torch.Generator().manual_seed(2)) * spread
    kept = TopPLogitsWarper(top_p)(torch.zeros(1, 1, dtype=torch.long), logits)[0].isfinite()
    rows, seeds = logits.expand(3000, -1), range(3000)
    found = set(next_tokens(rows, [Sampling(1.0, top_p=top_p)] * len(seeds), [Random(seed) for seed in seeds]))
    assert found <= set(kept.nonzero().flatten().tolist())
    lowest = _lowest_kept(logits[0], Sampling(1.0, top_p=top_p))
    assert int((logits[0] >= lowest).sum()) == pytest.approx(int(kept.sum()), abs=1)  # rounding of the sums


def test_a_row_does_not_depend_on_the_others() -> None:
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(6, 50, generator=generator) * 2
    samplings = [GREEDY, Sampling(1.0), Sampling(0.3), Sampling(1.0, top_k=3), Sampling(2.0, top_p=0.5), Sampling(5.0)]
    for seed in range(50):
        together = next_tokens(logits, samplings, [Random(seed + row) for row in range(6)])
        alone = [next_tokens(logits[[row]], [samplings[row]], [Random(seed + row)])[0] for row in range(6)]
        assert together == alone


def test_greedy_takes_the_highest_logit_and_no_random_number() -> None:
    random = Random(0)
    before = random.getstate()
    assert next_tokens(torch.tensor([[1.0, 3.0, 2.0]]), [GREEDY], [random]) == [1]
    assert random.getstate() == before


def test_the_lowest_temperatures_are_greedy() -> None:
    logits = torch.tensor([[1.0, 3.0, 2.0]] * 20)
    assert next_tokens(logits, [Sampling(5e-324)] * 20, [Random(seed) for seed in range(20)]) == [1] * 20


def test_tokens_without_probability_are_never_taken() -> None:
    logits = torch.full((200, 4), -torch.inf)
    logits[:, 1:3] = 0.0
    assert set(next_tokens(logits, [Sampling(1.0)] * 200, [Random(seed) for seed in range(200)])) == {1, 2}


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_give_no_token(value: float) -> None:
    logits = torch.zeros(3, 4)
    logits[1, 2] = value
    for sampling in (GREEDY, Sampling(1.0), Sampling(1.0, top_p=0.5)):
        tokens = next_tokens(logits, [sampling] * 3, [Random(0) for _ in range(3)])
        assert [token is None for token in tokens] == [False, True, False]


@pytest.mark.parametrize("size", [1, 511, 512, 513, 1300])
def test_a_token_is_where_the_running_sum_exceeds_the_random_number(size: int) -> None:
    """The same rule in numpy, over the whole vocabulary at once."""
    rows = 64
    logits = torch.randn(rows, size, generator=torch.Generator().manual_seed(size)) * 3
    sampling = Sampling(0.7)
    found = next_tokens(logits, [sampling] * rows, [Random(seed) for seed in range(rows)])
    weights = np.exp((logits.double().numpy() - logits.double().numpy().max(1, keepdims=True)) / 0.7)
    sums = (weights / weights.sum(1, keepdims=True)).cumsum(1)
    points = [Random(seed).getrandbits(48) / 2**48 for seed in range(rows)]
    assert found == [int(np.searchsorted(row, point, side="right")) for row, point in zip(sums, points, strict=True)]
