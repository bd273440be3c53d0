"""Rewards in SkyRL: the wrapped generator is called like its trainer calls it, with the fields of `GeneratorOutput`.

SkyRL needs Python 3.12, and a GPU to train. The calls are recorded from its source (0.3.0): its trainer calls
`await generator.generate(input_batch)` and reads `rewards`, one list of numbers per response.
"""

from __future__ import annotations

import asyncio
import math
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic.errors import PydanticUserError
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

import surefoot
from surefoot.errors import InputError, OptionError, UnscoredError
from surefoot.integrations.skyrl import SurefootGenerator
from surefoot.rewards.recipes import RECIPES
from surefoot.testing import qwen_tokenizer_json

QUESTION = "What is 2 + 3 * 4?"
SOLUTION = "Step 1: 3 * 4 = 12.\nStep 2: 2 + 12 = 14.\nFinal Answer: 14"
WRONG = SOLUTION.replace("14", "15")


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(qwen_tokenizer_json()), eos_token="<|im_end|>")


class Inner:
    """Returns recorded responses, like `SkyRLGymGenerator.generate` for single-turn environments."""

    def __init__(self, responses: list[list[int]], masks: list[list[int]] | None = None) -> None:
        self._responses = responses
        self._masks = masks or [[1] * len(ids) for ids in responses]

    async def generate(self, input_batch: dict[str, Any], disable_tqdm: bool = False) -> dict[str, Any]:
        return {
            "prompt_token_ids": [[1, 2]] * len(self._responses),
            "response_ids": self._responses,
            "rewards": [1.0] * len(self._responses),
            "loss_masks": self._masks,
            "stop_reasons": ["stop"] * len(self._responses),
            "rollout_metrics": {"generate/avg_num_tokens": 3.0},
            "rollout_logprobs": None,
        }


def batch(count: int, phase: str = "train", gold: str | None = "14") -> dict[str, Any]:
    spec = {"method": "rule", "ground_truth": gold}
    return {
        "prompts": [[{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}]] * count,
        "env_classes": ["gsm8k"] * count,
        "env_extras": [{"reward_spec": spec, "extra_info": {"split": "train"}} for _ in range(count)],
        "sampling_params": {"temperature": 1.0},
        "trajectory_ids": None,
        "batch_metadata": SimpleNamespace(global_step=1, training_phase=phase),
    }


def encoded(tokenizer: Any, text: str) -> list[int]:
    return [*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id]


def test_every_token_has_a_reward_and_they_sum_to_the_recipe(tokenizer: Any, scorer: surefoot.Scorer) -> None:
    texts = [SOLUTION, WRONG]
    responses = [encoded(tokenizer, text) for text in texts]
    generator = SurefootGenerator(Inner(responses), tokenizer, scorer, "outcome+process")
    output = asyncio.run(generator.generate(batch(2), disable_tqdm=True))
    for text, ids, rewards in zip(texts, responses, output["rewards"], strict=True):
        assert len(rewards) == len(ids)
        score = scorer.score(QUESTION, text)
        assert sum(rewards) == pytest.approx(RECIPES["outcome+process"](score, "14").value, abs=1e-5)
        assert rewards[-1] == pytest.approx(0.7 * (text == SOLUTION), abs=1e-5), "the outcome is on the last token"
        low = min(score.steps, key=lambda step: step.score or 0.0)
        (at,) = [at for at, reward in enumerate(rewards[:-1]) if reward]
        assert rewards[at] == pytest.approx(0.3 * (low.score or 0.0), abs=1e-5)
        before = tokenizer.decode(ids[: at + 1])
        assert before.rstrip() == text[: low.end].rstrip(), "the last token of the lowest-scored step"
    metrics = output["rollout_metrics"]
    assert metrics["generate/avg_num_tokens"] == 3.0
    assert metrics["surefoot/outcome"] == 0.5
    assert metrics["surefoot/monitor/unscored"] == 0.0
    assert metrics["surefoot/alarm/unanswered"] == 0.0
    assert output["prompt_token_ids"] == [[1, 2]] * 2, "all other fields are kept"


