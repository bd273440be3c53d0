"""Rewards for slime, as its custom reward model.

    --custom-rm-path surefoot.integrations.slime.custom_rm                  # uses the model in SUREFOOT_MODEL
    --custom-rm-path rewards.custom_rm                                      # contains: custom_rm = SlimeReward(...)

slime cannot skip samples: `missing` sets what it gets for one without a reward. With `missing="nan"`, these functions
leave such samples out of the group's mean and of the loss, and log terms and alarms:

    --custom-reward-post-process-path surefoot.integrations.slime.skip_unscored
    --custom-rollout-log-function-path surefoot.integrations.slime.log_rollout

Written for slime's commit 624b824 (`slime/rollout/rm_hub`, `slime/ray/rollout.py`).
"""

from __future__ import annotations

import asyncio
import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from surefoot.core.options import DEFAULT_OPTIONS, ReadOptions
from surefoot.data.messages import question_of
from surefoot.errors import InputError
from surefoot.integrations.batched_rewards import BatchedRewards
from surefoot.integrations.micro_batching import WAIT
from surefoot.integrations.unscored import OnMissing, check_missing, reward_or
from surefoot.rewards.get_reward import last_user_turn
from surefoot.rewards.reward import Reward
from surefoot.rewards.source import RewardSource, ScorerLike, shared
from surefoot.rewards.source import Sample as RewardSample

NORMALIZED = ("grpo", "gspo", "cispo", "reinforce_plus_plus_baseline")
"""The advantage estimators for which slime subtracts the mean of the group."""
DIVIDED = ("grpo", "gspo", "cispo")
"""Those for which it also divides by the standard deviation."""


class SlimeReward:
    """A custom reward model for slime. Loads the model when the first sample arrives.

        # rewards.py, used with --custom-rm-path rewards.custom_rm
        custom_rm = SlimeReward("Qwen/Qwen2.5-Math-PRM-7B", "outcome+process", missing="nan")

    The gold answer is the sample's label. The question is the last user message of its prompt; of a prompt that is a
    text with a chat template applied, the last user turn. `question` names a key of the sample's metadata instead.
    Terms, reason and alarms are stored in the sample's metadata. `missing` is the reward of a sample that has none:
    "raise", "nan" or a number. For `model`, `recipe`, `options` and `load` see `surefoot.compute_reward`.
    """

    def __init__(
        self,
        model: ScorerLike | None = None,
        recipe: str | Reward | None = None,
        *,
        missing: OnMissing = "raise",
        question: str | None = None,
        wait: float = WAIT,
        options: ReadOptions = DEFAULT_OPTIONS,
        load: Mapping[str, Any] | None = None,
    ) -> None:
        check_missing(missing)
        self._missing, self._question = missing, question
        self._rewards = BatchedRewards(RewardSource(model, recipe, options=options, load=load), wait=wait)

    async def __call__(self, args: Any, sample: Any, **_: Any) -> Any:
        """Return the reward of a sample; of a list of samples, as with `--group-rm`, a list of rewards.

        With `--reward-key KEY`, a reward is a dict that has it under this key, next to its terms.
        """
        if isinstance(sample, list):
            return await asyncio.gather(*(self(args, each) for each in sample))
        asked = RewardSample(self._question_of(sample), sample.response, None if sample.label == "" else sample.label)
        result = await asyncio.wrap_future(self._rewards.submit(asked))
        terms = {name: value for name, value in result.terms.items() if value is not None}
        alarms = {f"alarm/{name}": value for name, value in self._rewards.alarms.items()}
        sample.metadata = (sample.metadata or {}) | {"surefoot": {**terms, **alarms}, "surefoot_reason": result.reason}
        value = reward_or(result, self._missing)
        return {**terms, args.reward_key: value} if getattr(args, "reward_key", None) else value

    def _question_of(self, sample: Any) -> Any:
        if self._question is not None:
            if self._question not in (sample.metadata or {}):
                raise InputError(f"The sample's metadata has no {self._question!r}, so there is no question.")
            return sample.metadata[self._question]
        return last_user_turn(sample.prompt) if isinstance(sample.prompt, str) else question_of(sample.prompt)


@shared
def _shared() -> SlimeReward:
    return SlimeReward()


async def custom_rm(args: Any, sample: Any, **more: Any) -> Any:
    """Compute rewards with the default recipe and the model in the environment variable SUREFOOT_MODEL."""
    return await _shared()(args, sample, **more)


def skip_unscored(args: Any, samples: Sequence[Any]) -> tuple[list[float], list[float]]:
    """Normalize rewards like slime, but without the samples whose reward is NaN, which are removed from the loss.

    Return the raw rewards and the normalized ones. A sample that has the only reward of its group is removed, too.
    """
    raw = [float(sample.get_reward_value(args)) for sample in samples]
    groups: dict[Any, list[int]] = defaultdict(list)
    for at, sample in enumerate(samples):
        groups[sample.group_index].append(at)
    subtract = args.advantage_estimator in NORMALIZED and args.rewards_normalization
    divide = subtract and args.advantage_estimator in DIVIDED and args.grpo_std_normalization
    rewards = list(raw)
    for group in groups.values():
        known = [at for at in group if not math.isnan(raw[at])]
        kept = known if not subtract or len(known) > 1 or len(group) == 1 else []
        mean = statistics.fmean(raw[at] for at in kept) if subtract and kept else 0.0
        deviation = statistics.stdev(raw[at] for at in kept) + 1e-6 if divide and len(kept) > 1 else 1.0
        for at in group:
            rewards[at] = (raw[at] - mean) / deviation if at in kept else 0.0
            samples[at].remove_sample = samples[at].remove_sample or at not in kept
    return raw, rewards


def log_rollout(
    rollout_id: int,
    args: Any,
    samples: Sequence[Any],
    rollout_extra_metrics: dict[str, Any] | None,
    rollout_time: float,
) -> bool:
    """Add the means of all terms and alarms to what slime logs. Return False: slime then logs as usual."""
    columns: dict[str, list[float]] = defaultdict(list)
    for sample in samples:
        for name, value in (sample.metadata or {}).get("surefoot", {}).items():
            columns[name].append(value)
    if rollout_extra_metrics is not None:
        rollout_extra_metrics |= {f"surefoot/{name}": statistics.fmean(values) for name, values in columns.items()}
    return False
