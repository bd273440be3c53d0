"""OpenRLHF's `/get_reward` protocol: request bodies to samples, rewards to replies.

Bodies and replies are exactly those of OpenRLHF 0.11. A sample without a reward is null in `rewards`; OpenRLHF cannot
skip a sample and stops on it, unless `missing` sets a number for it.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from surefoot.core.result import SolutionScore
from surefoot.errors import InputError, OptionError
from surefoot.rewards.reward import Reward, RewardResult
from surefoot.rewards.source import Model, Source, say_once

logger = logging.getLogger("surefoot")

STOPS = ("</s>", "<eos>", "<end_of_turn>", "<pad>")
"""Special tokens that end a response; queries come with them. Those of the form `<|...|>` need not be named."""

_SPECIAL = re.compile(r"<[|\uff5c][^<>\s]{1,40}[|\uff5c]>")
_TURNS = (
    ("<|im_start|>user\n", "<|im_end|>"),
    ("<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"),
    ("<start_of_turn>user\n", "<end_of_turn>"),
    ("[INST]", "[/INST]"),
    ("<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>"),
    ("<|user|>\n", "<|end|>"),
    ("<|user|>\n", "</s>"),
    ("<|user|>\n", "<|assistant|>"),
)
"""What a turn of the user begins and ends with, in the chat templates in use. They are looked for as strings: a regular
expression for the last turn takes time that grows with the square of a hostile prompt."""


NO_RESPONSE = "the query does not begin with its prompt, so the response is not known"
NO_QUESTION = "the expression for the question is not in the prompt"


class Sample(NamedTuple):
    """What OpenRLHF asks about: a question, the response to it, the reference answer."""

    question: Any
    response: Any
    gold: Any
    lack: str | None = None
    """What could not be found in the query or in the prompt."""


class GetReward:
    """Answers `/get_reward` requests. Nothing is loaded before the first sample.

    `question` is a regular expression whose first group is the question in a prompt. Without it the last turn of the
    user is found in the usual chat templates; a prompt that has none of them is the question. `missing` is the reward
    of a sample that has none. `options` are those of `Source`: split, system, load, ...
    """

    def __init__(
        self,
        model: Model | None = None,
        recipe: str | Reward = "seed",
        *,
        missing: float | None = None,
        question: str | None = None,
        stops: Sequence[str] = STOPS,
        **options: Any,
    ) -> None:
        if missing is not None and not math.isfinite(missing):
            raise OptionError(f"missing={missing} is no reward. Give a finite number, or None.")
        self.source = Source(model, recipe, **options)
        self._missing, self._stops = missing, tuple(stops)
        self._own = None if question is None else re.compile(question, re.DOTALL)
        if self._own is not None and self._own.groups < 1:
            raise OptionError(f"question={question!r} has no group. Put the part that is the question in parentheses.")

    def get_reward(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The reply to the body of one request; lists may be empty."""
        return self.reply(self.rewards(self.samples(body)))

    def samples(self, body: Mapping[str, Any]) -> list[Sample]:
        """The samples of a request."""
        if not isinstance(body, Mapping):
            raise InputError(f'The body is {type(body).__name__}; send {{"query": [...], "prompts": [...], ...}}.')
        missing = [name for name in ("query", "prompts") if not isinstance(body.get(name), list | tuple)]
        if missing:
            raise InputError(f"The body has no list {' and no list '.join(map(repr, missing))}.")
        labels = body.get("labels")
        columns = [body["query"], body["prompts"], [None] * len(body["query"]) if labels is None else labels]
        if len({len(column) for column in columns}) > 1:
            sizes = ", ".join(str(len(column)) for column in columns)
            raise InputError(f"query, prompts and labels have different lengths: {sizes}.")
        return [self._sample(*row) for row in zip(*columns, strict=True)]

    def _sample(self, query: Any, prompt: Any, label: Any) -> Sample:
        question, response = self._question(prompt), self._response(query, prompt)
        lack = NO_QUESTION if question is None else NO_RESPONSE if response is None else None
        # Without --data.label_key every label is an empty string.
        return Sample(question, response, None if label in (None, "") else label, lack)

    def reward(self, sample: Sample, score: SolutionScore) -> RewardResult:
        """The reward of a sample that was scored."""
        return self.source.reward(score, sample.gold)

    def unread(self, sample: Sample, model: str = "") -> RewardResult:
        """What a sample gets that lacks something: no reward, and the reason."""
        terms = dict.fromkeys((term.name for term in self.source.recipe.terms), None)
        return RewardResult(None, terms, sample.lack, SolutionScore((), model, reason=sample.lack))

    def rewards(self, samples: Sequence[Sample]) -> list[RewardResult]:
        """Scores the samples together."""
        scores = iter(self.source.scores([(one.question, one.response) for one in samples if one.lack is None]))
        return [self.unread(one) if one.lack else self.reward(one, next(scores)) for one in samples]

    def _response(self, query: Any, prompt: Any) -> str | None:
        """What follows the prompt in a query, without the special tokens that end it."""
        if not isinstance(query, str) or not isinstance(prompt, str) or not query.startswith(prompt):
            return None
        start, end = len(prompt), len(query)
        length = 0
        while True:
            end -= length
            while end > start and query[end - 1].isspace():
                end -= 1
            length = self._stop_length(query, start, end)
            if not length:
                return query[start:end]

    def _stop_length(self, query: str, start: int, end: int) -> int:
        """How many characters the special token has that ends this part of the query, if one does."""
        for stop in self._stops:
            if stop and query.endswith(stop, start, end):
                return len(stop)
        opening = query.rfind("<", max(start, end - 50), end)
        return end - opening if opening >= 0 and _SPECIAL.fullmatch(query, opening, end) else 0

    def _question(self, prompt: Any) -> Any:
        if not isinstance(prompt, str):
            return prompt
        if self._own is not None:
            match = self._own.search(prompt)
            return match[1].strip() if match and match[1] is not None else None
        for opening, ending in _TURNS:
            # The last turn that ends, and its first ending.
            start = prompt.rfind(opening, 0, max(0, prompt.rfind(ending)))
            if start >= 0:
                start += len(opening)
                return prompt[start : prompt.find(ending, start)].strip()
        if found := _SPECIAL.search(prompt):
            say_once(
                f"A prompt holds {found.group()!r} and no chat template that is known, so all of it is taken for the "
                "question. Say where the question stands: question=..., a regular expression with a group."
            )
        return prompt

    def reply(self, results: Sequence[RewardResult]) -> dict[str, Any]:
        """What OpenRLHF is told."""
        rewards = [self._missing if result.value is None else result.value for result in results]
        for result in results:
            if result.value is None:
                logger.error("A sample has no reward, it is sent as %s: %s", self._missing, result.reason)
        return {"rewards": rewards, "scores": [self._score(r) for r in results], "extra_logs": self._logs(results)}

    def _score(self, result: RewardResult) -> float | None:
        """What OpenRLHF filters by, from 0 to 1: whether the answer is right, else the reward itself."""
        known = result.terms.get("outcome")
        value = result.value if known is None else known
        return self._missing if value is None else value

    def _logs(self, results: Sequence[RewardResult]) -> dict[str, float]:
        """OpenRLHF needs a number under each key for every sample, so only terms that cannot be missing are logged."""
        if not results:
            return {}
        columns = {"scored": [float(result.value is not None) for result in results]}
        columns["steps"] = [float(len(result.score.steps) if result.score else 0) for result in results]
        for term in self.source.recipe.terms if self._missing is None else ():
            values = [result.terms[term.name] for result in results]
            if term.weight and None not in values:
                columns[term.name] = [value for value in values if value is not None]
        return {name: math.fsum(values) / len(values) for name, values in columns.items()}
