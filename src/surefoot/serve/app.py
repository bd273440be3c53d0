"""The routes.

The rule: a request that can be read is answered by a `Service`; meanwhile somebody watches the clock and the caller.
Who leaves, or whose time is over, gives the place in the queue to others.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from surefoot.core.options import SPLIT_RULES, ReadOptions
from surefoot.core.result import SolutionScore
from surefoot.errors import InputError, MissingDependencyError, OptionError, UnreachableError
from surefoot.rewards.get_reward import GetReward
from surefoot.rewards.reward import RECIPES, Reward
from surefoot.scoring.scorer import Scorer
from surefoot.serve.middleware import Gate, error_reply
from surefoot.serve.model_service import FEW_STEPS, Service
from surefoot.serve.openapi import describe
from surefoot.serve.request_body import Body, RefusedError, read_body, seconds_left
from surefoot.serve.scheduler import ClosedError, QueueFullError, TooLargeError
from surefoot.serve.schemas import GetRewardRequest, PoolingRequest, RewardRequest, ScoreRequest
from surefoot.serve.settings import Settings
from surefoot.serve.state import ServiceState

logger = logging.getLogger("surefoot.serve")

STATIC = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
GET_REWARD_PARAMETERS = ("recipe", "model", "split", "missing")

Data = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """The body of a reply, and what the log says of it."""

    body: bytes
    notes: Data


def create_app(scorers: Iterable[Scorer], settings: Settings | None = None) -> Starlette:
    """The application that serves these models. Its `state.state` holds what the routes share."""
    state = ServiceState(scorers, settings or Settings())
    static = files("surefoot.serve").joinpath("static")
    page = static.joinpath("page.html").read_bytes()
    description = json.dumps(describe()).encode()

    async def health(request: Request) -> Response:
        return _json({"status": "ok"})

    async def ready(request: Request) -> Response:
        if state.ready:
            return _json({"status": "ready"})
        return error_reply(503, "not_ready", "The service takes no work now.", 1)

    async def metrics(request: Request) -> Response:
        return Response(state.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def models(request: Request) -> Response:
        return _json({"object": "list", "data": [_card(state, service) for service in state.services.values()]})

    def fixed(content: bytes, media_type: str) -> Callable[[Request], Awaitable[Response]]:
        async def reply(request: Request) -> Response:
            return Response(content, media_type=media_type, headers={"cache-control": "no-cache"})

        return reply

    def post(path: str, kind: type[Body], work: Callable[[ServiceState, Body, Request], Awaitable[Answer]]) -> Route:
        return Route(path, partial(_work, state, kind, work), methods=["POST"])

    routes = [
        Route("/", fixed(page, "text/html")),
        Route("/openapi.json", fixed(description, "application/json")),
        *(Route(f"/static/{name}", fixed(static.joinpath(name).read_bytes(), kind)) for name, kind in STATIC.items()),
        Route("/health", health),
        Route("/ready", ready),
        Route("/metrics", metrics),
        Route("/v1/models", models),
        post("/v1/score", ScoreRequest, _score),
        post("/v1/reward", RewardRequest, _reward),
        post("/get_reward", GetRewardRequest, _get_reward),
        post("/pooling", PoolingRequest, _pooling),
    ]

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await state.close_in_time()

    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[Middleware(Gate, state=state, routes=frozenset(route.path for route in routes))],
        exception_handlers={HTTPException: _not_found},
    )
    app.state.state = state
    return app


async def _work(
    state: ServiceState,
    kind: type[Body],
    work: Callable[[ServiceState, Body, Request], Awaitable[Answer]],
    request: Request,
) -> Response:
    """A POST route: from the body to the reply."""
    try:
        body = await read_body(request, kind, state.settings)
        timeout = seconds_left(request, getattr(body, "timeout", None), state.settings)
        answer = await _attended(state, request, work(state, body, request), timeout)
    except RefusedError as refused:
        return refused.reply
    except ClientDisconnect:
        _note_left(state)
        return Response(status_code=499)
    except (InputError, OptionError) as error:
        return error_reply(422, "invalid_request", str(error))
    except TooLargeError as error:
        return error_reply(413, "too_large", str(error))
    except QueueFullError as error:
        return error_reply(429, "queue_full", str(error), error.retry_after)
    except ClosedError as error:
        return error_reply(503, "stopping", str(error), 1)
    except MissingDependencyError as error:
        logger.error("%s", error)
        message = 'This service cannot compare answers. Whoever runs it has to: pip install "surefoot[answers]"'
        return error_reply(501, "missing_dependency", message)
    except UnreachableError:
        return error_reply(503, "engine_unreachable", "The engine behind this service does not answer.", 5)
    request.scope["surefoot"].notes |= answer.notes
    return Response(answer.body, media_type="application/json")


async def _score(state: ServiceState, body: ScoreRequest, request: Request) -> Answer:
    service = _checked(state, body.model, body.items)
    results = await service.score([item.pair for item in body.items], body.read_options)

    def written() -> bytes:
        return _encoded({"results": [result.to_dict(body.threshold) for result in results]})

    return Answer(await _where_it_fits(service, results, written), _count(state, service, results))


async def _reward(state: ServiceState, body: RewardRequest, request: Request) -> Answer:
    recipe = _recipe(body.recipe)
    service = _checked(state, body.model, body.items)
    results = await service.score([item.pair for item in body.items], body.read_options)
    rewards = [
        await service.in_turn(partial(recipe, result, item.gold))
        for result, item in zip(results, body.items, strict=True)
    ]

    def written() -> bytes:
        return _encoded({"rewards": [reward.to_dict() for reward in rewards]})

    return Answer(await _where_it_fits(service, results, written), _count(state, service, results))


async def _get_reward(state: ServiceState, body: GetRewardRequest, request: Request) -> Answer:
    """OpenRLHF sends one sample a request, from many ranks; the queue puts them together."""
    asked = request.query_params
    missing = asked.get("missing")
    if unknown := set(asked) - set(GET_REWARD_PARAMETERS):
        raise OptionError(f"/get_reward takes {', '.join(GET_REWARD_PARAMETERS)}; {len(unknown)} others were given.")
    try:
        instead = None if missing is None else float(missing)
    except ValueError:
        raise OptionError("`missing` has to be a number: the reward of a sample that has none.") from None
    recipe = _recipe(asked.get("recipe", "seed"))
    split = asked.get("split", "auto")
    if split not in SPLIT_RULES:
        raise OptionError(f"`split` has to be one of {', '.join(SPLIT_RULES)}.")
    service = _checked(state, asked.get("model"), body.query)
    reward = GetReward(service.scorer, recipe, missing=instead)
    samples = reward.samples(body.model_dump())
    options = ReadOptions(split=split)
    results = await service.score([(one.question, one.response) for one in samples if one.lack is None], options)
    scores = iter(results)
    rewards = [
        reward.unread(one, service.scorer.name)
        if one.lack
        else await service.in_turn(partial(reward.reward, one, next(scores)))
        for one in samples
    ]
    return Answer(_encoded(reward.reply(rewards)), _count(state, service, [r.score for r in rewards if r.score]))


async def _pooling(state: ServiceState, body: PoolingRequest, request: Request) -> Answer:
    service = _checked(state, body.model, body.input)
    prompts, rows = await service.pool(body.input)
    tokens = sum(len(prompt.ids) for prompt in prompts)
    with state.metrics.lock:
        state.metrics.items.add(len(prompts), model=service.scorer.name, status="scored")
    data = {
        "id": f"pool-{uuid.uuid4().hex}",
        "object": "list",
        "created": int(time.time()),
        "model": service.scorer.name,
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
    return Answer(_encoded(data), {"items": len(prompts), "tokens": tokens})


async def _where_it_fits(service: Service, results: Sequence[SolutionScore], write: Callable[[], bytes]) -> bytes:
    """Writes a short reply at once and a long one in a thread."""
    few = sum(len(result.steps) for result in results) <= FEW_STEPS
    return write() if few else await service.in_thread(write)


def _classes(score: float) -> list[float] | None:
    """The probabilities of wrong and right, or nothing where the model gave no finite number."""
    return [1.0 - score, score] if math.isfinite(score) else None


def _recipe(name: str) -> Reward:
    if name not in RECIPES:  # the name is not repeated: it may be a text of any length
        raise OptionError(f"There is no recipe of that name. Choose one of: {', '.join(RECIPES)}.")
    return RECIPES[name]


def _checked(state: ServiceState, model: str | None, items: Sequence[object]) -> Service:
    if len(items) > state.settings.max_items:
        message = f"{len(items)} items are too many for one request. Send at most {state.settings.max_items} at a time."
        raise RefusedError(error_reply(413, "too_large", message))
    return state.service(model)


def _count(state: ServiceState, service: Service, results: Sequence[SolutionScore]) -> Data:
    with state.metrics.lock:
        for result in results:
            state.metrics.items.add(model=service.scorer.name, status=result.status)
    return {"items": len(results), "tokens": sum(result.tokens for result in results)}


async def _attended(state: ServiceState, request: Request, work: Awaitable[Answer], timeout: float) -> Answer:
    """Does the work unless the caller leaves or the time is over."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait({task, gone}, timeout=max(0.0, timeout), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        if gone.done():
            _note_left(state)
            raise RefusedError(Response(status_code=499))
        message = "The time that the request allowed is over. Allow more, or send fewer items at a time."
        raise RefusedError(error_reply(504, "timeout", message))
    finally:
        for future in (task, gone):
            if not future.done():
                future.cancel()


def _note_left(state: ServiceState) -> None:
    with state.metrics.lock:
        state.metrics.left.add()


def _card(state: ServiceState, service: Service) -> Data:
    scorer = service.scorer
    return {
        "id": scorer.name,
        "object": "model",
        "created": state.started,
        "owned_by": "surefoot",
        "max_model_len": scorer.max_tokens,
        "family": scorer.family.name,
        "fingerprint": scorer.fingerprint,
        "scale": scorer.scale,
        "calibration": scorer.calibration,
    }


async def _not_found(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    messages = {
        404: "There is nothing here. /openapi.json lists what there is.",
        405: "This route takes another method.",
    }
    reply = error_reply(error.status_code, "no_such_route", messages.get(error.status_code, error.detail))
    reply.headers.update(error.headers or {})
    return reply


def _json(data: Data) -> Response:
    return Response(_encoded(data), media_type="application/json")


def _encoded(data: Data) -> bytes:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()
