"""Rewards in verifiers, both of its APIs; they are two versions of one package, so each test runs where its API is.

`make test-verifiers` brings both along, one after the other.
"""

from __future__ import annotations

import asyncio
import importlib.util
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import surefoot
from helpers.counting import Counting
from surefoot.errors import InputError, MissingDependencyError, UnscoredError
from surefoot.integrations.verifiers import reward_hook, surefoot_rubric

QUESTION = "What is 2 + 3 * 4?"
SOLUTION = "Step 1: 3 * 4 = 12.\nStep 2: 2 + 12 = 14.\nFinal Answer: 14"
WRONG = SOLUTION.replace("14", "15")
INSTALLED = importlib.util.find_spec("verifiers") is not None


class Recorded(SimpleNamespace):
    """What the hook asks of a trace."""

    def record_metrics(self, values: dict[str, float]) -> None:
        self.metrics = values


def test_the_hook_raises_where_there_is_no_reward(scorer: surefoot.Scorer) -> None:
    hook = reward_hook(scorer, "outcome+process", gold="answer")
    task = SimpleNamespace(prompt_text=QUESTION, answer="14")
    good, empty = Recorded(last_reply=SOLUTION), Recorded(last_reply="")
    low = scorer.score(QUESTION, SOLUTION).min
    assert low is not None
    assert asyncio.run(hook(task, good)) == pytest.approx(0.7 + 0.3 * low, abs=1e-5)  # type: ignore[arg-type]
    assert good.metrics == {"surefoot/outcome": 1.0, "surefoot/min": pytest.approx(low, abs=1e-5)}
    with pytest.raises(UnscoredError, match="has no steps"):
        asyncio.run(hook(task, empty))  # type: ignore[arg-type]
    assert empty.metrics == {"surefoot/outcome": 0.0}
    with pytest.raises(InputError, match='gold="answer"'):
        reward_hook(scorer, "outcome")


@pytest.mark.skipif(INSTALLED, reason="verifiers is there")
def test_the_rubric_says_what_is_missing(scorer: surefoot.Scorer) -> None:
    with pytest.raises(MissingDependencyError, match="verifiers 0.1"):
        surefoot_rubric(scorer)


# --- verifiers 0.4: v1 -------------------------------------------------------------------------------------------


@pytest.fixture
def vf() -> Any:
    module = pytest.importorskip("verifiers.v1", reason="make test-verifiers runs these")
    if not hasattr(module, "TraceTask"):
        pytest.skip("this version has another v1")
    return module


def trace_of(vf: Any, task: Any, reply: str) -> Any:
    recorded = vf.TraceTask(type=type(task).__name__, data=task.data)
    agent = vf.AgentInfo(config=vf.AgentConfig(), name="policy", trainable=True, runtime=None)
    return vf.Trace(task=recorded, agent=agent, root_reply=reply)


def test_v1_scores_and_records(vf: Any, checkpoint: Path, scorer: surefoot.Scorer, tmp_path: Path) -> None:
    """A function plugged in by the config of a task, as its documentation has it."""
    file = tmp_path / "rewards.py"
    file.write_text(
        "from surefoot.integrations.verifiers import reward_hook\n"
        f"score = reward_hook({str(checkpoint)!r}, 'outcome+process', gold='answer', wait=0.2)\n"
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
    assert traces[2].rewards["prm"] is None, "not the same as a reward of zero"


def test_v1_takes_the_shipped_hook_by_name(vf: Any, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUREFOOT_MODEL", str(checkpoint))
    config = vf.TaskConfig(rewards={"surefoot": {"fn": "surefoot.integrations.verifiers:reward"}})
    task = vf.Task(vf.TaskData(prompt=QUESTION), config)
    trace = trace_of(vf, task, SOLUTION)
    asyncio.run(task.score(trace))
    assert 0 < trace.rewards["surefoot"].score < 1


# --- verifiers 0.1: rubrics --------------------------------------------------------------------------------------


@pytest.fixture
def legacy() -> Any:
    module = pytest.importorskip("verifiers", reason="make test-verifiers runs these")
    if not hasattr(module, "Rubric"):
        pytest.skip("this version has no rubrics")
    return module


def state_of(reply: str, answer: str = "14") -> dict[str, Any]:
    return {
        "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}],
        "completion": [{"role": "assistant", "content": reply}],
        "answer": answer,
        "trajectory": [{"advantage": None, "reward": None}],
        "error": None,
    }


def test_a_failure_is_not_zero_in_the_rubric(legacy: Any, scorer: surefoot.Scorer) -> None:
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
    assert states[2]["metrics"].keys() == states[0]["metrics"].keys(), "verifiers makes a table of them"
    assert isinstance(states[2]["error"], legacy.Error)
    alone = state_of(SOLUTION)
    asyncio.run(rubric.score_rollout(alone))
    assert alone["reward"] == pytest.approx(states[0]["reward"], abs=1e-5)
    assert alone["metrics"]["outcome"] == 1.0
    assert alone["trajectory"] == [{"advantage": None, "reward": None}], "alone there is nothing to compare with"


def test_the_rubrics_of_verifiers_itself_make_zero_of_a_failure(legacy: Any) -> None:
    """Why there is a rubric of our own. If this fails, the older API has learnt better, and it can go."""

    def failing(completion: Any) -> float:
        raise UnscoredError("the scorer is gone")

    state = state_of(SOLUTION)
    asyncio.run(legacy.Rubric(funcs=[failing]).score_rollout(state))
    assert state["reward"] == 0.0
