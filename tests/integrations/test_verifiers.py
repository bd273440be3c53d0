"""Rewards in both APIs of verifiers, which are two versions of one package: each test runs where its API is installed.

`make test-verifiers` installs both and runs these tests with each.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

import surefoot
from helpers.counting import Counting
from surefoot.errors import InputError, MissingDependencyError, UnscoredError
from surefoot.integrations.verifiers import reward_function, surefoot_rubric
from surefoot.rewards.monitor import THRESHOLDS
from surefoot.testing import write_base

QUESTION = "What is 2 + 3 * 4?"
SOLUTION = "Step 1: 3 * 4 = 12.\nStep 2: 2 + 12 = 14.\nFinal Answer: 14"
WRONG = SOLUTION.replace("14", "15")
OFF = {f"surefoot/alarm/{name}": 0.0 for name in THRESHOLDS}
INSTALLED = importlib.util.find_spec("verifiers") is not None


class Recorded(SimpleNamespace):
    """The part of a trace that the reward function uses."""

    def record_metrics(self, values: dict[str, float]) -> None:
        self.metrics = {**getattr(self, "metrics", {}), **values}


def test_a_missing_reward_raises(scorer: surefoot.Scorer) -> None:
    score = reward_function(scorer, "outcome+process", gold="answer")
    task = SimpleNamespace(prompt_text=QUESTION, answer="14")
    good, empty = Recorded(last_reply=SOLUTION), Recorded(last_reply="")
    low = scorer.score(QUESTION, SOLUTION).min
    assert low is not None
    assert asyncio.run(score(task, good)) == pytest.approx(0.7 + 0.3 * low, abs=1e-5)  # type: ignore[arg-type]
    assert good.metrics == OFF | {"surefoot/outcome": 1.0, "surefoot/min": pytest.approx(low, abs=1e-5)}
    with pytest.raises(UnscoredError, match="has no steps"):
        asyncio.run(score(task, empty))  # type: ignore[arg-type]
    assert empty.metrics == OFF | {"surefoot/outcome": 0.0}
    with pytest.raises(InputError, match='gold="answer"'):
        reward_function(scorer, "outcome")


def test_alarms_are_logged_once_and_as_metrics(scorer: surefoot.Scorer, caplog: pytest.LogCaptureFixture) -> None:
    score = reward_function(scorer, gold="answer")
    task = SimpleNamespace(prompt_text=QUESTION, answer="14")

    async def run(count: int) -> list[Recorded]:
        traces = [Recorded(last_reply="3 * 4 = 12\n\n2 + 12 = 14") for _ in range(count)]
        await asyncio.gather(*(score(task, trace) for trace in traces))
        return traces

    asyncio.run(run(64))
    (later,) = asyncio.run(run(1))
    assert later.metrics["surefoot/outcome"] == 0.0, "a gold answer is named, so the default recipe has an outcome"
    assert later.metrics["surefoot/alarm/unanswered"] == 1.0
    assert later.metrics["surefoot/alarm/filler"] == 0.0
    assert sum("Reward hacking: unanswered is 1.00" in record.getMessage() for record in caplog.records) == 1


@pytest.mark.skipif(INSTALLED, reason="verifiers is installed")
def test_the_rubric_needs_verifiers(scorer: surefoot.Scorer) -> None:
    with pytest.raises(MissingDependencyError, match="verifiers 0.1"):
        surefoot_rubric(scorer)


# --- verifiers 0.4: v1 -------------------------------------------------------------------------------------------


@pytest.fixture
def vf() -> Any:
    module = pytest.importorskip("verifiers.v1", reason="run by make test-verifiers")
    if not hasattr(module, "TraceTask"):
        pytest.skip("needs another version of verifiers")
    return module


def trace_of(vf: Any, task: Any, reply: str) -> Any:
    recorded = vf.TraceTask(type=type(task).__name__, data=task.data)
    agent = vf.AgentInfo(config=vf.AgentConfig(), name="policy", trainable=True, runtime=None)
    return vf.Trace(task=recorded, agent=agent, root_reply=reply)


def test_v1_scores_and_records(vf: Any, checkpoint: Path, scorer: surefoot.Scorer, tmp_path: Path) -> None:
    """A reward function that the config of a task refers to, as in the documentation of verifiers."""
    file = tmp_path / "rewards.py"
    file.write_text(
        "from surefoot.integrations.verifiers import reward_function\n"
        f"score = reward_function({str(checkpoint)!r}, 'outcome+process', gold='answer', wait=0.2)\n"
    )
    data_type = type("SumData", (vf.TaskData,), {"__annotations__": {"answer": str}})
    config = vf.TaskConfig(rewards={"prm": {"fn": f"{file}:score", "weight": 0.5}})
    task = vf.Task(data_type(prompt=QUESTION, answer="14"), config)
    traces = [trace_of(vf, task, reply) for reply in (SOLUTION, WRONG, "")]

    async def run() -> list[Any]:
        return list(await asyncio.gather(*(task.score(trace) for trace in traces), return_exceptions=True))

    outcomes = asyncio.run(run())
    low = scorer.score(QUESTION, SOLUTION).min
    assert low is not None
    assert outcomes[:2] == [None, None]
    assert traces[0].rewards["prm"].score == pytest.approx(0.7 + 0.3 * low, abs=1e-5)
    assert traces[0].rewards["prm"].value == pytest.approx(0.5 * traces[0].rewards["prm"].score)
    assert traces[0].metrics["surefoot/outcome"] == 1.0
    assert traces[1].rewards["prm"].score < 0.3
    assert isinstance(outcomes[2], vf.TaskError)
    assert "no steps" in str(outcomes[2]) + str(outcomes[2].__cause__)
    assert traces[2].rewards["prm"] is None, "not 0.0"


def test_v1_finds_the_default_reward_by_name(vf: Any, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUREFOOT_MODEL", str(checkpoint))
    config = vf.TaskConfig(rewards={"surefoot": {"fn": "surefoot.integrations.verifiers:reward"}})
    task = vf.Task(vf.TaskData(prompt=QUESTION), config)
    trace = trace_of(vf, task, SOLUTION)
    asyncio.run(task.score(trace))
    assert 0 < trace.rewards["surefoot"].score < 1


# --- verifiers 0.1: rubrics --------------------------------------------------------------------------------------


@pytest.fixture
def legacy() -> Any:
    module = pytest.importorskip("verifiers", reason="run by make test-verifiers")
    if not hasattr(module, "Rubric"):
        pytest.skip("needs another version of verifiers")
    return module


def state_of(reply: str, answer: str = "14") -> dict[str, Any]:
    return {
        "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}],
        "completion": [{"role": "assistant", "content": reply}],
        "answer": answer,
        "trajectory": [{"advantage": None, "reward": None}],
        "error": None,
    }


def test_a_missing_reward_is_not_zero_in_the_rubric(legacy: Any, scorer: surefoot.Scorer) -> None:
    counting = Counting(scorer)
    rubric = surefoot_rubric(counting, "outcome+process", weight=2.0)
    assert isinstance(rubric, legacy.Rubric)
    states = [state_of(SOLUTION), state_of(WRONG), state_of("")]
    asyncio.run(rubric.score_group(states))
    assert counting.calls == [3]
    low = scorer.score(QUESTION, SOLUTION).min
    assert low is not None
    assert states[0]["reward"] == pytest.approx(2 * (0.7 + 0.3 * low), abs=1e-5)
    assert states[0]["advantage"] == pytest.approx((states[0]["reward"] - states[1]["reward"]) / 2)
    assert states[0]["advantage"] == -states[1]["advantage"]
    assert states[0]["trajectory"] == [{"advantage": states[0]["advantage"], "reward": states[0]["reward"]}]
    assert states[0]["error"] is None
    assert math.isnan(states[2]["reward"])
    assert states[2]["advantage"] == 0.0
    assert states[2]["metrics"].keys() == states[0]["metrics"].keys(), "verifiers builds a table of them"
    assert states[2]["metrics"].keys() == {"outcome", "min", *(f"alarm/{name}" for name in THRESHOLDS)}
    assert isinstance(states[2]["error"], legacy.Error)
    alone = state_of(SOLUTION)
    asyncio.run(rubric.score_rollout(alone))
    assert alone["reward"] == pytest.approx(states[0]["reward"], abs=1e-5)
    assert alone["metrics"]["outcome"] == 1.0
    assert alone["trajectory"] == [{"advantage": None, "reward": None}], "a single rollout has no advantage"


def test_the_default_recipe_of_the_rubric(legacy: Any, scorer: surefoot.Scorer) -> None:
    """A rollout with a gold answer next to one without: the same metrics, each with its recipe."""
    states = [state_of(SOLUTION), state_of(SOLUTION, answer="")]
    asyncio.run(surefoot_rubric(scorer).score_group(states))
    for state, recipe in zip(states, ("outcome+process", "final+mean+correct_prefix"), strict=True):
        alone = state_of(SOLUTION, answer=state["answer"])
        asyncio.run(surefoot_rubric(scorer, recipe).score_rollout(alone))
        assert state["reward"] == pytest.approx(alone["reward"], abs=1e-5)
    assert states[0]["metrics"].keys() == states[1]["metrics"].keys()


def test_rubrics_of_verifiers_count_a_failure_as_zero(legacy: Any) -> None:
    """The reason for our own rubric: if this test fails, the older API is fixed and `surefoot_rubric` can go."""

    def failing(completion: Any) -> float:
        raise UnscoredError("the scorer failed")

    state = state_of(SOLUTION)
    asyncio.run(legacy.Rubric(funcs=[failing]).score_rollout(state))
    assert state["reward"] == 0.0


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """A small policy with random weights as an OpenAI-compatible server, on a loopback address."""
    write_base(folder, hidden_size=64)
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), eos_token="<|im_end|>")
    policy = AutoModelForCausalLM.from_pretrained(folder)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            ids = tokenizer(body["messages"][-1]["content"], return_tensors="pt")["input_ids"]
            with torch.no_grad():
                sampled = policy.generate(ids, do_sample=True, max_new_tokens=24, pad_token_id=tokenizer.eos_token_id)
            text = tokenizer.decode(sampled[0, ids.shape[1] :], skip_special_tokens=True)
            message = {"role": "assistant", "content": text}
            reply = {
                "id": "1",
                "object": "chat.completion",
                "created": 0,
                "model": "policy",
                "choices": [{"index": 0, "finish_reason": "length", "message": message}],
                "usage": {"prompt_tokens": 1, "completion_tokens": 24, "total_tokens": 25},
            }
            data = json.dumps(reply).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()


def test_real_rollouts_in_an_environment(legacy: Any, scorer: surefoot.Scorer, tmp_path: Path) -> None:
    """An environment of verifiers generates with a real policy and scores with the rubric, group by group."""
    from openai import AsyncOpenAI
    from verifiers.clients.openai_chat_completions_client import OpenAIChatCompletionsClient

    torch.manual_seed(0)
    dataset = Dataset.from_dict({"question": [QUESTION, "Add 3 and 4."], "answer": ["14", "7"]})
    env = legacy.SingleTurnEnv(dataset=dataset, rubric=surefoot_rubric(scorer))
    inputs = [row for row in env.get_dataset().to_list() for _ in range(4)]

    async def run(url: str) -> Any:
        client = OpenAIChatCompletionsClient(AsyncOpenAI(base_url=url, api_key="none"))
        return await env.generate(inputs, client=client, model="policy")

    with serving(tmp_path / "policy") as url:
        outputs = asyncio.run(run(url))["outputs"]
    assert len(outputs) == 8
    for output in outputs:
        reply = output["completion"][-1]["content"]
        expected = surefoot.compute_reward(output["prompt"][-1]["content"], reply, output["answer"], model=scorer)
        if expected.value is None:
            assert math.isnan(output["reward"])
        else:
            assert output["reward"] == pytest.approx(expected.value, abs=1e-5)
            assert output["metrics"]["min"] == pytest.approx(expected.terms["min"], abs=1e-5)
    assert len({output["reward"] for output in outputs}) > 1, "real rollouts differ"
