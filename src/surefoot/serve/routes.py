"""The HTTP routes and their OpenAPI description.

Replies to POST requests are sent as the bytes that are encoded here, never validated or serialised a second time; their
response models only describe them.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from surefoot.core.options import ReadOptions
from surefoot.core.result import SolutionScore, threshold_for
from surefoot.errors import OptionError
from surefoot.rewards.get_reward import GetReward
from surefoot.rewards.recipes import RECIPES, default_recipe
from surefoot.rewards.reward import Reward
from surefoot.rewards.source import items_to_score, merge_scores
from surefoot.serve.middleware import error_reply
from surefoot.serve.model_service import FEW_STEPS, ServedModel
from surefoot.serve.request_body import JsonRoute, RejectedError
from surefoot.serve.schemas import (
    ErrorReply,
    GetRewardParameters,
    GetRewardReply,
    GetRewardRequest,
    Health,
    ModelCard,
    ModelList,
    PoolingReply,
    PoolingRequest,
    RewardReply,
    RewardRequest,
    ScoreReply,
    ScoreRequest,
    Seconds,
)
from surefoot.serve.state import ServiceState

TEXT = {"schema": {"type": "string"}}
ERRORS = {
    400: "The body is not JSON.",
    401: "The API key is missing or wrong.",
    408: "The headers or the body did not arrive in time.",
    413: "The request has too many bytes, items or tokens.",
    415: "The body is not declared as JSON.",
    422: "The body does not match its schema, or names something that does not exist.",
    429: "The service is overloaded. Retry-After says when to retry, if the service can tell.",
    431: "The request line and the headers have too many bytes.",
    501: "The service lacks a package that the recipe needs.",
    503: "The service is stopping, or its engine is unreachable.",
    504: "The deadline of the request has passed.",
}


def errors(*codes: int) -> dict[int | str, dict[str, Any]]:
    """The description of replies with these status codes."""
    return {code: {"model": ErrorReply, "description": ERRORS[code]} for code in codes}


public = APIRouter()
"""Routes that need no API key."""
api = APIRouter(route_class=JsonRoute, responses=errors(401))
post = partial(api.post, responses=errors(*ERRORS))


@dataclass(frozen=True)
class Call:
    """One request for work."""

    request: Request
    state: ServiceState
    timeout: float | None
    """Seconds from the header `X-Request-Timeout`."""

    async def run(self, work: Coroutine[Any, Any, Response], timeout: float | None) -> Response:
        """Does the work, unless the client disconnects or the deadline passes first: then the work is cancelled."""
        allowed = min(limit for limit in (timeout, self.timeout, self.state.settings.timeout) if limit is not None)
        spent = time.perf_counter() - self.request.scope["surefoot"].started
        task = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(self.request.receive())
        try:
            await asyncio.wait({task, gone}, timeout=max(0.0, allowed - spent), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            if gone.done():
                raise ClientDisconnect
            message = "The deadline of the request has passed. Allow more time, or send fewer items per request."
            raise RejectedError(error_reply(504, "timeout", message))
        finally:
            for future in (task, gone):
                if not future.done():
                    future.cancel()

    def model(self, name: str | None, items: Sequence[object]) -> ServedModel:
        """Checks the number of items and returns the model that the request names."""
        most = self.state.settings.max_items
        if len(items) > most:
            message = f"The request has {len(items)} items; the limit is {most}. Send several requests."
            raise RejectedError(error_reply(413, "too_large", message))
        return self.state.model(name)

    def count(self, model: ServedModel, results: Sequence[SolutionScore]) -> None:
        """Adds results to the metrics and to the log line of the request."""
        for status, number in Counter(result.status for result in results).items():
            self.state.metrics.items.labels(model.scorer.name, status).inc(number)
        self.note(len(results), sum(result.tokens for result in results))

    def note(self, items: int, tokens: int) -> None:
        """Adds the size of the request to its log line."""
        self.request.scope["surefoot"].log_fields |= {"items": items, "tokens": tokens}


async def _state(request: Request) -> ServiceState:
    state: ServiceState = request.app.state.service
    return state


State = Annotated[ServiceState, Depends(_state)]


async def _call(
    request: Request,
    state: State,
    timeout: Annotated[
        Seconds | None,
        Header(alias="X-Request-Timeout", description="Seconds after which the reply is no longer wanted."),
    ] = None,
) -> Call:
    return Call(request, state, timeout)


CurrentCall = Annotated[Call, Depends(_call)]
Endpoint = Callable[..., Coroutine[Any, Any, Response]]


def cancellable(endpoint: Endpoint) -> Endpoint:
    """An endpoint that is cancelled when its deadline passes or its client disconnects."""

    @wraps(endpoint)
    async def run(body: Any, call: Call, **others: Any) -> Response:
        return await call.run(endpoint(body, call, **others), getattr(body, "timeout", None))

    return run


@public.get("/health")
async def health() -> Health:
    """Whether the process runs."""
    return Health(status="ok")


@public.get("/ready", response_model=Health, responses=errors(503))
async def ready(state: State) -> Health | Response:
    """Whether the service accepts work."""
    if state.ready:
        return Health(status="ready")
    return error_reply(503, "not_ready", "The service does not accept work now.", 1)


@api.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": TEXT, "application/openmetrics-text": TEXT}}},
)
async def metrics(request: Request, state: State) -> Response:
    """Metrics in the text format of Prometheus, or in that of OpenMetrics for clients that accept it."""
    body, media_type = state.metrics.encoded(request.headers.get("accept", ""))
    return Response(body, media_type=media_type)


@api.get("/v1/models")
async def list_models(state: State) -> ModelList:
    """The models that are served."""
    return ModelList(
        data=[
            ModelCard(
                id=name,
                created=state.started,
                max_model_len=model.max_tokens,
                family=model.family,
                fingerprint=model.scorer.fingerprint,
                scale=model.scorer.scale,
                calibration=model.scorer.calibration,
                recommended=model.recommended,
            )
            for name, model in state.models.items()
        ]
    )


@post("/v1/score", response_model=ScoreReply)
@cancellable
async def score(body: ScoreRequest, call: CurrentCall) -> Response:
    """Score every step of every solution."""
    model = call.model(body.model, body.items)
    threshold_for(model.scorer.scale, body.threshold)  # before anything is scored
    results = await model.score([item.pair for item in body.items], body.read_options)
    call.count(model, results)
    return await _encoded(model, results, lambda: {"results": [result.to_dict(body.threshold) for result in results]})


@post("/v1/reward", response_model=RewardReply)
@cancellable
async def reward(body: RewardRequest, call: CurrentCall) -> Response:
    """Score solutions and compute a reward from each."""
    recipe = _recipe(body.recipe)
    model = call.model(body.model, body.items)
    results = await model.score([item.pair for item in body.items], body.read_options)
    rewards = [
        await model.run_recipe(partial(recipe or default_recipe(gold=item.gold is not None), result, item.gold_text))
        for result, item in zip(results, body.items, strict=True)
    ]
    call.count(model, results)
    return await _encoded(model, results, lambda: {"rewards": [reward.to_dict() for reward in rewards]})


@post("/get_reward", response_model=GetRewardReply)
@cancellable
async def get_reward(
    body: GetRewardRequest, call: CurrentCall, parameters: Annotated[GetRewardParameters, Query()]
) -> Response:
    """OpenRLHF's remote rewards."""
    recipe = _recipe(parameters.recipe)
    model = call.model(parameters.model, body.query)
    reward = GetReward(model.scorer, recipe, missing=parameters.missing)
    samples = reward.samples(body.model_dump())
    results = await model.score(
        items_to_score(samples), ReadOptions(split=parameters.split, thinking=parameters.thinking)
    )
    scores = merge_scores(samples, results, model.scorer.name)
    rewards = [
        await model.run_recipe(partial(reward.source.reward, sample, score))
        for sample, score in zip(samples, scores, strict=True)
    ]
    call.count(model, scores)
    return _json(reward.reply(rewards))


