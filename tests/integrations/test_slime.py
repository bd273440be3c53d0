"""Rewards in slime: called by its own `async_rm` if it is installed, and with samples of the same fields otherwise.

slime needs Megatron and SGLang to train. Its reward functions do not: put a checkout on PYTHONPATH to run all tests.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import surefoot
from helpers.counting import Counting
from surefoot.errors import InputError, OptionError, UnscoredError
from surefoot.integrations.slime import SlimeReward, custom_rm, log_rollout, skip_unscored
from surefoot.rewards.recipes import RECIPES

QUESTION = "What is 2 + 3 * 4?"
SOLUTION = "Step 1: 3 * 4 = 12.\nStep 2: 2 + 12 = 14.\nFinal Answer: 14"
WRONG = SOLUTION.replace("14", "15")
CHAT = f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"


@dataclass
class Sample:
    """The fields of `slime.utils.types.Sample` (commit 624b824) that reward functions use."""

    group_index: int | None = None
    prompt: str | list[dict[str, str]] = ""
    response: str = ""
    label: str | None = None
    reward: Any = None
    remove_sample: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)
    custom_rm_path: str | None = None

    def get_reward_value(self, args: Any) -> float:
        value: float = self.reward if not args.reward_key else self.reward[args.reward_key]
        return value


def arguments(**more: Any) -> Any:
    known = {"custom_rm_path": None, "reward_key": None, "advantage_estimator": "grpo", "rewards_normalization": True}
    return SimpleNamespace(**known | {"grpo_std_normalization": True} | more)


def test_single_samples_and_groups(scorer: surefoot.Scorer) -> None:
    counting = Counting(scorer)
    rm = SlimeReward(counting, wait=0.2)
    expected = [RECIPES["outcome+process"](scorer.score(QUESTION, text), "14").value for text in (SOLUTION, WRONG)]
    group = [Sample(prompt=CHAT, response=text, label="14") for text in (SOLUTION, WRONG)]
    assert asyncio.run(rm(arguments(), group)) == pytest.approx(expected, abs=1e-5)
    assert counting.calls == [2], "a group is one batch"
    talk = Sample(prompt=[{"role": "user", "content": QUESTION}], response=SOLUTION, label="14")
    assert asyncio.run(rm(arguments(), talk)) == pytest.approx(expected[0], abs=1e-5)
    named = Sample(prompt="A template", response=SOLUTION, label="14", metadata={"problem": QUESTION})
    assert asyncio.run(SlimeReward(scorer, question="problem")(arguments(), named)) == pytest.approx(
        expected[0], abs=1e-5
    )
    assert named.metadata["problem"] == QUESTION
    assert named.metadata["surefoot"]["outcome"] == 1.0
    keyed = asyncio.run(rm(arguments(reward_key="reward"), group[0]))
    assert keyed["reward"] == pytest.approx(expected[0], abs=1e-5)
    assert keyed["outcome"] == 1.0


def test_a_missing_reward_raises_unless_an_option_replaces_it(scorer: surefoot.Scorer) -> None:
    empty = Sample(prompt=CHAT, response="", label="14")
    with pytest.raises(UnscoredError, match="has no reward: min: The solution has no steps"):
        asyncio.run(SlimeReward(scorer)(arguments(), empty))
    assert asyncio.run(SlimeReward(scorer, missing=-0.5)(arguments(), empty)) == -0.5
    assert math.isnan(asyncio.run(SlimeReward(scorer, missing="nan")(arguments(), empty)))
    assert "has no steps" in empty.metadata["surefoot_reason"]
    with pytest.raises(OptionError, match="missing='zero'"):
        SlimeReward(scorer, missing="zero")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no 'problem'"):
        asyncio.run(SlimeReward(scorer, question="problem")(arguments(), empty))


def test_the_default_reads_the_environment(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUREFOOT_MODEL", str(checkpoint))
    assert 0 < asyncio.run(custom_rm(arguments(), Sample(prompt=CHAT, response=SOLUTION))) < 1


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        # Deviations from the mean of each group, divided by the sample standard deviation (here: sqrt(0.5) * 0.4).
        ({}, [0.70711, 0.0, -0.70711, 0.70711, -0.70711, 0.0, 0.0]),
        ({"grpo_std_normalization": False}, [0.2, 0.0, -0.2, 0.3, -0.3, 0.0, 0.0]),
        ({"advantage_estimator": "reinforce_plus_plus_baseline"}, [0.2, 0.0, -0.2, 0.3, -0.3, 0.0, 0.0]),
        ({"advantage_estimator": "ppo"}, [0.9, 0.0, 0.5, 0.7, 0.1, 0.4, 0.0]),
    ],
)
def test_unscored_samples_are_skipped(options: dict[str, Any], expected: list[float]) -> None:
    rows = [(0, 0.9), (0, math.nan), (0, 0.5), (1, 0.7), (1, 0.1), (2, 0.4), (2, math.nan)]
    samples = [Sample(group_index=group, reward=reward) for group, reward in rows]
    raw, rewards = skip_unscored(arguments(**options), samples)
    assert raw == pytest.approx([reward for _, reward in rows], nan_ok=True)
    assert rewards == pytest.approx(expected, abs=1e-4)
    alone = options.get("advantage_estimator") != "ppo"
    assert [sample.remove_sample for sample in samples] == [False, True, False, False, False, alone, True]


def test_terms_and_alarms_are_logged(scorer: surefoot.Scorer, caplog: pytest.LogCaptureFixture) -> None:
    rm = SlimeReward(scorer, "min")
    samples = [Sample(prompt=CHAT, response="3 * 4 = 12\n\n2 + 12 = 14") for _ in range(65)]
    asyncio.run(rm(arguments(), samples[:64]))
    asyncio.run(rm(arguments(), samples[64:]))
    metrics: dict[str, Any] = {"rollout/dropped": 1}
    assert log_rollout(0, arguments(), samples[64:], metrics, 1.0) is False, "slime logs as usual"
    assert metrics["rollout/dropped"] == 1
    assert metrics["surefoot/alarm/unanswered"] == 1.0
    assert 0 < metrics["surefoot/min"] < 1
    assert sum("Reward hacking: unanswered is 1.00" in record.getMessage() for record in caplog.records) == 1
    assert log_rollout(0, arguments(), samples, None, 1.0) is False


def test_slime_calls_it(scorer: surefoot.Scorer, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("slime.rollout.rm_hub", reason="slime is not installed")
    from slime.rollout.rm_hub import async_rm, batched_async_rm
    from slime.utils.types import Sample as RealSample

    monkeypatch.setenv("SUREFOOT_MODEL", str(checkpoint))
    args = arguments(custom_rm_path="surefoot.integrations.slime.custom_rm")
    samples = [RealSample(group_index=0, prompt=CHAT, response=text, label="14") for text in (SOLUTION, WRONG)]
    together = asyncio.run(batched_async_rm(args, samples))
    for sample, reward in zip(samples, together, strict=True):
        expected = RECIPES["outcome+process"](scorer.score(QUESTION, sample.response), "14").value
        assert reward == pytest.approx(expected, abs=1e-5)
        sample.reward = asyncio.run(async_rm(args, sample))
        assert sample.reward == pytest.approx(expected, abs=1e-5)
    assert skip_unscored(args, samples)[1] == pytest.approx([0.70711, -0.70711], abs=1e-3)
