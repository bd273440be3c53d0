"""Every integration accepts every kind of scorer: loaded, by folder, on a service and on a vLLM server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

import surefoot
from helpers.serving import served
from surefoot.integrations import openrlhf, slime, trl, verifiers, verl
from surefoot.rewards.source import ScorerLike, forget_shared

QUESTION = "What is 2 + 3 * 4?"
SOLUTION = "Step 1: 3 * 4 = 12.\nStep 2: 2 + 12 = 14.\nFinal Answer: 14"
OPTIONS = surefoot.ReadOptions(closing=False, system="Be brief.")


class Kind(NamedTuple):
    model: ScorerLike
    load: Mapping[str, Any]


@pytest.fixture(scope="module")
def service(scorer: surefoot.Scorer) -> Iterator[str]:
    """A service, which also implements vLLM's /pooling."""
    with served([scorer]) as (url, _):
        yield url


@pytest.fixture(params=["scorer", "folder", "service", "vllm"])
def kind(request: pytest.FixtureRequest, scorer: surefoot.Scorer, checkpoint: Path, service: str) -> Iterator[Kind]:
    yield {
        "scorer": Kind(scorer, {}),
        "folder": Kind(checkpoint, {"max_tokens": 4000}),
        "service": Kind(service, {"timeout": 30.0}),
        "vllm": Kind(f"vllm+{service}", {"tokenizer": checkpoint}),
    }[request.param]
    forget_shared()


def with_compute_reward(kind: Kind) -> float | None:
    result = surefoot.compute_reward(
        QUESTION, SOLUTION, model=kind.model, recipe="min", options=OPTIONS, load=kind.load
    )
    return result.value


def with_trl(kind: Kind) -> float | None:
    reward = trl.reward_function(kind.model, "min", options=OPTIONS, load=kind.load)
    return reward(prompts=[QUESTION], completions=[SOLUTION])[0]


def with_trl_async(kind: Kind) -> float | None:
    reward = trl.async_reward_function(kind.model, "min", options=OPTIONS, load=kind.load)

    async def run() -> list[float | None]:
        return await reward(prompts=[QUESTION], completions=[SOLUTION])

    return asyncio.run(run())[0]


def with_openrlhf(kind: Kind) -> float | None:
    reward = openrlhf.OpenRLHFReward(kind.model, "min", options=OPTIONS, load=kind.load)
    value: float | None = reward([QUESTION + SOLUTION], [QUESTION], [""])["rewards"][0]
    return value


def with_verl(kind: Kind) -> float | None:
    flat: dict[str, Any] = {"closing": False, "system": "Be brief.", **kind.load}
    extra_info = {"question": QUESTION}
    return verl.compute_score("any", SOLUTION, None, extra_info, model=kind.model, recipe="min", **flat)["score"]


def with_verifiers(kind: Kind) -> float | None:
    reward = verifiers.reward_function(kind.model, "min", options=OPTIONS, load=kind.load)
    task = SimpleNamespace(prompt_text=QUESTION)
    trace = SimpleNamespace(last_reply=SOLUTION, record_metrics=lambda values: None)

    async def run() -> float:
        return await reward(task, trace)

    return asyncio.run(run())


def with_slime(kind: Kind) -> float | None:
    reward = slime.SlimeReward(kind.model, "min", options=OPTIONS, load=kind.load)
    sample = SimpleNamespace(prompt=QUESTION, response=SOLUTION, label=None, metadata={})

    async def run() -> float | None:
        value: float | None = await reward(SimpleNamespace(reward_key=None), sample)
        return value

    return asyncio.run(run())


@pytest.mark.parametrize(
    "compute", [with_compute_reward, with_trl, with_trl_async, with_openrlhf, with_verl, with_verifiers, with_slime]
)
def test_the_reward_is_the_same(kind: Kind, compute: Callable[[Kind], float | None], scorer: surefoot.Scorer) -> None:
    expected = scorer.score(QUESTION, SOLUTION, OPTIONS).min
    assert compute(kind) == pytest.approx(expected, abs=1e-5)
    assert expected != pytest.approx(scorer.score(QUESTION, SOLUTION).min, abs=1e-4), "the options matter here"
