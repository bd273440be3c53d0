"""Read the probabilities of label tokens, such as ` Yes` and ` No`, after a prompt.

Invariant: a log-probability is the model's own, among all tokens of the vocabulary. A label that a server does not
report has none: nothing takes its place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from surefoot.errors import CheckpointError, ServiceError

if TYPE_CHECKING:
    from surefoot.generate.connection import Connection
    from surefoot.generate.detection import ServedModel

TOP_LOGPROBS = 20
"""How many tokens a completion lists at most, as vLLM's and OpenAI's limits are."""
TOP_PROBS = 1000
"""How many tokens llama.cpp lists."""
MISSING = "A label is not among the {count} most probable tokens, which are all that this server reports."
CUT = "The server did not read all {tokens} tokens of the prompt. It is longer than the server's context."
UNSUPPORTED = "This server does not report the probabilities of given tokens."


def label_ids(labels: Sequence[str], encoded: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return the token of each label. Raise `CheckpointError` unless each is one token, and all are different."""
    ids = tuple(each[0] for each in encoded if len(each) == 1)
    if len(ids) != len(labels) or len(set(ids)) != len(ids):
        raise CheckpointError(
            f"The labels {', '.join(map(repr, labels))} are not different single tokens of this vocabulary. Check that "
            "the tokenizer belongs to the model, or choose other labels."
        )
    return ids


async def read_logprobs(
    connection: Connection, served: ServedModel, prompt: Sequence[int], labels: Sequence[int]
) -> tuple[tuple[float, ...], int]:
    """Ask a server for the log-probabilities of tokens after a prompt. Return them and the number of requests.

    Raise a `ServiceError` if that fails.
    """
    try:
        if served.dialect == "vllm":
            return await _vllm(connection, served, prompt, labels)
        if served.dialect == "sglang":
            return await _sglang(connection, prompt, labels), 1
        if served.dialect == "llamacpp":
            return await _llamacpp(connection, served, prompt, labels), 1
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ServiceError(f"The server sent probabilities that cannot be read ({type(error).__name__}).") from error
    raise ServiceError(UNSUPPORTED)


async def _vllm(
    connection: Connection, served: ServedModel, prompt: Sequence[int], labels: Sequence[int]
) -> tuple[tuple[float, ...], int]:
    """vLLM reports the probability of one label per request. Older servers list the most probable tokens only."""
    from surefoot.client.transport import RejectedError  # needs httpx, which models in this process do not

    found = []
    for first in labels:
        body = {
            "model": served.name,
            "query": list(prompt[:-1]),
            "items": [[prompt[-1]]],
            "label_token_ids": [first, *(label for label in labels if label != first)],
            "apply_softmax": False,
            "add_special_tokens": False,
        }
        try:
            reply = await connection.ask("POST", "/generative_scoring", body)
        except RejectedError as error:
            if error.status not in (404, 405, 501):
                raise
            return await _completion(connection, served, prompt, labels), 1
        (item,) = reply["data"]
        if reply["usage"]["prompt_tokens"] != len(prompt):
            raise ServiceError(CUT.format(tokens=len(prompt)))
        found.append(_log(_number(item["score"])))
    return tuple(found), len(found)


async def _completion(
    connection: Connection, served: ServedModel, prompt: Sequence[int], labels: Sequence[int]
) -> tuple[float, ...]:
    body = {
        "model": served.name,
        "prompt": list(prompt),
        "max_tokens": 1,
        "temperature": 0.0,
        "logprobs": TOP_LOGPROBS,
        "return_tokens_as_token_ids": True,
    }
    reply = await connection.ask("POST", "/v1/completions", body)
    (top,) = reply["choices"][0]["logprobs"]["top_logprobs"]
    listed = {int(name.removeprefix("token_id:")): _number(value) for name, value in top.items()}
    return _select(listed, labels, len(listed))


async def _sglang(connection: Connection, prompt: Sequence[int], labels: Sequence[int]) -> tuple[float, ...]:
    body = {
        "input_ids": list(prompt),
        "sampling_params": {"max_new_tokens": 1, "temperature": 0.0},
        "return_logprob": True,
        "token_ids_logprob": list(labels),
        "stream": False,
    }
    reply = await connection.ask("POST", "/generate", body)
    (first,) = reply["meta_info"]["output_token_ids_logprobs"]
    listed = {int(entry[1]): _number(entry[0]) for entry in first}
    return _select(listed, labels, len(listed))


async def _llamacpp(
    connection: Connection, served: ServedModel, prompt: Sequence[int], labels: Sequence[int]
) -> tuple[float, ...]:
    body = {
        "model": served.name,
        "prompt": list(prompt),
        "n_predict": 1,
        "temperature": 0.0,
        "n_probs": TOP_PROBS,
        "post_sampling_probs": False,
        "stream": False,
        "cache_prompt": True,
    }
    reply = await connection.ask("POST", "/completion", body)
    listed = {int(entry["id"]): _number(entry["logprob"]) for entry in _top(reply["completion_probabilities"])}
    return _select(listed, labels, len(listed))


def _top(positions: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    (first,) = positions
    listed: Sequence[Mapping[str, Any]] = first["top_logprobs"]
    return listed


def _select(listed: Mapping[int, float], labels: Sequence[int], count: int) -> tuple[float, ...]:
    if any(label not in listed for label in labels):
        raise ServiceError(MISSING.format(count=count))
    return tuple(listed[label] for label in labels)


def _log(probability: float) -> float:
    return math.log(probability) if probability > 0 else -math.inf


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise TypeError("not a number")
    return float(value)
