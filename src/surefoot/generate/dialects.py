"""The dialects of generation servers: request bodies, and how their replies tell end states apart.

Invariant: an end state is what the server says. A reply that does not tell a stop string from the end of the answer is
an error, never a guess.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from surefoot.core.generation import EndState, GenerationRequest, end_at
from surefoot.errors import ServiceError
from surefoot.generate.detection import DialectName, ServedModel
from surefoot.tokenization.settings import Message

COMPLETIONS, CHAT, NATIVE = "/v1/completions", "/v1/chat/completions", "/completion"
STOPPED_BY = {"vllm": "stop_reason", "sglang": "matched_stop"}
"""The field that names the stop string, or the token that ended the answer."""
NEUTRAL = {"min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
LLAMACPP_NEUTRAL = {
    # Temperature first, as in the other servers: top_p then applies to the tempered distribution.
    "samplers": ["temperature", "top_k", "top_p"],
    "min_p": 0.0,
    "typical_p": 1.0,
    "top_n_sigma": -1.0,
    "xtc_probability": 0.0,
    "dynatemp_range": 0.0,
    "repeat_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "dry_multiplier": 0.0,
    "mirostat": 0,
}
LLAMACPP_FIELDS = ["content", "stop_type", "stopping_word", "tokens_predicted", "truncated"]


@dataclass(frozen=True)
class Outcome:
    """One continuation in a reply. What the reply does not say is None."""

    text: str
    end: EndState
    tokens: int | None
    reason: str | None = None


@dataclass(frozen=True)
class Reply:
    """What a server answered."""

    outcomes: tuple[Outcome, ...]
    prompt_tokens: int | None = None


@dataclass(frozen=True)
class Order:
    """One request to a server, for `n` continuations of a `GenerationRequest`: those from index `first` on."""

    request: GenerationRequest
    model: ServedModel
    first: int
    n: int
    max_tokens: int
    ids: Sequence[int] | None = None
    """The prompt with the prefix; None if the server renders `messages`."""
    messages: Sequence[Message] = ()
    limit_name: str = "max_tokens"
    """How a chat server calls the limit of tokens."""

    @property
    def seeds(self) -> list[int]:
        """The seeds of the continuations."""
        return [self.request.seed_of(self.first + at) for at in range(self.n)]


def takes_n(dialect: DialectName, request: GenerationRequest) -> bool:
    """Whether one request can ask for all continuations. vLLM gives the one with index i the seed `seed + i`.

    It refuses `n` above 1 with greedy decoding.
    """
    return dialect == "vllm" and not request.sampling.greedy and request.seed_of(request.n - 1) >= request.seed_of(0)


def path_of(order: Order) -> str:
    """The endpoint for a request."""
    if order.ids is None:
        return CHAT
    return NATIVE if order.model.dialect == "llamacpp" else COMPLETIONS


def body_of(order: Order) -> dict[str, Any]:
    """The body of a request. All sampling options are sent, because servers have different defaults."""
    if path_of(order) == NATIVE:
        return _native_body(order)
    sampling, dialect = order.request.sampling, order.model.dialect
    body: dict[str, Any] = {
        "model": order.model.name,
        "n": order.n,
        order.limit_name: order.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": order.seeds[0],
        "stream": False,
    }
    if order.request.step_ends:
        body["stop"] = list(order.request.step_ends)
    if dialect in ("vllm", "sglang"):
        none = 0 if dialect == "vllm" else -1
        body |= NEUTRAL | {"top_k": sampling.top_k or none}
    elif dialect == "llamacpp":
        body |= LLAMACPP_NEUTRAL | {"top_k": sampling.top_k}
    if order.ids is not None:
        return body | {"prompt": list(order.ids), "return_token_ids": True}
    body["messages"] = list(order.messages)
    if dialect == "sglang":
        # Without the field, SGLang turns the beginning of an answer into a user message.
        body |= {"continue_final_message": bool(order.request.prefix), "separate_reasoning": False}
    return body


def _native_body(order: Order) -> dict[str, Any]:
    """llama.cpp's own endpoint, because only that says how a continuation ended."""
    sampling = order.request.sampling
    return LLAMACPP_NEUTRAL | {
        "model": order.model.name,
        "prompt": list(order.ids or ()),
        "n_predict": order.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "seed": order.seeds[0],
        "stop": list(order.request.step_ends),
        "stream": False,
        "cache_prompt": True,
        "response_fields": LLAMACPP_FIELDS,
    }


