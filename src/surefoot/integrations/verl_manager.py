"""A reward manager for verl, and a GRPO that leaves out what has no reward.

The rule: a sample without a reward is NaN on its way through verl, and the estimator `surefoot_grpo` gives it no
advantage and no part in its group's mean. Any other estimator would spread the NaN, so with those say what such samples
get: `missing`.

    reward.reward_manager.source=importlib
    reward.reward_manager.name=SurefootRewardManager
    reward.reward_manager.module.path=pkg://surefoot.integrations.verl_manager
    algorithm.adv_estimator=surefoot_grpo
    +reward.custom_reward_function.reward_kwargs.model=Qwen/Qwen2.5-Math-PRM-7B

This module imports verl.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import torch
from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase
from verl.trainer.ppo.core_algos import get_adv_estimator_fn, register_adv_est

from surefoot.integrations.messages import question_of
from surefoot.integrations.unscored import check_missing
from surefoot.integrations.verl import as_dict, comparable, gather_for, question_in


class SurefootRewardManager(RewardManagerBase):  # type: ignore[misc]
    """Takes the question from the prompt itself, so that the dataset need not repeat it in `extra_info`."""

    def __init__(
        self,
        config: Any,
        tokenizer: Any,
        compute_score: Any = None,
        reward_router_address: str | None = None,
        reward_model_tokenizer: Any = None,
    ) -> None:
        super().__init__(config, tokenizer, compute_score)
        given = dict(config.reward.custom_reward_function.get("reward_kwargs") or {})
        estimator = config.get("algorithm", {}).get("adv_estimator")
        self._missing = given.pop("missing", "nan" if estimator == "surefoot_grpo" else "raise")
        self._question_key = given.pop("question_key", None)
        check_missing(self._missing)
        self._gather = gather_for(**given)

    async def run_single(self, data: Any) -> dict[str, Any]:
        """The reward of one sample."""
        sample = data[-1:][0]
        response = sample.batch["responses"]
        length = sample.batch["attention_mask"][-response.shape[-1] :].sum()
        text = self.tokenizer.decode(response[:length], skip_special_tokens=True)
        fields = sample.non_tensor_batch
        asked = (self._question(fields), text, fields["reward_model"].get("ground_truth"))
        info = as_dict(await asyncio.wrap_future(self._gather.submit(asked)), self._missing)
        return {"reward_score": info["score"], "reward_extra_info": info}

    def _question(self, fields: Mapping[str, Any]) -> Any:
        if self._question_key is not None or "raw_prompt" not in fields:
            return question_in(fields.get("extra_info"), self._question_key or "question")
        return question_of(list(fields["raw_prompt"]))


@register_adv_est("surefoot_grpo")  # type: ignore[untyped-decorator]
def grpo_without_unscored(
    token_level_rewards: torch.Tensor, response_mask: torch.Tensor, index: Any, **options: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """verl's own GRPO over the samples that have a reward and are `comparable`; the others get no advantage.

    verl hands `norm_adv_by_std_in_grpo` to the estimator that it calls `grpo` alone; others find it in the config.
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
