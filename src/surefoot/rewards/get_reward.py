"""Implement OpenRLHF's `/get_reward` protocol: parse request bodies into samples and rewards into replies.

Bodies and replies are those of OpenRLHF 0.11. A sample without a reward is null in `rewards`. OpenRLHF cannot skip
samples and stops on null, unless `missing` sets a number for it.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from surefoot.core.options import DEFAULT_OPTIONS, ReadOptions
from surefoot.errors import InputError, OptionError
from surefoot.rewards.reward import Reward, RewardResult
from surefoot.rewards.source import RewardSource, Sample, ScorerLike, warn_once

logger = logging.getLogger("surefoot")

STOP_TOKENS = ("</s>", "<eos>", "<end_of_turn>", "<pad>")
"""Special tokens at the end of responses, besides all those of the form `<|...|>`."""

_SPECIAL = re.compile(r"<[|\uff5c][^<>\s]{1,40}[|\uff5c]>")
_USER_TURNS = (
    ("<|im_start|>user\n", "<|im_end|>"),
    ("<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"),
    ("<start_of_turn>user\n", "<end_of_turn>"),
    ("[INST]", "[/INST]"),
    ("<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>"),
    ("<|user|>\n", "<|end|>"),
    ("<|user|>\n", "</s>"),
    ("<|user|>\n", "<|assistant|>"),
)
"""How user turns begin and end in common chat templates. They are searched as strings, because a regular expression for
the last turn takes quadratic time on a hostile prompt."""

NO_RESPONSE = "the query does not start with its prompt, so the response is unknown"
NO_QUESTION = "the regular expression for the question does not match the prompt"


def last_user_turn(prompt: str) -> str:
    """Return the last user turn of a prompt in a common chat template, or else the whole prompt."""
    for opening, ending in _USER_TURNS:
        # The last turn that ends, up to its first end.
        start = prompt.rfind(opening, 0, max(0, prompt.rfind(ending)))
        if start >= 0:
            start += len(opening)
            return prompt[start : prompt.find(ending, start)].strip()
    if found := _SPECIAL.search(prompt):
        warn_once(
            f"A prompt contains {found.group()!r} but no known chat template, so all of it becomes the question. "
            "To select the question, use the option `question`."
        )
    return prompt


class GetReward:
    """Answers `/get_reward` requests. Loads the model when the first sample arrives.

        handler = GetReward("Qwen/Qwen2.5-Math-PRM-7B", "outcome+process", missing=0.0)
        reply = handler.get_reward({"query": [prompt + response], "prompts": [prompt], "labels": ["14"]})

    `missing` is the reward of samples that have none. `question` is a regular expression whose first group is the
    question in a prompt. Without it, the question is the last user turn of a common chat template, or else the whole
    prompt. For `model`, `recipe`, `options` and `load` see `RewardSource`.
    """

    def __init__(
        self,
        model: ScorerLike | None = None,
        recipe: str | Reward | None = None,
        *,
        missing: float | None = None,
        question: str | None = None,
        stop_tokens: Sequence[str] = STOP_TOKENS,
        options: ReadOptions = DEFAULT_OPTIONS,
        load: Mapping[str, Any] | None = None,
    ) -> None:
        if missing is not None and not math.isfinite(missing):
            raise OptionError(f"missing={missing} is not a reward. Pass a finite number, or None.")
        self.source = RewardSource(model, recipe, options=options, load=load)
        self._missing, self._stop_tokens = missing, tuple(stop_tokens)
        self._question = None if question is None else re.compile(question, re.DOTALL)
        if self._question is not None and self._question.groups < 1:
            raise OptionError(f"question={question!r} has no group. Put parentheses around the question.")

    def get_reward(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Answer one request. Its lists may be empty."""
        return self.reply(self.source.rewards(self.samples(body)))

    def samples(self, body: Mapping[str, Any]) -> list[Sample]:
        """Parse the body of a request."""
        if not isinstance(body, Mapping):
            raise InputError(f'The body is {type(body).__name__}. Send {{"query": [...], "prompts": [...], ...}}.')
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
        question, response = self.find_question(prompt), self.find_response(query, prompt)
        error = NO_QUESTION if question is None else NO_RESPONSE if response is None else None
        # Without --data.label_key every label is an empty string.
        return Sample(question, response, None if label in (None, "") else label, error)

    def find_response(self, query: Any, prompt: Any) -> str | None:
        """Return the part of the query after the prompt, without special tokens at its end."""
        if not isinstance(query, str) or not isinstance(prompt, str) or not query.startswith(prompt):
            return None
        start, end = len(prompt), len(query)
        length = 0
        while True:
            end -= length
            while end > start and query[end - 1].isspace():
                end -= 1
            length = self._stop_token_length(query, start, end)
            if not length:
                return query[start:end]

    def _stop_token_length(self, query: str, start: int, end: int) -> int:
        """Return the length of the special token at the end of this part of the query, or 0."""
        for stop in self._stop_tokens:
            if stop and query.endswith(stop, start, end):
                return len(stop)
        opening = query.rfind("<", max(start, end - 50), end)
        return end - opening if opening >= 0 and _SPECIAL.fullmatch(query, opening, end) else 0

    def find_question(self, prompt: Any) -> Any:
        """Return the question in a prompt, or None if the regular expression for it does not match."""
        if not isinstance(prompt, str):
            return prompt
        if self._question is not None:
            match = self._question.search(prompt)
            return match[1].strip() if match and match[1] is not None else None
        return last_user_turn(prompt)

    def reply(self, results: Sequence[RewardResult]) -> dict[str, Any]:
        """Create the reply to a request."""
        rewards = [self._missing if result.value is None else result.value for result in results]
        for result in results:
            if result.value is None:
                logger.error("A sample has no reward and is sent as %s: %s", self._missing, result.reason)
        return {"rewards": rewards, "scores": [self._score(r) for r in results], "extra_logs": self._logs(results)}

    def _score(self, result: RewardResult) -> float | None:
        """Return what OpenRLHF filters samples by, from 0 to 1: the outcome if known, else the reward."""
        outcome = result.terms.get("outcome")
        value = result.value if outcome is None else outcome
        return self._missing if value is None else value

    def _logs(self, results: Sequence[RewardResult]) -> dict[str, float]:
        """Return means to log. OpenRLHF needs a number for every sample, so terms that may be missing are left out."""
        if not results:
            return {}
        columns = {"scored": [float(result.value is not None) for result in results]}
        columns["steps"] = [float(len(result.score.steps) if result.score else 0) for result in results]
        without_gold = self.source.recipe(gold=False).terms
        always = [term for term in self.source.recipe(gold=True).terms if term in without_gold]
        for term in always if self._missing is None else ():
            values = [value for result in results if (value := result.terms[term.name]) is not None]
            if term.weight and len(values) == len(results):
                columns[term.name] = values
        return {name: math.fsum(values) / len(values) for name, values in columns.items()}
