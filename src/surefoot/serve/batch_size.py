"""How many tokens a batch should have."""

from __future__ import annotations

MIN_BATCH_TOKENS = 512
MAX_BATCH_TOKENS = 65_536
REQUESTS_PER_BATCH = 8
"""With more queued requests than this, batches grow in proportion."""
ROUND_TRIP = 0.008
"""Seconds until a client has one reply and its next request is prepared."""


def token_budget(seconds: float, rate: float, requests: int) -> float:
    """Tokens that the engine computes in this time at this rate, scaled up if many requests are queued."""
    return max(
        min(seconds * max(1.0, requests / REQUESTS_PER_BATCH) * rate, MAX_BATCH_TOKENS),
        MIN_BATCH_TOKENS,
    )


def long_tokens(seconds: float, rate: float, pack_tokens: int) -> float:
    """Tokens that others should not wait for in one batch: more than fit into this time, or into two packs."""
    return max(min(seconds * rate, 2 * pack_tokens), MIN_BATCH_TOKENS)


def without_reserve(queued: int, rate: float, requests: int) -> float:
    """Queued tokens minus those that keep the engine busy while the replies of this batch are on their way."""
    on_their_way = requests * ROUND_TRIP * rate  # if all were answered now
    rest = queued * queued / (queued + on_their_way)
    return rest if queued - rest >= MIN_BATCH_TOKENS else queued
