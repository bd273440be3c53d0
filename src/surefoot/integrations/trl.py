"""Rewards for TRL's GRPOTrainer and RLOOTrainer.

Returns one reward per completion, in batch order, and None for a completion that could not be scored: these trainers
leave it out of the update. Combine all terms in one recipe: if there are several reward functions, TRL sums them and
counts a None among them as 0.0. TRL before 1.6 always counts None as 0.0, so there a missing reward raises.
"""

from __future__ import annotations

import asyncio
import functools
import json
import math
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from importlib import metadata
from typing import Any

from packaging.version import Version

from surefoot.core.options import DEFAULT_OPTIONS, ReadOptions
from surefoot.data.messages import completion_text, question_of
from surefoot.errors import InputError, UnscoredError
from surefoot.rewards.monitor import Monitor
from surefoot.rewards.recipes import default_recipe, find_recipe
from surefoot.rewards.reward import Reward, RewardResult
from surefoot.rewards.run_monitor import RunMonitor
from surefoot.rewards.source import RewardSource, Sample, ScorerLike, warn_once

Rewards = list[float | None]


class TRLReward:
    """A reward function with the signature that TRL's trainers call. Created by `reward_function`."""

    def __init__(self, source: RewardSource, *, gold: str | None, question: str | None, monitor: RunMonitor) -> None:
        self.source = source
        self.recipe = source.recipe(gold=gold is not None)
        self.monitor = monitor
        self._gold, self._question = gold, question
        self.__name__ = f"surefoot_{self.recipe.name}".replace("+", "_").replace("-", "_")

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Any] | None = None,
        *,
        log_extra: Callable[[str, list[Any]], None] | None = None,
        log_metric: Callable[[str, float], None] | None = None,
        trainer_state: Any = None,
        **columns: Any,
    ) -> Rewards:
        """Return the reward of every completion. `columns` are the other columns of the dataset."""
        results = self.results(prompts, completions, columns)
        missing = next((result.reason for result in results if result.value is None), None)
        if missing is not None and counts_none_as_zero():
            raise UnscoredError(
                f"A completion has no reward: {missing} This version of TRL would count it as 0.0 and train on that. "
                'Run: pip install --upgrade "trl>=1.6"'
            )
        if log_extra is not None:
            log_extra("step_scores", [_json(result) for result in results])
            log_extra("unscored_reason", [result.reason or "" for result in results])
        metrics = self._metrics(results)
        if log_metric is not None:
            if logging_can_deadlock():
                warn_once("No metrics are logged: TRL before 1.14 deadlocks if its processes log different metrics.")
            else:
                for name, value in metrics.items():
                    log_metric(f"surefoot/{name}", value)
        return [result.value for result in results]

    def results(
        self, prompts: Sequence[Any], completions: Sequence[Any], columns: Mapping[str, Any]
    ) -> list[RewardResult]:
        """Return the rewards with their terms and scores."""
        questions: Iterable[Any] = map(question_of, prompts)
        if self._question is not None:
            questions = _column(self._question, columns)
        golds: Iterable[Any] = [None] * len(completions)
        if self._gold is not None:
            golds = _column(self._gold, columns)
        elif self.recipe.needs_gold:
            raise InputError(
                f"The recipe {self.recipe.name!r} needs gold answers. Name the dataset column with them: "
                'reward_function(..., gold="answer"). Or choose a recipe without an outcome.'
            )
        rows = zip(questions, map(completion_text, completions), golds, strict=True)
        return self.source.rewards([Sample(*row) for row in rows])

    def _metrics(self, results: Sequence[RewardResult]) -> dict[str, float]:
        """Return the mean of each term over the completions that have it, the metrics of the monitor and its alarms."""
        metrics = {}
        for term in self.recipe.terms:
            known = [value for result in results if (value := result.terms[term.name]) is not None]
            if known:
                metrics[term.name] = math.fsum(known) / len(known)
        metrics |= {f"monitor/{name}": value for name, value in self.monitor.record(results).items()}
        return metrics | {f"alarm/{name}": value for name, value in self.monitor.alarms.items()}


def _column(name: str, columns: Mapping[str, Any]) -> Sequence[Any]:
    if name not in columns:
        raise InputError(f"The dataset has no column {name!r}. It has: {', '.join(columns) or 'none'}.")
    column: Sequence[Any] = columns[name]
    return column


def counts_none_as_zero() -> bool:
    """Return whether the installed TRL counts a completion without a reward as 0.0, as it did before 1.6."""
    return trl_before(1, 6)


def logging_can_deadlock() -> bool:
    """Return whether processes that log different metrics would wait for each other, as in TRL before 1.14.

    Which metrics a batch has differs between processes: one may have no wrong answer, or nothing scored.
    """
    return int(os.environ.get("WORLD_SIZE") or 1) > 1 and trl_before(1, 14)


@functools.cache
def trl_before(major: int, minor: int) -> bool:
    """Whether the installed TRL is older than this version."""
    try:
        return Version(metadata.version("trl")).release[:2] < (major, minor)
    except metadata.PackageNotFoundError:
        return False


def _json(result: RewardResult) -> str:
    """Return the step scores with the precision that a table needs."""
    scores = [] if result.score is None else result.score.step_scores
    return json.dumps([None if score is None else round(score, 3) for score in scores])


def reward_function(
    model: ScorerLike | None = None,
    recipe: str | Reward | None = None,
    *,
    gold: str | None = None,
    question: str | None = None,
    monitor: Monitor | None = None,
    options: ReadOptions = DEFAULT_OPTIONS,
    load: Mapping[str, Any] | None = None,
) -> TRLReward:
    """Create a reward function for `reward_funcs`. Loads the model when the first batch arrives.

        reward = reward_function("Qwen/Qwen2.5-Math-PRM-7B", "outcome+process", gold="answer")
        trainer = GRPOTrainer(model=policy, reward_funcs=reward, train_dataset=dataset)

    `gold` names the dataset column with the reference answer, and `question` the one with the question; by default,
    the question is the prompt, or the last user message of a conversation. `monitor` computes the logged
    reward-hacking metrics; its alarms are also logged as warnings. Without a `recipe`, it is `outcome+process` if
    `gold` is given, else step scores only. For `model`, `options` and `load` see `surefoot.compute_reward`.
    """
    chosen = default_recipe(gold=gold is not None) if recipe is None else find_recipe(recipe)
    source = RewardSource(model, chosen, options=options, load=load)
    return TRLReward(source, gold=gold, question=question, monitor=RunMonitor(monitor))


def async_reward_function(
    model: ScorerLike | None = None, recipe: str | Reward | None = None, **options: Any
) -> Callable[..., Awaitable[Rewards]]:
    """Create a reward function like `reward_function`, but as a coroutine function.

        trainer = GRPOTrainer(model=policy, reward_funcs=[async_reward_function("mini", "min"), other], ...)

    TRL runs asynchronous reward functions concurrently.
    """
    reward = reward_function(model, recipe, **options)

    # A function and not a callable object: older TRL checks inspect.iscoroutinefunction, which is False for objects.
    async def rewards(*, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> Rewards:
        return await asyncio.to_thread(reward, prompts, completions, **columns)

    rewards.__doc__ = TRLReward.__call__.__doc__
    rewards.__name__ = rewards.__qualname__ = reward.__name__
    return rewards
