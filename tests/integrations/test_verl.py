"""Rewards in verl: loaded by its loader and called by its reward loop. `make test-verl` installs verl."""

from __future__ import annotations

import asyncio
import importlib.util
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerFast

import surefoot
from helpers.counting import Counting
from surefoot.core.options import THINKING, ReadOptions, Thinking
from surefoot.errors import InputError, MissingDependencyError, OptionError, UnscoredError
from surefoot.integrations.verl import comparable, compute_score, compute_score_async
from surefoot.rewards.monitor import THRESHOLDS
from surefoot.rewards.source import forget_shared
from surefoot.scoring import loading
from surefoot.testing import byte_tokenizer_json, write_base

QUESTION = "What is 2 + 3 * 4?"
SOLUTION = "Step 1: 3 * 4 = 12.\nStep 2: 2 + 12 = 14.\nFinal Answer: 14"
WRONG = SOLUTION.replace("14", "15")
ALARMS = {f"surefoot/alarm/{name}" for name in THRESHOLDS}
KEYS = {"score", "scored", "steps", "surefoot/outcome", "surefoot/min"} | ALARMS


@pytest.fixture
def model(scorer: surefoot.Scorer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counting]:
    """A scorer that counts its calls, loaded by the name `small`: verl's configuration holds strings only."""
    counting = Counting(scorer)
    monkeypatch.setattr(loading, "load", {"small": counting}.__getitem__)
    forget_shared()
    yield counting
    forget_shared()


def asked(solution: Any, gold: str | None = "14") -> dict[str, Any]:
    return {
        "data_source": "test",
        "solution_str": solution,
        "ground_truth": gold,
        "extra_info": {"question": QUESTION, "split": "train"},
        "model": "small",
        "recipe": "outcome+process",
    }


def test_calls_from_threads_and_coroutines_are_batched(model: Counting, scorer: surefoot.Scorer) -> None:
    solutions = [SOLUTION, WRONG] * 8
    with ThreadPoolExecutor(16) as pool:
        from_threads = list(pool.map(lambda text: compute_score(**asked(text), wait=0.2), solutions))
    assert sum(model.calls) == 16
    assert len(model.calls) <= 4, model.calls
    model.calls.clear()

    async def at_once() -> list[dict[str, float]]:
        return await asyncio.gather(*(compute_score_async(**asked(text), wait=0.2) for text in solutions))

    from_coroutines = asyncio.run(at_once())
    assert len(model.calls) <= 4, model.calls
    for text, one, other in zip(solutions, from_threads, from_coroutines, strict=True):
        assert set(one) == KEYS
        low = scorer.score(QUESTION, text).min
        assert low is not None
        assert one["score"] == pytest.approx(0.7 * (text == SOLUTION) + 0.3 * low, abs=1e-5)
        assert one == pytest.approx(other, abs=1e-5)


def test_a_missing_reward_raises_unless_an_option_replaces_it(model: Counting) -> None:
    with pytest.raises(UnscoredError, match="has no reward: min: The solution has no steps"):
        compute_score(**asked(""))
    with pytest.raises(UnscoredError, match="no gold answer"):
        compute_score(**asked(SOLUTION, None))
    replaced = compute_score(**asked(""), missing=-0.5)
    assert replaced["score"] == -0.5
    assert replaced["scored"] == 0.0
    assert replaced["surefoot/outcome"] == 0.0
    assert math.isnan(replaced["surefoot/min"])
    assert math.isnan(compute_score(**asked(""), missing="nan")["score"])
    assert set(replaced) == KEYS, "verl builds an array per key, so every sample needs all of them"


def test_options_reach_the_scorer(model: Counting, scorer: surefoot.Scorer) -> None:
    found = compute_score(**asked(SOLUTION) | {"recipe": "min"}, closing=False, system="Think.")
    expected = scorer.score(QUESTION, SOLUTION, ReadOptions(closing=False, system="Think."))
    assert found["score"] == pytest.approx(expected.min, abs=1e-5)
    assert found["steps"] == len(expected.steps) == 2


