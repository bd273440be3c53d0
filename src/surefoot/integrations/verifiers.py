"""Rewards for verifiers (and prime-rl): a reward function for v1, and a rubric for the older API.

Invariant: a rollout without a reward is a recorded error, never 0.0. v1 records an exception as the trace's error and
leaves its reward None. The older `Rubric` turns exceptions in reward functions into 0.0, so `surefoot_rubric` does not
use them: such a rollout gets an error, the reward NaN and no advantage.

    [env.taskset.task.rewards]                                   # v1, without code
    surefoot = { fn = "surefoot.integrations.verifiers:reward" }      # uses the model in SUREFOOT_MODEL
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from surefoot.core.options import DEFAULT_OPTIONS, ReadOptions
from surefoot.data.messages import completion_text, question_of
from surefoot.errors import InputError, MissingDependencyError, UnscoredError
from surefoot.integrations.batched_rewards import BatchedRewards
from surefoot.integrations.micro_batching import WAIT
from surefoot.rewards.recipes import default_recipe, find_recipe
from surefoot.rewards.reward import Reward
from surefoot.rewards.run_monitor import WINDOW, RunMonitor
from surefoot.rewards.source import RewardSource, Sample, ScorerLike, shared

RewardFunction = Callable[[Any, Any], Awaitable[float]]


def reward_function(
    model: ScorerLike | None = None,
    recipe: str | Reward | None = None,
    *,
    gold: str | None = None,
    question: str | None = None,
    wait: float = WAIT,
    options: ReadOptions = DEFAULT_OPTIONS,
    load: Mapping[str, Any] | None = None,
) -> RewardFunction:
    """Create a reward function for v1: `async def score(task, trace) -> float`.

        score = reward_function("Qwen/Qwen2.5-Math-PRM-7B", "outcome+process", gold="answer")
        prm = vf.reward(weight=0.5)(score)

    `gold` and `question` name fields of the task's data; by default, the question is the task's prompt. Traces that end
    within `wait` seconds are scored together. The terms of the reward and the alarms are recorded as metrics.
    Without a `recipe`, it is `outcome+process` if `gold` is given, else step scores only. For `model`, `options` and
    `load` see `surefoot.compute_reward`.
    """
    chosen = default_recipe(gold=gold is not None) if recipe is None else find_recipe(recipe)
    rewards = BatchedRewards(RewardSource(model, chosen, options=options, load=load), wait=wait)
    if gold is None and chosen.needs_gold:
        raise InputError(
            f"The recipe {chosen.name!r} needs gold answers. Name the field of the task's data with them: "
            'gold="answer". Or choose a recipe without an outcome.'
        )

    async def surefoot_reward(task: Any, trace: Any) -> float:
        asked = task.prompt_text if question is None else getattr(task, question)
        sample = Sample(asked, trace.last_reply, None if gold is None else getattr(task, gold))
        result = await asyncio.wrap_future(rewards.submit(sample))
        trace.record_metrics({f"surefoot/{name}": value for name, value in result.terms.items() if value is not None})
        trace.record_metrics({f"surefoot/alarm/{name}": value for name, value in rewards.alarms.items()})
        if result.value is None:
            raise UnscoredError(f"This rollout has no reward: {result.reason}")
        return result.value

    return surefoot_reward


@shared
def _shared() -> RewardFunction:
    return reward_function()


async def reward(task: Any, trace: Any) -> float:
    """Compute the reward with the default recipe and the model in the environment variable SUREFOOT_MODEL.

    Refer to this function in a config file.
    """
    return await _shared()(task, trace)


def surefoot_rubric(
    model: ScorerLike | None = None,
    recipe: str | Reward | None = None,
    *,
    weight: float = 1.0,
    options: ReadOptions = DEFAULT_OPTIONS,
    load: Mapping[str, Any] | None = None,
) -> Any:
    """Create a rubric for the older API (`vf.Rubric`, verifiers 0.1).

        env = vf.SingleTurnEnv(dataset=dataset, rubric=surefoot_rubric("mini", "outcome+process"))

    The gold answer is the dataset's `answer`. Each group is scored in one call, and advantages are computed over the
    rollouts that have a reward. For `model`, `recipe`, `options` and `load` see `surefoot.compute_reward`.
    """
    try:
        from verifiers import Error, Rubric
    except ImportError as error:
        raise MissingDependencyError(
            f'{error}. Rubrics need verifiers 0.1: pip install "verifiers<0.2". With v1, use reward_function().'
        ) from error
    source = RewardSource(model, recipe, options=options, load=load)
    monitor = RunMonitor(min_batch=WINDOW)

    class SurefootRubric(Rubric):  # type: ignore[misc]
        async def score_rollout(self, state: Any) -> None:
            await self._score([state])

        async def score_group(self, states: Sequence[Any]) -> None:
            await self._score(states)
            known = [state["reward"] for state in states if not math.isnan(state["reward"])]
            average = math.fsum(known) / len(known) if known else math.nan
            for state in states:
                state["advantage"] = 0.0 if math.isnan(state["reward"]) else state["reward"] - average
                for turn in state["trajectory"]:
                    for field in ("advantage", "reward"):
                        if turn[field] is None:
                            turn[field] = state[field]

        async def _score(self, states: Sequence[Any]) -> None:
            results = await asyncio.to_thread(source.rewards, [sample_of(state) for state in states])
            monitor.record(results)
            alarms = {f"alarm/{name}": value for name, value in monitor.alarms.items()}
            for state, result in zip(states, results, strict=True):
                state["reward"] = math.nan if result.value is None else weight * result.value
                # Every rollout needs every term: verifiers builds a table with the columns of the first one.
                terms = {term.name: result.terms.get(term.name) for term in source.terms}
                known = {name: math.nan if value is None else value for name, value in terms.items()}
                state["metrics"] = known | alarms
                if result.value is None:
                    state["error"] = Error(f"This rollout has no reward: {result.reason}")

    return SurefootRubric(funcs=[], weights=[])


def sample_of(state: Mapping[str, Any]) -> Sample:
    """Read a rollout of the older API. An empty answer means that there is no gold answer."""
    return Sample(question_of(state["prompt"]), completion_text(state["completion"]), state.get("answer") or None)
