"""Rewards in TRL: its real trainers call them, log them, and skip completions that could not be scored."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

import surefoot
from surefoot.errors import InputError, UnscoredError
from surefoot.integrations import trl
from surefoot.integrations.trl import async_reward_function, reward_function
from surefoot.scoring.local import load_local
from surefoot.testing import write_base

QUESTION = "What is 2 + 3 * 4?"
SOLUTION = "Step 1: 3 * 4 = 12.\nStep 2: 2 + 12 = 14.\nFinal Answer: 14"
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def policy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("policy"))


@pytest.fixture(scope="module")
def short(mini: surefoot.Scorer) -> surefoot.Scorer:
    """The embedded model with a token limit that cuts off about half of the completions."""
    return load_local("mini", max_tokens=mini.score(QUESTION, "x").tokens + 68)


def policy(folder: Path) -> dict[str, Any]:
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    tokenizer.chat_template = TEMPLATE
    return {"model": LlamaForCausalLM.from_pretrained(folder), "processing_class": tokenizer}


def settings(folder: Path, **more: Any) -> dict[str, Any]:
    return {
        "output_dir": str(folder),
        "max_steps": 3,
        "per_device_train_batch_size": 8,
        "num_generations": 4,
        "max_completion_length": 40,
        "learning_rate": 1e-3,
        "logging_steps": 1,
        "report_to": [],
        "save_strategy": "no",
        "use_cpu": True,
        "disable_tqdm": True,
        "seed": 1,
    } | more


def dataset(conversational: bool) -> Dataset:
    questions = [QUESTION, "Add 3 and 4."]
    prompts: list[Any] = [[{"role": "user", "content": q}] for q in questions] if conversational else questions
    return Dataset.from_dict({"prompt": prompts * 4, "answer": ["14", "7"] * 4})


def test_grpo_trains(
    policy_folder: Path, short: surefoot.Scorer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reward = reward_function(short, "min", gold="answer")
    trainer = GRPOTrainer(
        **policy(policy_folder),
        reward_funcs=reward,
        args=GRPOConfig(**settings(tmp_path, per_device_train_batch_size=24)),
        train_dataset=dataset(conversational=False),
    )
    before = {name: value.clone() for name, value in trainer.model.named_parameters()}
    trainer.train()
    logs = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert len(logs) == 3
    for entry in logs:
        assert 0.0 <= entry["rewards/surefoot_min/mean"] <= 1.0
        assert entry["reward"] == pytest.approx(entry["surefoot/min"], abs=1e-6), (
            "the mean is over scored completions only"
        )
        assert math.isfinite(entry["loss"])
        assert math.isfinite(entry["grad_norm"])
        assert entry["surefoot/monitor/steps"] >= 1
    unscored = [entry["surefoot/monitor/unscored"] for entry in logs]
    assert 0 < max(unscored) < 1, f"this test needs both scored and unscored completions: {unscored}"
    assert [entry["surefoot/alarm/unscored"] for entry in logs] == [0.0, 0.0, 1.0], "after 72 samples, not after 48"
    warnings = [record.getMessage() for record in caplog.records if record.name == "surefoot"]
    assert sum("unscored is 0." in warning for warning in warnings) == 1
    after = dict(trainer.model.named_parameters())
    assert any(not value.equal(after[name]) for name, value in before.items())
    table = trainer._logs
    assert {"step_scores", "unscored_reason"} <= set(table["extra"])
    rows = zip(table["rewards"]["surefoot_min"], table["advantages"], table["extra"]["unscored_reason"], strict=True)
    missing = [(reward, advantage) for reward, advantage, reason in rows if reason]
    assert missing
    assert all(math.isnan(reward) and advantage == 0.0 for reward, advantage in missing), "skipped, not 0.0"


@pytest.mark.parametrize("make", [reward_function, async_reward_function])
def test_rloo_and_conversations(
    policy_folder: Path, scorer: surefoot.Scorer, tmp_path: Path, make: Callable[..., Any]
) -> None:
    trainer = RLOOTrainer(
        **policy(policy_folder),
        reward_funcs=make(scorer, "outcome+process", gold="answer"),
        args=RLOOConfig(**settings(tmp_path, max_steps=1)),
        train_dataset=dataset(conversational=True),
    )
    trainer.train()
    entry = next(entry for entry in trainer.state.log_history if "reward" in entry)
    assert entry["surefoot/outcome"] == 0.0, "a random policy has no correct answers"
    assert entry["reward"] == pytest.approx(0.3 * entry["surefoot/min"], abs=1e-6)
    assert entry["rewards/surefoot_outcome_process/mean"] == pytest.approx(entry["reward"], abs=1e-6)


def test_the_asynchronous_variant_is_a_coroutine_function(scorer: surefoot.Scorer) -> None:
    assert inspect.iscoroutinefunction(async_reward_function(scorer, "min"))
    assert not inspect.iscoroutinefunction(reward_function(scorer, "min"))


def test_the_calling_convention(scorer: surefoot.Scorer) -> None:
    """The keywords of TRL 1.16, with unused columns, in both prompt formats."""
    columns: dict[str, list[Any]] = {}
    metrics: dict[str, float] = {}
    reward = reward_function(scorer, "outcome+process", gold="answer")
    texts = [SOLUTION, "", SOLUTION.replace("14", "15"), SOLUTION + "\ud800"]
    standard = reward(
        prompts=[QUESTION] * 4,
        completions=texts,
        completion_ids=[[1]] * 4,
        answer=["14"] * 4,
        level=[1, 2, 3, 4],
        trainer_state=object(),
        log_extra=columns.__setitem__,
        log_metric=metrics.__setitem__,
    )
    assert [value is None for value in standard] == [False, True, False, True]
    assert standard[0] is not None
    assert standard[2] is not None
    assert standard[0] > 0.7 > 0.3 >= standard[2]
    shown = json.loads(columns["step_scores"][0])
    assert shown == pytest.approx(scorer.score(QUESTION, SOLUTION).step_scores, abs=0.0006)
    assert shown == [round(score, 3) for score in shown], "a table needs no more digits"
    assert [bool(reason) for reason in columns["unscored_reason"]] == [False, True, False, True]
    assert metrics["surefoot/outcome"] == pytest.approx(1 / 3), (
        "the empty completion is wrong, the invalid one has no outcome"
    )
    assert metrics["surefoot/monitor/unscored"] == 0.5
    system = {"role": "system", "content": "Be brief."}
    talks = reward(
        prompts=[[system, {"role": "user", "content": QUESTION}]] * 4,
        completions=[[{"role": "assistant", "content": text}] for text in texts],
        answer=["14"] * 4,
    )
    assert talks == [None if value is None else pytest.approx(value, abs=1e-5) for value in standard]
    parts = [{"role": "assistant", "content": [{"type": "text", "text": SOLUTION}]}]
    asked = reward_function(scorer, "outcome+process", gold="answer", question="problem")
    found = asked(prompts=["A template around it"], completions=[parts], answer=[14], problem=[QUESTION])
    assert found == [pytest.approx(standard[0], abs=1e-5)]


@pytest.mark.parametrize(("version", "zero"), [("1.5.1", True), ("0.29.1", True), ("1.6.0", False), ("2.0rc1", False)])
def test_versions_that_count_none_as_zero_raise(
    scorer: surefoot.Scorer, monkeypatch: pytest.MonkeyPatch, version: str, zero: bool
) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: version)
    trl.trl_before.cache_clear()
    reward = reward_function(scorer, "min")
    try:
        assert reward(prompts=[QUESTION], completions=[SOLUTION])[0] is not None
        if zero:
            with pytest.raises(UnscoredError, match="trl>=1.6"):
                reward(prompts=[QUESTION], completions=[""])
        else:
            assert reward(prompts=[QUESTION], completions=[""]) == [None]
    finally:
        trl.trl_before.cache_clear()


@pytest.mark.parametrize(
    ("version", "processes", "logged"), [("1.13.0", "2", False), ("1.13.0", "1", True), ("1.14.0", "2", True)]
)
def test_processes_do_not_deadlock_on_metrics(
    scorer: surefoot.Scorer, monkeypatch: pytest.MonkeyPatch, version: str, processes: str, logged: bool
) -> None:
    """Before 1.14 TRL gathers metric by metric, and the processes may have different ones."""
    monkeypatch.setattr("importlib.metadata.version", lambda name: version)
    monkeypatch.setenv("WORLD_SIZE", processes)
    trl.trl_before.cache_clear()
    names: list[str] = []
    try:
        reward_function(scorer, "min")(
            prompts=[QUESTION], completions=[SOLUTION], log_metric=lambda name, value: names.append(name)
        )
    finally:
        trl.trl_before.cache_clear()
    assert ("surefoot/min" in names) == bool(names) == logged


def test_alarms_are_logged_once_and_as_metrics(scorer: surefoot.Scorer, caplog: pytest.LogCaptureFixture) -> None:
    reward = reward_function(scorer, "min")
    logged: list[dict[str, float]] = [{}, {}]
    for metrics in logged:
        reward(prompts=[QUESTION] * 64, completions=["3 * 4 = 12\n\n2 + 12 = 14"] * 64, log_metric=metrics.__setitem__)
    assert [metrics["surefoot/alarm/unanswered"] for metrics in logged] == [1.0, 1.0]
    assert [metrics["surefoot/alarm/filler"] for metrics in logged] == [0.0, 0.0]
    (message,) = [record.getMessage() for record in caplog.records if "unanswered" in record.getMessage()]
    assert "Name an answer format in the prompt" in message


@pytest.mark.parametrize(("gold", "same_as"), [("answer", "outcome+process"), (None, "final+mean+correct_prefix")])
def test_the_default_recipe(scorer: surefoot.Scorer, gold: str | None, same_as: str) -> None:
    call: dict[str, Any] = {"prompts": [QUESTION], "completions": [SOLUTION], "answer": ["14"]}
    default = reward_function(scorer, gold=gold)
    assert default(**call) == reward_function(scorer, same_as, gold=gold)(**call)
    assert default.__name__ == f"surefoot_{same_as}".replace("+", "_")


def test_invalid_columns_raise(scorer: surefoot.Scorer) -> None:
    with pytest.raises(InputError, match='gold="answer"'):
        reward_function(scorer, "outcome")(prompts=[QUESTION], completions=[SOLUTION], solution=["14"])
    with pytest.raises(InputError, match="no column 'gold'. It has: solution"):
        reward_function(scorer, "outcome", gold="gold")(prompts=[QUESTION], completions=[SOLUTION], solution=["14"])
    with pytest.raises(InputError, match="no user message"):
        reward_function(scorer, "min")(prompts=[[{"role": "system", "content": "x"}]], completions=[SOLUTION])