def test_alarms_are_logged_once_and_as_metrics(model: Counting, caplog: pytest.LogCaptureFixture) -> None:
    calls = [asked("3 * 4 = 12\n\n2 + 12 = 14") for _ in range(64)]
    with ThreadPoolExecutor(16) as pool:
        first = list(pool.map(lambda call: compute_score(**call), calls))
    assert first[0]["surefoot/alarm/unanswered"] == 0.0
    later = compute_score(**asked(SOLUTION))
    assert later["surefoot/alarm/unanswered"] == 1.0
    assert later["surefoot/alarm/filler"] == 0.0
    assert sum("Reward hacking: unanswered is 1.00" in record.getMessage() for record in caplog.records) == 1


def test_the_default_recipe_depends_on_the_gold_answer(model: Counting) -> None:
    options = {key: value for key, value in asked(SOLUTION).items() if key != "recipe"}
    with_gold, without = compute_score(**options), compute_score(**options | {"ground_truth": None})
    assert with_gold["score"] == pytest.approx(compute_score(**asked(SOLUTION))["score"], abs=1e-5)
    plain = compute_score(**options | {"ground_truth": None, "recipe": "final+mean+correct_prefix"})
    assert without["score"] == pytest.approx(plain["score"], abs=1e-5)
    assert with_gold.keys() == without.keys(), "verl builds an array per key"
    assert math.isnan(with_gold["surefoot/final"])
    assert math.isnan(without["surefoot/outcome"])


@pytest.mark.parametrize("thinking", THINKING)
def test_thinking_reaches_the_scorer(model: Counting, scorer: surefoot.Scorer, thinking: Thinking) -> None:
    thought = f"<think>\nIs it 3?\n</think>\n{SOLUTION}"
    found = compute_score(**asked(thought) | {"recipe": "min"}, thinking=thinking)
    assert found["score"] == pytest.approx(
        scorer.score(QUESTION, thought, ReadOptions(thinking=thinking)).min, abs=1e-5
    )


def test_invalid_options_raise(model: Counting) -> None:
    with pytest.raises(InputError, match="no 'question'.*It has: split"):
        compute_score(**asked(SOLUTION) | {"extra_info": {"split": "train"}})
    with pytest.raises(OptionError, match="missing='zero'"):
        compute_score(**asked(SOLUTION), missing="zero")  # type: ignore[arg-type]
    assert compute_score(**asked(SOLUTION) | {"extra_info": {"problem": QUESTION}}, question_key="problem")["scored"]


@pytest.mark.skipif(importlib.util.find_spec("verl") is not None, reason="verl is installed")
def test_the_manager_needs_verl() -> None:
    with pytest.raises(MissingDependencyError, match="pip install verl"):
        importlib.import_module("surefoot.integrations.verl_manager")


def test_samples_that_take_part_in_grpo() -> None:
    assert comparable(["a", "a", "b", "b", "c"], [True, False, True, True, True]) == [False, False, True, True, True]
    assert comparable(["a", "a"], [False, False]) == [False, False]


# --- with the package itself -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("verl", reason="run by make test-verl")
    folder = tmp_path_factory.mktemp("tokenizer")
    (folder / "tokenizer.json").write_text(byte_tokenizer_json("<|endoftext|>"))
    names = {"eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"}
    PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), **names).save_pretrained(folder)
    return folder


def settings(tokenizer_folder: Path, function: str | None, manager: str, **more: Any) -> Any:
    from omegaconf import OmegaConf

    return OmegaConf.create(
        {
            "actor_rollout_ref": {"model": {"path": str(tokenizer_folder), "tokenizer_path": None}},
            "algorithm": {"adv_estimator": "surefoot_grpo"},
            "reward": {
                "custom_reward_function": {
                    "path": "pkg://surefoot.integrations.verl" if function else None,
                    "name": function or "compute_score",
                    "reward_kwargs": {"model": "small", "recipe": "outcome+process", "wait": 0.2, **more},
                },
                "reward_manager": {
                    "source": "register" if manager == "naive" else "importlib",
                    "name": manager,
                    "module": {"path": "pkg://surefoot.integrations.verl_manager"},
                },
                "reward_model": {"enable": False},
            },
        }
    )


