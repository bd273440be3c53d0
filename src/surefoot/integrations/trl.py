"""Rewards for TRL's GRPOTrainer and RLOOTrainer.

The rule: one reward a completion, in the order of the batch; None, which these trainers pass over, for a completion
that could not be scored. Put everything that makes up the reward into one recipe: TRL adds up several reward functions,
and a None among numbers counts as 0.0 there, while a completion without any reward is left out of the update. Before
version 1.6 TRL made 0.0 of that too, so with an older one a completion without a reward is an error.

    trainer = GRPOTrainer(..., reward_funcs=reward_function(MODEL, "outcome+process", gold="answer"))
"""

from __future__ import annotations

import asyncio
import functools
import json
import math
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib import metadata
from typing import Any

from packaging.version import Version

from surefoot.errors import InputError, UnscoredError
from surefoot.integrations.messages import completion_text, question_of
from surefoot.rewards.monitor import Watch
from surefoot.rewards.reward import Reward, RewardResult
from surefoot.rewards.source import Model, Source, say_once

Rewards = list[float | None]


class TRLReward:
    """A reward function for TRL, with the keywords that its trainers call it with. Made by `reward_function`."""

    def __init__(self, source: Source, *, gold: str | None, question: str | None, watch: Watch | None) -> None:
        self.source = source
        self.watch = watch
        self._gold, self._question = gold, question
        self.__name__ = f"surefoot_{source.recipe.name}".replace("+", "_").replace("-", "_")

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
        """The reward of every completion. Other columns of the dataset arrive by their names."""
        results = self.results(prompts, completions, columns)
        missing = next((result.reason for result in results if result.value is None), None)
        if missing is not None and makes_zero_of_none():
            raise UnscoredError(
                f"A completion has no reward: {missing} This version of TRL would make 0.0 of it and train on that. "
                'Run: pip install --upgrade "trl>=1.6"'
            )
        if log_extra is not None:
            self._log_columns(results, log_extra)
        if log_metric is not None:
            if logs_may_hang():
                say_once("No metrics are logged: with several processes that takes TRL 1.14 or newer.")
            else:
                self._log_metrics(results, log_metric)
        return [result.value for result in results]

    def results(
        self, prompts: Sequence[Any], completions: Sequence[Any], columns: Mapping[str, Any]
    ) -> list[RewardResult]:
        """The whole results behind the rewards."""
        questions = columns[self._column(self._question, columns)] if self._question else map(question_of, prompts)
        golds = columns[self._column(self._gold, columns)] if self._gold else None
        if golds is None and self.source.recipe.needs_gold:
            raise InputError(
                f"The recipe {self.source.recipe.name!r} compares with a gold answer. Name the dataset's column that "
                'holds it: reward_function(..., gold="answer"), or choose a recipe without an outcome.'
            )
        return self.source.rewards(list(questions), [completion_text(text) for text in completions], golds)

    @staticmethod
    def _column(name: str, columns: Mapping[str, Any]) -> str:
        if name not in columns:
            raise InputError(f"The dataset has no column {name!r}. It has: {', '.join(columns) or 'none'}.")
        return name

    def _log_columns(self, results: Sequence[RewardResult], log_extra: Callable[[str, list[Any]], None]) -> None:
        log_extra("step_scores", [_json(result) for result in results])
        log_extra("not_rewarded", [result.reason or "" for result in results])

    def _log_metrics(self, results: Sequence[RewardResult], log_metric: Callable[[str, float], None]) -> None:
        """Means over the completions that have the term. A metric that nothing stands behind is not logged."""
        for term in self.source.recipe.terms:
            known = [value for result in results if (value := result.terms[term.name]) is not None]
            if known:
                log_metric(f"surefoot/{term.name}", math.fsum(known) / len(known))
        if self.watch is not None:
            for name, value in self.watch.observe(results).items():
                log_metric(f"surefoot/watch/{name}", value)


def makes_zero_of_none() -> bool:
    """Whether the installed TRL counts a completion without any reward as 0.0, as it did before 1.6."""
    return _before(1, 6)


def logs_may_hang() -> bool:
    """Whether processes that log different metrics would wait for each other for ever, as in TRL before 1.14.

    What can be told of a batch differs from process to process: one may have no wrong answer, or nothing scored.
    """
    return int(os.environ.get("WORLD_SIZE") or 1) > 1 and _before(1, 14)


@functools.cache
def _before(major: int, minor: int) -> bool:
    try:
        return Version(metadata.version("trl")).release[:2] < (major, minor)
    except metadata.PackageNotFoundError:
        return False


def _json(result: RewardResult) -> str:
    return json.dumps([] if result.score is None else result.score.step_scores)


def reward_function(
    model: Model | None = None,
    recipe: str | Reward = "seed",
    *,
    gold: str | None = None,
    question: str | None = None,
    watch: Watch | None = None,
    **options: Any,
) -> TRLReward:
    """A reward function for `reward_funcs`. Nothing is loaded before the first batch.

    `gold` names the dataset's column with the reference answer, `question` the one with the bare question; without it
    the question is the prompt, or the last user message of a conversation. `watch` keeps an eye on the batches and logs
    what it sees (a new Watch unless you give one). `options` are those of `Source`: split, system, load, ...
    """
    return TRLReward(Source(model, recipe, **options), gold=gold, question=question, watch=watch or Watch())


def async_reward_function(*args: Any, **options: Any) -> Callable[..., Awaitable[Rewards]]:
    """As `reward_function`, but a coroutine function: TRL runs it beside other asynchronous rewards."""
    reward = reward_function(*args, **options)

    # A plain coroutine function, because older TRL asks inspect.iscoroutinefunction, which no callable object passes.
    async def scored(*, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> Rewards:
        return await asyncio.to_thread(reward, prompts, completions, **columns)

    scored.__doc__ = TRLReward.__call__.__doc__
    scored.__name__ = scored.__qualname__ = reward.__name__
    return scored
