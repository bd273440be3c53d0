"""Decide what trainers that cannot skip samples get for a sample without a reward.

Unscored samples raise by default; opt in to NaN or to a fixed reward.
"""

from __future__ import annotations

import math
from typing import Literal

from surefoot.errors import OptionError, UnscoredError
from surefoot.rewards.reward import RewardResult

OnMissing = Literal["raise", "nan"] | float


def check_missing(missing: OnMissing) -> None:
    """Raise `OptionError` unless `missing` is "raise", "nan" or a number."""
    if isinstance(missing, bool) or not (missing in ("raise", "nan") or isinstance(missing, int | float)):
        raise OptionError(f'missing={missing!r} is not supported. Choose "raise", "nan" or a number.')


def reward_or(result: RewardResult, missing: OnMissing) -> float:
    """Return the reward, or what replaces a missing one."""
    if result.value is not None:
        return result.value
    if missing == "raise":
        raise UnscoredError(
            f"A sample has no reward: {result.reason} This trainer cannot skip samples. Set the reward of such samples "
            'with missing=NUMBER (the policy will be trained on it), or pass missing="nan" if NaN is handled.'
        )
    return math.nan if missing == "nan" else float(missing)