def batch(folder: Path, solutions: list[str]) -> Any:
    """A batch as verl's agent loop passes it to the reward loop, padded on the right."""
    from tensordict import TensorDict
    from transformers import AutoTokenizer
    from verl import DataProto

    tokenizer = AutoTokenizer.from_pretrained(folder)
    rows = [[*tokenizer.encode(text), tokenizer.eos_token_id] for text in solutions]
    width = max(map(len, rows))
    responses = torch.tensor([row + [tokenizer.pad_token_id] * (width - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    prompts = torch.ones(len(rows), 2, dtype=torch.int64)
    tensors = {"prompts": prompts, "responses": responses, "attention_mask": torch.cat([prompts, mask], 1)}

    def column(values: list[Any]) -> Any:
        array = np.empty(len(values), dtype=object)
        array[:] = values
        return array

    fields = {
        "data_source": column(["test"] * len(rows)),
        "reward_model": column([{"ground_truth": "14"}] * len(rows)),
        "extra_info": column([{"question": QUESTION} for _ in rows]),
        "raw_prompt": column([[{"role": "user", "content": QUESTION}]] * len(rows)),
        "uid": column(["one group"] * len(rows)),
    }
    return DataProto(batch=TensorDict(tensors, batch_size=len(rows)), non_tensor_batch=fields)


@pytest.mark.parametrize(
    ("function", "manager"),
    [("compute_score", "naive"), ("compute_score_async", "naive"), (None, "SurefootRewardManager")],
)
def test_verls_reward_loop(
    tokenizer_folder: Path, model: Counting, scorer: surefoot.Scorer, function: str | None, manager: str
) -> None:
    from verl.experimental.reward_loop.reward_loop import RewardLoopWorker

    data = batch(tokenizer_folder, [SOLUTION, WRONG, SOLUTION, WRONG])

    async def run() -> list[dict[str, Any]]:
        worker = RewardLoopWorker(settings(tokenizer_folder, function, manager))
        found: list[dict[str, Any]] = await worker.compute_score_batch(data)
        return found

    found = asyncio.run(run())
    assert len(model.calls) <= 2, model.calls
    for solution, one in zip([SOLUTION, WRONG] * 2, found, strict=True):
        low = scorer.score(QUESTION, solution).min
        assert low is not None
        assert one["reward_score"] == pytest.approx(0.7 * (solution == SOLUTION) + 0.3 * low, abs=1e-5)
        assert set(one["reward_extra_info"]) == KEYS
    for key in KEYS:
        assert np.array([one["reward_extra_info"][key] for one in found]).dtype == np.float64


def test_grpo_skips_samples_without_a_reward(tokenizer_folder: Path, model: Counting) -> None:
    from verl.experimental.reward_loop.reward_loop import RewardLoopWorker
    from verl.trainer.ppo.core_algos import get_adv_estimator_fn
    from verl.trainer.ppo.reward import resolve_reward_manager_cls

    solutions = [SOLUTION, WRONG, "", SOLUTION.replace("12", "13")]
    data = batch(tokenizer_folder, solutions)
    config = settings(tokenizer_folder, None, "SurefootRewardManager")

    async def run() -> list[float]:
        worker = RewardLoopWorker(config)
        return [one["reward_score"] for one in await worker.compute_score_batch(data)]

    scores = asyncio.run(run())
    assert [math.isnan(score) for score in scores] == [False, False, True, False]
    manager = resolve_reward_manager_cls(config)
    rewards, mask = manager.assemble_rm_scores(data, scores), data.batch["attention_mask"][:, 2:]
    groups = data.non_tensor_batch["uid"]
    whole, _ = get_adv_estimator_fn("surefoot_grpo")(rewards.clone(), mask, index=groups, config=None)
    assert whole.isfinite().all()
    assert not whole[2].any(), "no reward, no advantage"
    rest = [0, 1, 3]
    alone, _ = get_adv_estimator_fn("grpo")(rewards[rest], mask[rest], index=groups[rest])
    torch.testing.assert_close(whole[rest], alone)
    assert whole[0].any()


def test_grpo_needs_two_to_compare(tokenizer_folder: Path) -> None:
    from surefoot.integrations.verl_manager import grpo_without_unscored

    rewards = torch.tensor([[0.9], [math.nan], [0.2], [0.4], [0.7]])
    groups = np.array(["a", "a", "b", "b", "single"], dtype=object)
    found, _ = grpo_without_unscored(rewards, torch.ones(5, 1), index=groups, config=None)
    assert found[:2].tolist() == [[0.0], [0.0]], "the only reward of a group cannot be compared"
    assert found[2] < 0 < found[3]
    assert found[4] > 0, "groups of one are left to verl"


def test_grpo_without_normalization_by_the_deviation(tokenizer_folder: Path) -> None:
    from omegaconf import OmegaConf
    from verl.trainer.ppo.core_algos import get_adv_estimator_fn

    from surefoot.integrations.verl_manager import grpo_without_unscored

    rewards, mask = torch.tensor([[1.0], [0.0], [0.4], [0.8]]), torch.ones(4, 1)
    groups = np.array(["a"] * 4, dtype=object)
    config = OmegaConf.create({"norm_adv_by_std_in_grpo": False})
    found, _ = grpo_without_unscored(rewards, mask, index=groups, config=config)
    expected, _ = get_adv_estimator_fn("grpo")(rewards, mask, index=groups, norm_adv_by_std_in_grpo=False)
    torch.testing.assert_close(found, expected)


def test_with_another_estimator_a_missing_reward_raises(tokenizer_folder: Path, model: Counting) -> None:
    from verl.experimental.reward_loop.reward_loop import RewardLoopWorker

    data = batch(tokenizer_folder, [SOLUTION, ""])
    config = settings(tokenizer_folder, None, "SurefootRewardManager")
    config.algorithm.adv_estimator = "grpo"

    async def run() -> None:
        await RewardLoopWorker(config).compute_score_batch(data)

    with pytest.raises(UnscoredError, match="missing=NUMBER"):
        asyncio.run(run())


def test_training_on_real_rollouts(tokenizer_folder: Path, model: Counting, tmp_path: Path) -> None:
    """Rollouts of a small policy, through verl's reward loop, GRPO and policy loss, to the policy's weights.

    verl's own trainer generates with vLLM, SGLang or TensorRT-LLM only, so transformers generates here.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from verl.experimental.reward_loop.reward_loop import RewardLoopWorker
    from verl.trainer.ppo.core_algos import get_adv_estimator_fn, get_policy_loss_fn
    from verl.trainer.ppo.reward import resolve_reward_manager_cls
    from verl.workers.config import ActorConfig

    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    policy = AutoModelForCausalLM.from_pretrained(write_base(tmp_path / "policy", hidden_size=64))
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    config = settings(tokenizer_folder, None, "SurefootRewardManager")
    actor = ActorConfig(strategy="fsdp", rollout_n=4, ppo_micro_batch_size_per_gpu=4)
    prompt = torch.tensor([tokenizer.encode(QUESTION)])
    before = [parameter.detach().clone() for parameter in policy.parameters()]
    unscored = 0
    for _ in range(3):
        sampled = policy.generate(prompt, do_sample=True, num_return_sequences=8, max_new_tokens=24, pad_token_id=0)
        texts = tokenizer.batch_decode(sampled[:, prompt.shape[1] :], skip_special_tokens=True)
        data = batch(tokenizer_folder, ["" if at == 0 else text for at, text in enumerate(texts)])

        async def run(data: Any = data) -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = await RewardLoopWorker(config).compute_score_batch(data)
            return found

        scores = [one["reward_score"] for one in asyncio.run(run())]
        unscored += sum(map(math.isnan, scores))
        rewards = resolve_reward_manager_cls(config).assemble_rm_scores(data, scores)
        responses, mask = data.batch["responses"], data.batch["attention_mask"][:, 2:]
        groups = data.non_tensor_batch["uid"]
        advantages, _ = get_adv_estimator_fn("surefoot_grpo")(rewards, mask, index=groups, config=None)
        sequences = torch.cat([prompt.expand(len(responses), -1), responses], 1)
        logits = policy(sequences).logits[:, prompt.shape[1] - 1 : -1]
        log_probs = logits.log_softmax(-1).gather(-1, responses[..., None])[..., 0]
        loss, _ = get_policy_loss_fn("vanilla")(log_probs.detach(), log_probs, advantages, mask, config=actor)
        assert loss.isfinite()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert unscored == 3, "the empty response of each step is skipped"
    changed = [not old.equal(new) for old, new in zip(before, policy.parameters(), strict=True)]
    assert any(changed)
    assert all(parameter.isfinite().all() for parameter in policy.parameters())
