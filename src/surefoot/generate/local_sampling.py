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
BLOCK = 512
"""Tokens whose weights are added up at a time."""
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
        scores = logits - highest if len(sampled) == len(samplings) else logits[sampled] - highest[sampled]
        scores /= _column([samplings[row].temperature for row in sampled], logits)
        limited = [at for at, row in enumerate(sampled) if samplings[row].top_k or samplings[row].top_p < 1]
        for at in limited:
            lowest = _lowest_kept(scores[at], samplings[sampled[at]])
            scores[at].masked_fill_(scores[at] < lowest, -torch.inf)
        numbers = [[randoms[row].getrandbits(BITS) / (1 << BITS)] for row in sampled]
        drawn = _draw(scores.exp_(), torch.tensor(numbers, dtype=torch.float64, device=logits.device))
        if len(sampled) == len(samplings):
            chosen = drawn
        else:
            chosen[sampled] = drawn
    finite = highest.isfinite()
    return [int(token) if token >= 0 else None for token in torch.where(finite, chosen, -1).flatten().tolist()]


def _draw(weights: Tensor, points: Tensor) -> Tensor:
    """The first token of each row at which the cumulative weight exceeds the point's share of the total weight.

    Weights are added up in blocks, and token by token only in the block that contains the point: a running sum over the
    whole vocabulary takes as long as a small model.
    """
    size = weights.shape[-1]
    whole = size // BLOCK * BLOCK
    blocks = [weights[:, :whole].view(len(weights), -1, BLOCK).sum(dim=-1, dtype=torch.float64)] if whole else []
    rest = [weights[:, whole:].sum(dim=-1, keepdim=True, dtype=torch.float64)] if whole < size else []
    ends = torch.cat([*blocks, *rest], dim=-1).cumsum(dim=-1)
    points = points * ends[:, -1:]
    block = torch.searchsorted(ends, points, right=True).clamp(max=ends.shape[-1] - 1)
    before = torch.where(block > 0, ends.gather(1, (block - 1).clamp(min=0)), 0.0)
    tokens = block * BLOCK + torch.arange(min(BLOCK, size), device=weights.device)
    inside = weights.gather(1, tokens.clamp(max=size - 1)).double().masked_fill_(tokens >= size, 0.0)
    sums = before + inside.cumsum(dim=-1)
    # Two ways of adding up may differ in the last bit: the last token of the block with any weight is in bounds.
    last = (inside > 0).long().cumsum(dim=-1).argmax(dim=-1, keepdim=True)
    return tokens.gather(1, torch.minimum(torch.searchsorted(sums, points, right=True), last))


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
