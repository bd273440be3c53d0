"""Rewards for verl, as its custom reward function.

The rule: verl asks for one sample a call, from many coroutines or threads at once; calls that arrive together are
scored together. Beside `score` only plain numbers with the same keys for every sample are returned, because verl makes
an array of each key.

    reward.custom_reward_function.path=pkg://surefoot.integrations.verl
    +reward.custom_reward_function.reward_kwargs.model=Qwen/Qwen2.5-Math-PRM-7B
    +reward.custom_reward_function.reward_kwargs.recipe=outcome+process

verl cannot pass over a sample. What it gets for one without a reward is `missing`: see `integrations.unscored`, and
`integrations.verl_manager` for a way to leave such samples out of GRPO.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from surefoot.core.options import ReadOptions, SplitRule
from surefoot.errors import InputError
from surefoot.integrations.micro_batching import Gather
from surefoot.integrations.unscored import Missing, check_missing, number
from surefoot.rewards.reward import Reward, RewardResult
from surefoot.rewards.source import Model, Source, shared

Asked = tuple[Any, Any, Any]


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    question_key: str = "question",
    missing: Missing = "raise",
    reward_router_address: str | None = None,
    reward_model_tokenizer: Any = None,
    **options: Any,
) -> dict[str, float]:
    """The reward of one sample, with its terms. `options` are those of `gather_for` and of `surefoot.load`.

    The question stands in `extra_info[question_key]`; verl's example datasets put it there.
    """
    check_missing(missing)
    asked = (question_in(extra_info, question_key), solution_str, ground_truth)
    return as_dict(gather_for(**options).submit(asked).result(), missing)


async def compute_score_async(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    question_key: str = "question",
    missing: Missing = "raise",
    reward_router_address: str | None = None,
    reward_model_tokenizer: Any = None,
    **options: Any,
) -> dict[str, float]:
    """As `compute_score`. No thread waits for it, so that any number of samples can be scored together."""
    check_missing(missing)
    asked = (question_in(extra_info, question_key), solution_str, ground_truth)
    return as_dict(await asyncio.wrap_future(gather_for(**options).submit(asked)), missing)


def question_in(extra_info: Mapping[str, Any] | None, key: str) -> Any:
    """The question of a sample."""
    if not extra_info or key not in extra_info:
        raise InputError(
            f"extra_info has no {key!r}, so there is no question. It has: {', '.join(extra_info or {}) or 'nothing'}. "
            "Put the question there when the dataset is made, or name its key: question_key=..."
        )
    return extra_info[key]


@shared
def gather_for(
    model: Model | None = None,
    recipe: str | Reward = "seed",
    *,
    split: SplitRule = "auto",
    closing: bool = True,
    system: str | None = None,
    wait: float = 0.01,
    **load: Any,
) -> Gather[Asked, RewardResult]:
    """The one place of this process where samples for this model and recipe come together."""
    source = Source(model, recipe, options=ReadOptions(split, closing, system), load=load)
    return Gather(lambda asked: source.rewards(*(list(column) for column in zip(*asked, strict=True))), wait=wait)


def as_dict(result: RewardResult, missing: Missing) -> dict[str, float]:
    """What verl is told: the reward, whether there is one, how many steps, and each term (NaN where there is none)."""
    terms = {name: math.nan if value is None else value for name, value in result.terms.items()}
    return {
        "score": number(result, missing),
        "scored": float(result.value is not None),
        "steps": float(len(result.score.steps) if result.score else 0),
        **{f"surefoot/{name}": value for name, value in terms.items()},
    }


def comparable(groups: Sequence[Hashable], scored: Sequence[bool]) -> list[bool]:
    """Which samples take part in GRPO: those with a reward.

    Not the only one of a larger group that has one, though: it has nothing to be compared with, and verl would take the
    reward itself for the advantage.
    """
    everybody = Counter(groups)
    left = Counter(group for group, has in zip(groups, scored, strict=True) if has)
    return [has and not left[group] == 1 < everybody[group] for group, has in zip(groups, scored, strict=True)]
