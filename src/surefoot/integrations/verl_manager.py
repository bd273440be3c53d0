"""A reward manager for verl, and a GRPO estimator that leaves out samples without a reward.

    reward.reward_manager.source=importlib
    reward.reward_manager.name=SurefootRewardManager
    reward.reward_manager.module.path=pkg://surefoot.integrations.verl_manager
    algorithm.adv_estimator=surefoot_grpo
    +reward.custom_reward_function.reward_kwargs.model=Qwen/Qwen2.5-Math-PRM-7B

A sample without a reward is NaN inside verl. The estimator `surefoot_grpo` excludes it from its group's mean and gives
it no advantage. Other estimators would propagate the NaN, so they need `missing`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import torch

from surefoot.data.messages import question_of
from surefoot.errors import MissingDependencyError
from surefoot.integrations.unscored import check_missing
from surefoot.integrations.verl import DEFAULT_QUESTION_KEY, as_dict, comparable, question_in, rewards_for
from surefoot.rewards.source import Sample

try:
    from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase
    from verl.trainer.ppo.core_algos import get_adv_estimator_fn, register_adv_est
except ImportError as error:
    raise MissingDependencyError(f"{error}. The reward manager runs inside verl. Run: pip install verl") from error


class SurefootRewardManager(RewardManagerBase):  # type: ignore[misc]
    """Computes rewards in verl's reward loop. Configure it as shown above; verl creates it.

    By default the question is the last user message of the prompt, so the dataset need not repeat it in `extra_info`.
    """

    def __init__(
        self,
        config: Any,
        tokenizer: Any,
        compute_score: Any = None,
        reward_router_address: str | None = None,
        reward_model_tokenizer: Any = None,
    ) -> None:
        super().__init__(config, tokenizer, compute_score)
        options = dict(config.reward.custom_reward_function.get("reward_kwargs") or {})
        estimator = config.get("algorithm", {}).get("adv_estimator")
        self._missing = options.pop("missing", "nan" if estimator == "surefoot_grpo" else "raise")
        self._question_key = options.pop("question_key", None)
        check_missing(self._missing)
        self._rewards = rewards_for(**options)

    async def run_single(self, data: Any) -> dict[str, Any]:
        """Compute the reward of one sample."""
        row = data[-1:][0]
        response = row.batch["responses"]
        length = row.batch["attention_mask"][-response.shape[-1] :].sum()
        text = self.tokenizer.decode(response[:length], skip_special_tokens=True)
        fields = row.non_tensor_batch
        sample = Sample(self._question(fields), text, fields["reward_model"].get("ground_truth"))
        info = as_dict(self._rewards, await asyncio.wrap_future(self._rewards.submit(sample)), self._missing)
        return {"reward_score": info["score"], "reward_extra_info": info}

    def _question(self, fields: Mapping[str, Any]) -> Any:
        if self._question_key is not None or "raw_prompt" not in fields:
            return question_in(fields.get("extra_info"), self._question_key or DEFAULT_QUESTION_KEY)
        return question_of(list(fields["raw_prompt"]))


@register_adv_est("surefoot_grpo")  # type: ignore[untyped-decorator]
def grpo_without_unscored(
    token_level_rewards: torch.Tensor, response_mask: torch.Tensor, index: Any, **options: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Apply verl's GRPO to the samples that have a reward and are `comparable`. The others get no advantage.

    verl passes `norm_adv_by_std_in_grpo` only to the estimator called `grpo`; others find it in the config.
    """
    config = options.get("config")
    if config is not None:
        options.setdefault("norm_adv_by_std_in_grpo", config.get("norm_adv_by_std_in_grpo", True))
    scored = token_level_rewards.sum(dim=-1).isfinite()
    taken = comparable(index.tolist(), scored.tolist())
    rows = torch.tensor(taken, device=scored.device)
    advantages = response_mask.new_zeros(response_mask.shape, dtype=token_level_rewards.dtype)
    if any(taken):
        advantages[rows], _ = get_adv_estimator_fn("grpo")(
            token_level_rewards[rows], response_mask[rows], index[taken], **options
        )
    return advantages, advantages
