"""Per-token rewards for SkyRL: a generator around its own, which replaces the rewards.

    class Experiment(BasePPOExp):
        def get_generator(self, cfg, tokenizer, inference_engine_client):
            inner = super().get_generator(cfg, tokenizer, inference_engine_client)
            return SurefootGenerator(inner, tokenizer, "Qwen/Qwen2.5-Math-PRM-7B", "outcome+process")

Invariant: the rewards of a response have one number per token and sum to the reward of the recipe. Process terms are on
the last tokens of the steps, everything else on the last token. Written for the interface of SkyRL 0.3.0 and commit
a956457 (`GeneratorInterface`, `GeneratorOutput`).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from surefoot.core.options import DEFAULT_OPTIONS, ReadOptions
from surefoot.data.messages import question_of
from surefoot.errors import InputError
from surefoot.integrations.token_spans import decode_with_spans
from surefoot.integrations.unscored import OnMissing, check_missing, reward_or
from surefoot.rewards.reward import Reward, RewardResult
from surefoot.rewards.run_monitor import RunMonitor
from surefoot.rewards.source import RewardSource, Sample, ScorerLike
from surefoot.rewards.token_rewards import process_token_rewards


class _Response(NamedTuple):
    """The tokens of a response that the policy wrote."""

    text: str
    spans: Sequence[tuple[int, int]]
    positions: Sequence[int]
    """The index of each of these tokens in the response."""


class SurefootGenerator:
    """Wraps a generator of SkyRL. Training rollouts get our rewards; evaluation keeps those of the environment.

        generator = SurefootGenerator(inner, tokenizer, "Qwen/Qwen2.5-Math-PRM-7B", "outcome+process")
        output = await generator.generate(input_batch)
        output["rewards"]                   # one list of numbers per response

    The question is the last user message, or `env_extras[question]` if `question` names a key. The gold answer is
    `env_extras["reward_spec"]["ground_truth"]`, as in SkyRL's datasets. `missing` is the reward of a response that has
    none: "raise", "nan" or a number. For `model`, `recipe`, `options` and `load` see `surefoot.compute_reward`.
    """

    def __init__(
        self,
        generator: Any,
        tokenizer: Any,
        model: ScorerLike | None = None,
        recipe: str | Reward | None = None,
        *,
        missing: OnMissing = "raise",
        question: str | None = None,
        options: ReadOptions = DEFAULT_OPTIONS,
        load: Mapping[str, Any] | None = None,
    ) -> None:
        check_missing(missing)
        self.generator, self.tokenizer = generator, tokenizer
        self.source = RewardSource(model, recipe, options=options, load=load)
        self._missing, self._question = missing, question
        self._monitor = RunMonitor()

    async def generate(self, input_batch: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        """Generate with the wrapped generator, then replace `rewards` and add to `rollout_metrics`."""
        output: dict[str, Any] = await self.generator.generate(input_batch, **more)
        if getattr(input_batch.get("batch_metadata"), "training_phase", "train") == "eval":
            return output
        if len(output["response_ids"]) != len(input_batch["prompts"]):
            raise InputError("There are more responses than prompts. Set generator.step_wise_trajectories=false.")
        responses = [self._read(*row) for row in zip(output["response_ids"], output["loss_masks"], strict=True)]
        samples = [self._sample(input_batch, at, response.text) for at, response in enumerate(responses)]
        results = await asyncio.to_thread(self.source.rewards, samples)
        rows = zip(samples, results, responses, output["response_ids"], strict=True)
        rewards = [self._rewards(*row) for row in rows]
        return {
            **output,
            "rewards": rewards,
            "rollout_metrics": (output.get("rollout_metrics") or {}) | self._metrics(results),
        }

    def _read(self, ids: Sequence[int], mask: Sequence[int]) -> _Response:
        # Observations of multi-turn environments have mask 0. So have all tokens of responses that SkyRL filters out.
        positions = [at for at, sampled in enumerate(mask) if sampled] or list(range(len(ids)))
        text, spans = decode_with_spans(self.tokenizer, [ids[at] for at in positions])
        return _Response(text, spans, positions)

    def _sample(self, batch: Mapping[str, Any], at: int, text: str) -> Sample:
        extras = (batch.get("env_extras") or {at: {}})[at]
        if self._question is not None and self._question not in extras:
            raise InputError(f"env_extras has no {self._question!r}. It has: {', '.join(extras) or 'nothing'}.")
        question = question_of(batch["prompts"][at]) if self._question is None else extras[self._question]
        return Sample(question, text, (extras.get("reward_spec") or {}).get("ground_truth"))

    def _rewards(self, sample: Sample, result: RewardResult, response: _Response, ids: Sequence[int]) -> list[float]:
        rewards = [0.0] * len(ids)
        value = reward_or(result, self._missing)
        if result.value is not None:
            tokens = process_token_rewards(result, self.source.recipe_of(sample), response.spans)
            for at, reward in zip(response.positions, tokens.rewards or (), strict=True):
                rewards[at] = reward
            value -= tokens.total or 0.0
        if rewards:
            rewards[response.positions[-1]] += value
        return rewards

    def _metrics(self, results: Sequence[RewardResult]) -> dict[str, float]:
        metrics = {f"monitor/{name}": value for name, value in self._monitor.record(results).items()}
        for term in self.source.terms:
            known = [value for result in results if (value := result.terms.get(term.name)) is not None]
            if known:
                metrics[term.name] = math.fsum(known) / len(known)
        metrics |= {f"alarm/{name}": value for name, value in self._monitor.alarms.items()}
        return {f"surefoot/{name}": value for name, value in metrics.items()}
