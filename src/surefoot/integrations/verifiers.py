"""Rewards for verifiers (and prime-rl): a hook for v1, and a rubric for the older API.

The rule: a rollout without a reward is a recorded error, never 0.0. v1 records an exception as the trace's error and
leaves its reward None. The older `Rubric` turns exceptions of reward functions into 0.0, so `surefoot_rubric` does
without them: such a rollout gets an error, the reward NaN and no advantage.

    [env.taskset.task.rewards]                                   v1, without code
    surefoot = { fn = "surefoot.integrations.verifiers:reward" }      the variable SUREFOOT_MODEL names the model
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from surefoot.errors import InputError, MissingDependencyError, UnscoredError
from surefoot.integrations.messages import completion_text, question_of
from surefoot.integrations.micro_batching import Gather
from surefoot.rewards.reward import Reward, RewardResult
from surefoot.rewards.source import Model, Source, shared

Hook = Callable[[Any, Any], Awaitable[float]]


def reward_hook(
    model: Model | None = None,
    recipe: str | Reward = "seed",
    *,
    gold: str | None = None,
    question: str | None = None,
    wait: float = 0.01,
    **options: Any,
) -> Hook:
    """A reward function for v1, `async def hook(task, trace) -> float`. Traces that end together are scored together.

    `gold` and `question` name fields of the task's data; without the latter the question is the task's prompt. The
    terms of the reward are recorded as metrics. Use it as `prm = vf.reward(weight=0.5)(reward_hook(...))`, in a file
    that the config names, or as a method's body.
    """
    source = Source(model, recipe, **options)
    gather: Gather[tuple[Any, Any, Any], RewardResult] = Gather(
        lambda asked: source.rewards(*(list(column) for column in zip(*asked, strict=True))), wait=wait
    )
    if gold is None and source.recipe.needs_gold:
        raise InputError(
            f"The recipe {source.recipe.name!r} compares with a gold answer. Name the field of the task's data that "
            'holds it: gold="answer", or choose a recipe without an outcome.'
        )

    async def surefoot_reward(task: Any, trace: Any) -> float:
        asked = task.prompt_text if question is None else getattr(task, question)
        result = await asyncio.wrap_future(
            gather.submit((asked, trace.last_reply, None if gold is None else getattr(task, gold)))
        )
        trace.record_metrics({f"surefoot/{name}": value for name, value in result.terms.items() if value is not None})
        if result.value is None:
            raise UnscoredError(f"This rollout has no reward: {result.reason}")
        return result.value

    return surefoot_reward


@shared
def _shared() -> Hook:
    return reward_hook()


async def reward(task: Any, trace: Any) -> float:
    """A hook to be named in a config: the recipe `seed`, and the model that the variable SUREFOOT_MODEL names."""
    return await _shared()(task, trace)


def surefoot_rubric(
    model: Model | None = None, recipe: str | Reward = "seed", *, weight: float = 1.0, **options: Any
) -> Any:
    """A rubric for the older API (`vf.Rubric`, verifiers 0.1). The gold answer is the dataset's `answer`.

    A group is scored in one call. Advantages are taken over the rollouts that have a reward.
    """
    try:
        from verifiers import Error, Rubric
    except ImportError as error:
        raise MissingDependencyError(
            f"{error}. The older API is in verifiers 0.1; with a newer one use reward_hook()."
        ) from error
    source = Source(model, recipe, **options)

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
            results = await asyncio.to_thread(rewards_of_states, source, states)
            for state, result in zip(states, results, strict=True):
                state["reward"] = math.nan if result.value is None else weight * result.value
                # Every rollout has every term: verifiers makes a table of the names that the first one has.
                state["metrics"] = {name: math.nan if value is None else value for name, value in result.terms.items()}
                if result.value is None:
                    state["error"] = Error(f"This rollout has no reward: {result.reason}")

    return SurefootRubric(funcs=[], weights=[])


def rewards_of_states(source: Source, states: Sequence[Mapping[str, Any]]) -> list[RewardResult]:
    """The rewards of rollouts of the older API. An empty answer is no gold answer."""
    return source.rewards(
        [question_of(state["prompt"]) for state in states],
        [completion_text(state["completion"]) for state in states],
        [state.get("answer") or None for state in states],
    )
