"""Choose the next token of each sequence in a batch.

Invariant: a sequence's token depends on its own logits, sampling and random numbers only, never on the other rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import torch
from torch import Tensor

from surefoot.core.generation import Sampling

BITS = 48
"""Bits of a random number. With 53, the product with a sum of probabilities could round up to that sum."""
FIRST_SORTED = 1024
"""Top-p sorts this many tokens, and all of them only if these are not enough: sorting a vocabulary takes long."""
LOWEST_TEMPERATURE = 1e-6
"""Lower ones overflow in float32. At this one, sampling is greedy unless two logits are almost equal."""


def next_tokens(logits: Tensor, samplings: Sequence[Sampling], randoms: Sequence[Random]) -> list[int | None]:
    """Return one token per row of logits; None where the logits are not finite.

    A sampled row takes one random number, and the first token, in the order of the vocabulary, at which the cumulative
    probability exceeds it. Logits that differ by rounding errors therefore rarely change the token.
    """
    logits = logits.float()
    highest, chosen = logits.max(dim=-1, keepdim=True)
    sampled = [row for row, sampling in enumerate(samplings) if not sampling.greedy]
    if sampled:
        scores = (logits - highest)[sampled] / _column([samplings[row].temperature for row in sampled], logits)
        limited = [at for at, row in enumerate(sampled) if samplings[row].top_k or samplings[row].top_p < 1]
        for at in limited:
            lowest = _lowest_kept(scores[at], samplings[sampled[at]])
            scores[at] = scores[at].masked_fill(scores[at] < lowest, -torch.inf)
        numbers = [[randoms[row].getrandbits(BITS) / (1 << BITS)] for row in sampled]
        sums = scores.softmax(dim=-1).cumsum(dim=-1, dtype=torch.float64)
        points = torch.tensor(numbers, dtype=torch.float64, device=logits.device) * sums[:, -1:]
        chosen[sampled] = torch.searchsorted(sums, points, right=True).clamp(max=logits.shape[-1] - 1)
    finite = highest.isfinite()
    return [int(token) if token >= 0 else None for token in torch.where(finite, chosen, -1).flatten().tolist()]


def _column(temperatures: list[float], logits: Tensor) -> Tensor:
    values = [[max(each, LOWEST_TEMPERATURE)] for each in temperatures]
    return torch.tensor(values, dtype=logits.dtype, device=logits.device)


def _lowest_kept(scores: Tensor, sampling: Sampling) -> Tensor:
    """The lowest score that top-k and then top-p keep. Tokens that are tied with it are kept, too."""
    limit = min(sampling.top_k or len(scores), len(scores))
    top = scores.topk(limit if sampling.top_k else min(limit, FIRST_SORTED)).values
    if sampling.top_p == 1:
        return top[-1]
    total = (top if sampling.top_k else scores).logsumexp(dim=-1)
    if len(top) < limit and float((top - total).exp().sum()) < sampling.top_p:
        top = scores.topk(limit).values
    probabilities = (top - total).exp()
    before = probabilities.cumsum(dim=-1) - probabilities
    return top[max(0, int((before < sampling.top_p).sum()) - 1)]
