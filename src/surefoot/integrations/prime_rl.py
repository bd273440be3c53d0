"""Per-token advantages for prime-rl: step scores decide which tokens of a rollout get its credit.

prime-rl has no setting that names an algorithm of another package, so put ours in the place of `grpo` and start the
orchestrator from Python:

    from prime_rl.entrypoints.orchestrator import main
    from prime_rl.orchestrator.algo import ALGORITHM_CLASSES

    ALGORITHM_CLASSES["grpo"] = surefoot_algorithm("Qwen/Qwen3-1.7B", "Qwen/Qwen2.5-Math-PRM-7B", gold="answer")
    main()

Invariant: a rollout without a reward is not in the group's mean and gets no advantage. Written for prime-rl 0.8.0,
commit 559b447 (`Algorithm.score_group`, `assign_advantages`), and verifiers 0.4.0 (`Trace`, `MessageNode`).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from surefoot.core.options import DEFAULT_OPTIONS, ReadOptions
from surefoot.errors import InputError, MissingDependencyError
from surefoot.integrations.token_spans import decode_with_spans, load_tokenizer
from surefoot.rewards.recipes import default_recipe, find_recipe
from surefoot.rewards.reward import Reward
from surefoot.rewards.run_monitor import RunMonitor
from surefoot.rewards.source import RewardSource, Sample, ScorerLike
from surefoot.rewards.token_rewards import TokenRewards, process_token_rewards


class StepAdvantages:
    """Computes advantages for the sampled tokens of a group of traces.

        advantages = StepAdvantages("Qwen/Qwen3-1.7B", "Qwen/Qwen2.5-Math-PRM-7B", "outcome+process", gold="answer")
        assign_advantages(trace, (await advantages.compute([trace, other]))[0])

    As in GRPO, each part of the reward is compared with its mean over the group. The outcome counts for all tokens. The
    process terms count for a token as far as they lie on this or a later token: with `min`, for all tokens up to the
    end of the lowest-scored step, so what follows it is not blamed for it.

    `tokenizer` is that of the policy: an object, a hub id or a folder. `gold` and `question` name fields of the task's
    data; by default, the question is the task's prompt. For `model`, `recipe`, `options` and `load` see
    `surefoot.compute_reward`.
    """

    def __init__(
        self,
        tokenizer: Any,
        model: ScorerLike | None = None,
        recipe: str | Reward | None = None,
        *,
        gold: str | None = None,
        question: str | None = None,
        options: ReadOptions = DEFAULT_OPTIONS,
        load: Mapping[str, Any] | None = None,
    ) -> None:
        self.recipe = default_recipe(gold=gold is not None) if recipe is None else find_recipe(recipe)
        if gold is None and self.recipe.needs_gold:
            raise InputError(
                f"The recipe {self.recipe.name!r} needs gold answers. Name the field of the task's data with them: "
                'gold="answer". Or choose a recipe without an outcome.'
            )
        self.source = RewardSource(model, self.recipe, options=options, load=load)
        self.tokenizer = load_tokenizer(tokenizer)
        self._gold, self._question = gold, question
        self._monitor = RunMonitor()

    async def compute(self, traces: Sequence[Any]) -> list[list[float]]:
        """Return the advantages of the sampled tokens of each trace, in the order of its nodes.

        The terms of the reward and the alarms are recorded as metrics of the trace.
        """
        texts = [decode_with_spans(self.tokenizer, _sampled(trace)) for trace in traces]
        samples = [self._sample(trace, text) for trace, (text, _) in zip(traces, texts, strict=True)]
        results = await asyncio.to_thread(self.source.rewards, samples)
        self._monitor.record(results)
        for trace, result in zip(traces, results, strict=True):
            known = {f"surefoot/{name}": value for name, value in result.terms.items() if value is not None}
            trace.record_metrics(known | {f"surefoot/alarm/{name}": on for name, on in self._monitor.alarms.items()})
        tokens = [
            process_token_rewards(result, self.recipe, spans) for result, (_, spans) in zip(results, texts, strict=True)
        ]
        return group_advantages([result.value for result in results], tokens, [len(spans) for _, spans in texts])

    def _sample(self, trace: Any, text: str) -> Sample:
        data = trace.task.data
        question = data.prompt_text if self._question is None else getattr(data, self._question)
        return Sample(question, text, None if self._gold is None else getattr(data, self._gold))


def group_advantages(
    values: Sequence[float | None], tokens: Sequence[TokenRewards], lengths: Sequence[int]
) -> list[list[float]]:
    """Return the advantages of a group from its rewards and their process parts. `lengths` are numbers of tokens.

    A reward that is alone in its group cannot be compared, so it gives no advantage.
    """
    known = [
        (value, each.total)
        for value, each in zip(values, tokens, strict=True)
        if value is not None and each.total is not None
    ]
    if len(known) < 2:
        return [[0.0] * length for length in lengths]
    process = math.fsum(total for _, total in known) / len(known)
    rest = math.fsum(value - total for value, total in known) / len(known)
    advantages = []
    for value, each, length in zip(values, tokens, lengths, strict=True):
        if value is None or each.total is None or each.rewards is None:
            advantages.append([0.0] * length)
            continue
        credited = max((at for at, reward in enumerate(each.rewards) if reward), default=length - 1)
        later = list(accumulate(reversed(each.rewards)))[::-1]
        own = value - each.total - rest
        advantages.append([own + (later[at] - process if at <= credited else 0.0) for at in range(length)])
    return advantages


def _sampled(trace: Any) -> list[int]:
    """Return the sampled tokens of a trace, in the order in which prime-rl assigns advantages."""
    return [token for node in trace.nodes for token, sampled in zip(node.token_ids, node.mask, strict=True) if sampled]


def surefoot_algorithm(
    tokenizer: Any, model: ScorerLike | None = None, recipe: str | Reward | None = None, **options: Any
) -> Any:
    """Create an algorithm class for `ALGORITHM_CLASSES`. The options are those of `StepAdvantages`."""
    try:
        from prime_rl.orchestrator.algo.base import Algorithm, iter_trainable_traces
        from prime_rl.orchestrator.algo.routing import assign_advantages
    except ImportError as error:
        raise MissingDependencyError(f"{error}. This class runs inside prime-rl's orchestrator.") from error
    advantages = StepAdvantages(tokenizer, model, recipe, **options)

    class SurefootAlgorithm(Algorithm):  # type: ignore[misc]
        async def score_group(self, episodes: Sequence[Any]) -> None:
            traces = [trace for _, trace in iter_trainable_traces(episodes)]
            for trace, values in zip(traces, await advantages.compute(traces), strict=True):
                assign_advantages(trace, values)

    return SurefootAlgorithm
