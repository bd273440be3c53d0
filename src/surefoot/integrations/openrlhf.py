"""Rewards for OpenRLHF, as a Python file or over HTTP.

    --reward.remote_url rewards.py          a file with: reward_func = OpenRLHFReward("Qwen/Qwen2.5-Math-PRM-7B", "min")
    --reward.remote_url http://127.0.0.1:8000/get_reward     `surefoot serve` answers

OpenRLHF runs a reward file outside of `sys.modules`, so nothing here may rely on its own module being importable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from surefoot.integrations.micro_batching import Gather
from surefoot.rewards.get_reward import GetReward, Sample
from surefoot.rewards.reward import Reward, RewardResult
from surefoot.rewards.source import Model, shared


class OpenRLHFReward(GetReward):
    """A `reward_func` for OpenRLHF. Nothing is loaded before the first sample.

    `wait` is how many seconds the first sample of a batch waits for others. For the other options see `GetReward`.
    """

    def __init__(
        self, model: Model | None = None, recipe: str | Reward = "seed", *, wait: float = 0.01, **options: Any
    ) -> None:
        super().__init__(model, recipe, **options)
        self._gather: Gather[Sample, RewardResult] = Gather(self.rewards, wait=wait)

    def __call__(
        self, queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any], **_: Any
    ) -> dict[str, Any]:
        """OpenRLHF calls this with one sample from many threads; samples that arrive together are scored together."""
        asked = self.samples({"query": queries, "prompts": prompts, "labels": labels})
        return self.reply([future.result() for future in [self._gather.submit(sample) for sample in asked]])


@shared
def _shared(**options: Any) -> OpenRLHFReward:
    return OpenRLHFReward(**options)


def get_reward(body: Mapping[str, Any], **options: Any) -> dict[str, Any]:
    """Answers the body of a `/get_reward` request; `options` are those of `OpenRLHFReward`."""
    return _shared(**options).get_reward(body)


def reward_func(queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any], **_: Any) -> dict[str, Any]:
    """The function that OpenRLHF looks for in a Python file; the variable SUREFOOT_MODEL names its model."""
    return _shared()(queries, prompts, labels)
