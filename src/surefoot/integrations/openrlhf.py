"""Rewards for OpenRLHF, from a Python file or over HTTP.

    --reward.remote_url rewards.py          # contains: reward_func = OpenRLHFReward("Qwen/Qwen2.5-Math-PRM-7B", "min")
    --reward.remote_url http://127.0.0.1:8000/get_reward     # served by `surefoot serve`

OpenRLHF can also load this file itself. It does not add a reward file to `sys.modules`, so nothing here may depend on
this module being importable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from surefoot.integrations.batched_rewards import BatchedRewards
from surefoot.integrations.micro_batching import WAIT
from surefoot.rewards.get_reward import GetReward
from surefoot.rewards.reward import Reward, RewardResult
from surefoot.rewards.source import ScorerLike, shared


class OpenRLHFReward(GetReward):
    """A `reward_func` for OpenRLHF. Loads the model when the first sample arrives.

        # rewards.py, used with --reward.remote_url rewards.py --data.label_key answer
        reward_func = OpenRLHFReward("Qwen/Qwen2.5-Math-PRM-7B", "outcome+process")

    `wait` is how many seconds the first sample of a batch waits for others. For the other options see `GetReward`.
    """

    def __init__(
        self,
        model: ScorerLike | None = None,
        recipe: str | Reward | None = None,
        *,
        wait: float = WAIT,
        **options: Any,
    ) -> None:
        super().__init__(model, recipe, **options)
        self._rewards = BatchedRewards(self.source, wait=wait)

    def __call__(
        self, queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any], **_: Any
    ) -> dict[str, Any]:
        """Compute rewards. OpenRLHF calls this from many threads with one sample each; they are scored in batches."""
        return self.get_reward({"query": queries, "prompts": prompts, "labels": labels})

    def get_reward(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Answer one request. Concurrent requests are scored together."""
        futures = [self._rewards.submit(sample) for sample in self.samples(body)]
        return self.reply([future.result() for future in futures])

    def _logs(self, results: Sequence[RewardResult]) -> dict[str, float]:
        alarms = {f"alarm/{name}": value for name, value in self._rewards.alarms.items()}
        return super()._logs(results) | (alarms if results else {})


@shared
def _shared(**options: Any) -> OpenRLHFReward:
    return OpenRLHFReward(**options)


def get_reward(body: Mapping[str, Any], **options: Any) -> dict[str, Any]:
    """Answer the body of a `/get_reward` request, for your own HTTP server.

        reply = get_reward(json.loads(body), model="Qwen/Qwen2.5-Math-PRM-7B", recipe="min")

    `options` are those of `OpenRLHFReward`.
    """
    return _shared(**options).get_reward(body)


def reward_func(queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any], **_: Any) -> dict[str, Any]:
    """Compute rewards with the default recipe and the model in the environment variable SUREFOOT_MODEL.

    This is the function that OpenRLHF looks for in a Python file.
    """
    return _shared()(queries, prompts, labels)