def read_reply(order: Order, reply: Any) -> Reply:
    """Read a reply. Raise a `ServiceError` if it is malformed."""
    try:
        found = _native(order, reply) if path_of(order) == NATIVE else _choices(order, reply)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ServiceError(f"The server sent a malformed reply ({type(error).__name__}: {error}).") from error
    if len(found.outcomes) != order.n:
        raise ServiceError(f"The server returned {len(found.outcomes)} continuations instead of {order.n}.")
    return found


def _native(order: Order, reply: Mapping[str, Any]) -> Reply:
    kind, text = reply["stop_type"], _text(reply["content"])
    outcome: tuple[str, EndState, str | None]
    if reply.get("truncated"):
        outcome = text, "error", "The server discarded a part of the prompt. Start it without context shift."
    # At the end of the context, llama.cpp reports a limit even if the stop string has just been found and cut off.
    elif kind == "word" or (kind == "limit" and reply.get("stopping_word")):
        outcome = _stopped(order, text, reply.get("stopping_word"))
    elif kind == "eos":
        outcome = text, "answer", None
    elif kind == "limit":
        outcome = text, "cut_off", None
    else:
        outcome = text, "error", f"The server ended a continuation with stop_type {kind!r}, which is unknown."
    return Reply((_outcome(order, *outcome, _count(reply.get("tokens_predicted"))),), len(order.ids or ()))


def _choices(order: Order, reply: Mapping[str, Any]) -> Reply:
    usage = reply.get("usage") or {}
    choices = sorted(reply["choices"], key=lambda choice: int(choice["index"]))
    if [choice["index"] for choice in choices] != list(range(len(choices))):
        raise ValueError("two continuations have the same index")
    outcomes = []
    for choice in choices:
        ids = choice.get("token_ids")
        tokens = len(ids) if ids else _count(usage.get("completion_tokens")) if len(choices) == 1 else None
        outcomes.append(_outcome(order, *_ended(order, choice), tokens))
    return Reply(tuple(outcomes), _count(usage.get("prompt_tokens")))


def _ended(order: Order, choice: Mapping[str, Any]) -> tuple[str, EndState, str | None]:
    """The text of a choice, how it ended, and why it failed."""
    finish = choice["finish_reason"]
    if order.ids is not None:
        text = _text(choice["text"])
    else:
        message = choice["message"]
        if message.get("refusal"):
            return "", "error", f"The model refused to answer: {str(message['refusal'])[:200]}"
        text = _text(message.get("content") or "")
    if finish == "length":
        return text, "cut_off", None
    if finish != "stop":
        return text, "error", f"The server ended a continuation with finish_reason {finish!r}."
    if not order.request.step_ends:
        return text, "answer", None
    field = STOPPED_BY.get(order.model.dialect)
    if field is None or field not in choice:
        return text, "error", "The server does not say whether a step or the whole answer ended."
    return _stopped(order, text, choice[field]) if isinstance(choice[field], str) else (text, "answer", None)


def _stopped(order: Order, text: str, stop: Any) -> tuple[str, EndState, str | None]:
    """A continuation that ended with a stop string. Servers leave that out."""
    if stop not in order.request.step_ends:
        return text, "error", f"The server stopped at {str(stop)[:100]!r}, which was not asked for."
    return text if stop in text else text + stop, "step", None


def _outcome(order: Order, text: str, end: EndState, reason: str | None, tokens: int | None) -> Outcome:
    """The text never goes on after the end of a step."""
    step = None if end == "error" else end_at(text, order.request.step_ends)
    return Outcome(text, end, tokens, reason) if step is None else Outcome(step, "step", tokens)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("the text is missing")
    return value


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