@post("/pooling", response_model=PoolingReply)
@cancellable
async def pooling(body: PoolingRequest, call: CurrentCall) -> Response:
    """vLLM's `token_classify`, for clients of vLLM."""
    model = call.model(body.model, body.input)
    prompts, rows = await model.pool(body.input)
    tokens = sum(len(prompt.ids) for prompt in prompts)
    call.state.metrics.items.labels(model.scorer.name, "scored").inc(len(prompts))
    call.note(len(prompts), tokens)
    return _json(
        {
            "id": f"pool-{uuid.uuid4().hex}",
            "object": "list",
            "created": int(time.time()),
            "model": model.scorer.name,
            "data": [
                {"index": number, "object": "pooling", "data": [_classes(score) for score in row]}
                for number, row in enumerate(rows)
            ],
            "usage": {
                "prompt_tokens": tokens,
                "total_tokens": tokens,
                "completion_tokens": 0,
                "prompt_tokens_details": None,
            },
        }
    )


def _classes(score: float) -> list[float] | None:
    """The probabilities of wrong and right, or None if the model gave no finite number."""
    return [1.0 - score, score] if math.isfinite(score) else None


def _recipe(name: str | None) -> Reward | None:
    if name is None:
        return None
    if name not in RECIPES:  # the message does not echo the name, which may be a text of any length
        raise OptionError(f"There is no recipe with that name. Choose one of: {', '.join(RECIPES)}.")
    return RECIPES[name]


async def _encoded(
    model: ServedModel, results: Sequence[SolutionScore], data: Callable[[], dict[str, Any]]
) -> Response:
    """Builds and encodes a short reply on the event loop and a long one in a thread."""
    few = sum(len(result.steps) for result in results) <= FEW_STEPS
    return _json(data()) if few else await model.in_thread(lambda: _json(data()))


def _json(data: dict[str, Any]) -> Response:
    body = json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()
    return Response(body, media_type="application/json")