def test_skyrl_reads_the_rewards(tokenizer: Any, scorer: surefoot.Scorer) -> None:
    """The functions of SkyRL 0.3.0 that its trainer calls with the output of a generator."""
    try:
        from skyrl.backends.skyrl_train.utils.ppo_utils import compute_grpo_outcome_advantage
        from skyrl.train.dataset.preprocess import convert_prompts_responses_to_batch_tensors
        from skyrl.train.generators.utils import get_metrics_from_generator_output
    except (ImportError, PydanticUserError) as error:  # the latter with Python 3.11
        pytest.skip(f"SkyRL cannot be imported: {error}")
    tokenizer.pad_token = "<|endoftext|>"
    inner = Inner([encoded(tokenizer, text) for text in (SOLUTION, WRONG + "\n")])
    output = asyncio.run(SurefootGenerator(inner, tokenizer, scorer).generate(batch(2)))
    totals = [sum(rewards) for rewards in output["rewards"]]
    metrics = get_metrics_from_generator_output(output, ["a", "a"])
    assert metrics["avg_score"] == pytest.approx(sum(totals) / 2)
    fields = [output[name] for name in ("prompt_token_ids", "response_ids", "rewards", "loss_masks")]
    _, _, mask, rewards, *_ = convert_prompts_responses_to_batch_tensors(tokenizer, *fields)
    assert rewards.sum(-1).tolist() == pytest.approx(totals, abs=1e-5)
    advantages, _ = compute_grpo_outcome_advantage(rewards, mask, ["a", "a"], grpo_norm_by_std=False)
    assert advantages[:, -1].tolist() == pytest.approx(
        [(totals[0] - totals[1]) / 2, (totals[1] - totals[0]) / 2], abs=1e-5
    )


def test_without_a_gold_answer_the_default_recipe_uses_steps_only(tokenizer: Any, scorer: surefoot.Scorer) -> None:
    generator = SurefootGenerator(Inner([encoded(tokenizer, SOLUTION)]), tokenizer, scorer)
    (rewards,) = asyncio.run(generator.generate(batch(1, gold=None)))["rewards"]
    expected = RECIPES["final+mean+correct_prefix"](scorer.score(QUESTION, SOLUTION)).value
    assert sum(rewards) == pytest.approx(expected, abs=1e-5)


def test_observations_are_not_scored(tokenizer: Any, scorer: surefoot.Scorer) -> None:
    """In multi-turn environments the response contains observations, with loss mask 0."""
    first, second = SOLUTION.split("Step 2")
    parts = [(first, 1), ("<result> 9999 </result>\n", 0), ("Step 2" + second, 1)]
    ids, mask = [], []
    for text, sampled in parts:
        tokens = tokenizer.encode(text, add_special_tokens=False)
        ids += tokens
        mask += [sampled] * len(tokens)
    generator = SurefootGenerator(Inner([ids], [mask]), tokenizer, scorer, "outcome+process")
    (rewards,) = asyncio.run(generator.generate(batch(1)))["rewards"]
    assert sum(rewards) == pytest.approx(RECIPES["outcome+process"](scorer.score(QUESTION, SOLUTION), "14").value)
    assert not any(reward for reward, sampled in zip(rewards, mask, strict=True) if not sampled)


def test_evaluation_keeps_the_rewards_of_the_environment(tokenizer: Any, scorer: surefoot.Scorer) -> None:
    generator = SurefootGenerator(Inner([encoded(tokenizer, SOLUTION)]), tokenizer, scorer)
    assert asyncio.run(generator.generate(batch(1, "eval")))["rewards"] == [1.0]


def test_a_missing_reward_raises_unless_an_option_replaces_it(tokenizer: Any, scorer: surefoot.Scorer) -> None:
    inner = Inner([encoded(tokenizer, SOLUTION), [tokenizer.eos_token_id]])

    def rewards(**options: Any) -> list[list[float]]:
        generator = SurefootGenerator(inner, tokenizer, scorer, "outcome+process", **options)
        found: list[list[float]] = asyncio.run(generator.generate(batch(2)))["rewards"]
        return found

    with pytest.raises(UnscoredError, match="has no reward: min: The solution has no steps"):
        rewards()
    assert rewards(missing=-0.5)[1] == [-0.5]
    assert math.isnan(rewards(missing="nan")[1][0])
    with pytest.raises(OptionError, match="missing='zero'"):
        rewards(missing="zero")


def test_invalid_batches_raise(tokenizer: Any, scorer: surefoot.Scorer) -> None:
    inner = Inner([encoded(tokenizer, SOLUTION)] * 2)
    with pytest.raises(InputError, match="step_wise_trajectories=false"):
        asyncio.run(SurefootGenerator(inner, tokenizer, scorer).generate(batch(1)))
    with pytest.raises(InputError, match="no 'problem'. It has: reward_spec, extra_info"):
        asyncio.run(SurefootGenerator(inner, tokenizer, scorer, question="problem").generate(batch(2)))
