"""Rewards for verl, as its custom reward function.

    reward.custom_reward_function.path=pkg://surefoot.integrations.verl
    +reward.custom_reward_function.reward_kwargs.model=Qwen/Qwen2.5-Math-PRM-7B
    +reward.custom_reward_function.reward_kwargs.recipe=outcome+process

verl asks for one sample per call, from many coroutines or threads; concurrent calls are scored as one batch. Each
result has the same keys with plain numbers, because verl builds an array per key. verl cannot skip samples: `missing`
sets what it gets for one without a reward. `integrations.verl_manager` leaves such samples out of GRPO instead.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from surefoot.core.options import ReadOptions, SplitRule, Thinking
from surefoot.errors import InputError
from surefoot.integrations.batched_rewards import BatchedRewards
from surefoot.integrations.micro_batching import WAIT
from surefoot.integrations.unscored import OnMissing, check_missing, reward_or
from surefoot.rewards.reward import Reward, RewardResult
from surefoot.rewards.source import RewardSource, Sample, ScorerLike, shared

DEFAULT_QUESTION_KEY = "question"


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    missing: OnMissing = "raise",
    **options: Any,
) -> dict[str, float]:
    """Compute the reward of one sample and its terms. verl calls this function.

        compute_score("gsm8k", solution, "14", {"question": question}, model="mini", recipe="outcome+process")

    The question is `extra_info["question"]`, as in verl's example datasets; `question_key` names another key. `missing`
    is the reward of a sample that has none: "raise", "nan" or a number. The other options are those of `rewards_for`.
    """
    check_missing(missing)
    rewards, sample = _read(solution_str, ground_truth, extra_info, **options)
    return as_dict(rewards, rewards.submit(sample).result(), missing)


async def compute_score_async(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    **options: Any,
) -> dict[str, float]:
    """Compute the reward of one sample like `compute_score`, without blocking a thread.

        reward.custom_reward_function.name=compute_score_async

    verl's thread pool then does not limit how many samples are scored together.
    """
    missing = options.pop("missing", "raise")
    check_missing(missing)
    rewards, sample = _read(solution_str, ground_truth, extra_info, **options)
    return as_dict(rewards, await asyncio.wrap_future(rewards.submit(sample)), missing)


def _read(
    solution: str,
    gold: Any,
    extra_info: Mapping[str, Any] | None,
    *,
    question_key: str = DEFAULT_QUESTION_KEY,
    reward_router_address: str | None = None,
    reward_model_tokenizer: Any = None,
    **options: Any,
) -> tuple[BatchedRewards, Sample]:
    """Return what computes the reward, and the sample.

    verl passes `reward_router_address` and `reward_model_tokenizer`, which are not used.
    """
    return rewards_for(**options), Sample(question_in(extra_info, question_key), solution, gold)


def question_in(extra_info: Mapping[str, Any] | None, key: str) -> Any:
    """Return the question of a sample."""
    if not extra_info or key not in extra_info:
        raise InputError(
            f"extra_info has no {key!r}, so there is no question. It has: {', '.join(extra_info or {}) or 'nothing'}. "
            "Add the question to the dataset, or name its key: question_key=..."
        )
    return extra_info[key]


@shared
def rewards_for(
    model: ScorerLike | None = None,
    recipe: str | Reward | None = None,
    *,
    split: SplitRule = "auto",
    closing: bool = True,
    system: str | None = None,
    thinking: Thinking = "skip",
    wait: float = WAIT,
    **load: Any,
) -> BatchedRewards:
    """Return the rewards of this process for these options. They are flat because verl reads them from YAML.

    `split`, `closing`, `system` and `thinking` are those of `ReadOptions`. `wait` is how many seconds the first sample
    of a batch waits for others. `load` are options for `surefoot.load`.
    """
    source = RewardSource(model, recipe, options=ReadOptions(split, closing, system, thinking), load=load)
    return BatchedRewards(source, wait=wait)


def as_dict(rewards: BatchedRewards, result: RewardResult, missing: OnMissing) -> dict[str, float]:
    """Return what verl expects: the reward, whether there is one, how many steps, the terms (NaN if missing), alarms.

    Every sample has every term and every alarm, because verl builds an array per key.
    """
    terms = {term.name: result.terms.get(term.name) for term in rewards.source.terms}
    return {
        "score": reward_or(result, missing),
        "scored": float(result.value is not None),
        "steps": float(len(result.score.steps) if result.score else 0),
        **{f"surefoot/{name}": math.nan if value is None else value for name, value in terms.items()},
        **{f"surefoot/alarm/{name}": value for name, value in rewards.alarms.items()},
    }


def comparable(groups: Sequence[Hashable], scored: Sequence[bool]) -> list[bool]:
    """Return which samples take part in GRPO: those with a reward, unless it is the only one in a larger group.

    Such a sample cannot be compared with others, and verl would use the reward itself as its advantage.
    """
    sizes = Counter(groups)
    rewarded = Counter(group for group, has in zip(groups, scored, strict=True) if has)
    return [has and not rewarded[group] == 1 < sizes[group] for group, has in zip(groups, scored, strict=True)]
