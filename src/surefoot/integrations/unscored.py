"""What a trainer that cannot pass over a sample is given for one that has no reward.

The rule: nothing is chosen in silence. The training stops and says why, unless its owner names a number.
"""

from __future__ import annotations

import math
from typing import Literal

from surefoot.errors import OptionError, UnscoredError
from surefoot.rewards.reward import RewardResult

Missing = Literal["raise", "nan"] | float


def check_missing(missing: Missing) -> None:
    """Refuse what is neither "raise", "nan" nor a number."""
    if isinstance(missing, bool) or not (missing in ("raise", "nan") or isinstance(missing, int | float)):
        raise OptionError(f'missing={missing!r} is not offered. Choose "raise", "nan" or a number.')


def number(result: RewardResult, missing: Missing) -> float:
    """The reward, or what stands for a missing one."""
    if result.value is not None:
        return result.value
    if missing == "raise":
        raise UnscoredError(
            f"A sample has no reward: {result.reason} This trainer cannot pass over a sample. Say what such a sample "
            'gets with missing=NUMBER (a choice that trains the policy), or missing="nan" where NaN is dealt with.'
        )
    return math.nan if missing == "nan" else float(missing)
