"""The description of the service that machines read.

The rule: schemas are those of `schemas.py`, which also check the bodies, so that what is described is what is done.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from surefoot._version import __version__
from surefoot.core.options import SPLIT_RULES
from surefoot.rewards.reward import RECIPES
from surefoot.serve import schemas

ERRORS = {
    "400": "The body is not JSON.",
    "401": "The key is missing or wrong.",
    "408": "The body did not arrive in time.",
    "413": "The body, the number of items or their tokens are too many for one request.",
    "415": "The body is not declared as JSON.",
    "422": "The body does not fit its schema, or asks for what there is not.",
    "429": "Too much is waiting. Retry-After says when to come back.",
    "501": "The service lacks a package that the recipe needs.",
    "503": "The service is stopping, or its engine does not answer.",
    "504": "The time that the request allowed is over.",
}
TIMEOUT = {
    "name": "X-Request-Timeout",
    "in": "header",
    "required": False,
    "description": "Seconds after which the answer is no longer wanted.",
    "schema": {"type": "number", "exclusiveMinimum": 0, "maximum": 86400},
}
GET_REWARD = [
    {"name": name, "in": "query", "required": False, "schema": schema}
    for name, schema in {
        "recipe": {"type": "string", "enum": sorted(RECIPES)},
        "model": {"type": "string"},
        "split": {"type": "string", "enum": list(SPLIT_RULES)},
        "missing": {"type": "number", "description": "The reward of a sample that has none."},
    }.items()
]

POSTS: dict[str, tuple[str, type[BaseModel], type[BaseModel]]] = {
    "/v1/score": ("Scores every step of every solution.", schemas.ScoreRequest, schemas.ScoreReply),
    "/v1/reward": ("Scores solutions and makes a reward of each.", schemas.RewardRequest, schemas.RewardReply),
    "/get_reward": ("OpenRLHF's remote rewards.", schemas.GetRewardRequest, schemas.GetRewardReply),
    "/pooling": ("vLLM's token_classify, for clients of vLLM.", schemas.PoolingRequest, schemas.PoolingReply),
}
GETS: dict[str, tuple[str, type[BaseModel] | None]] = {
    "/v1/models": ("The models that are served.", schemas.ModelList),
    "/health": ("Whether the process is there.", schemas.Health),
    "/ready": ("Whether it takes work.", schemas.Health),
    "/metrics": ("Numbers in the text format of Prometheus.", None),
}


def describe() -> dict[str, Any]:
    """The OpenAPI 3.1 document."""
    asked = [(kind, "validation") for _, kind, _ in POSTS.values()]
    given = [(kind, "serialization") for _, _, kind in POSTS.values()]
    given += [(kind, "serialization") for _, kind in GETS.values() if kind is not None]
    given.append((schemas.ErrorReply, "serialization"))
    _, definitions = models_json_schema([*asked, *given], ref_template="#/components/schemas/{model}")  # type: ignore[list-item]
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Surefoot",
            "version": __version__,
            "description": "Scores every step of a solution with a process reward model.",
        },
        "paths": {path: {"post": _post(path, *row)} for path, row in POSTS.items()}
        | {path: {"get": _get(path, *row)} for path, row in GETS.items()},
        "components": {
            "schemas": definitions["$defs"],
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def _post(path: str, about: str, asked: type[BaseModel], given: type[BaseModel]) -> dict[str, Any]:
    return {
        "summary": about,
        "parameters": [TIMEOUT, *(GET_REWARD if path == "/get_reward" else ())],
        "requestBody": {"required": True, "content": _content(asked)},
        "responses": {"200": {"description": "Done.", "content": _content(given)}, **_errors(*ERRORS)},
    }


def _get(path: str, about: str, given: type[BaseModel] | None) -> dict[str, Any]:
    content = {"text/plain": {"schema": {"type": "string"}}} if given is None else _content(given)
    codes = ("503",) if path == "/ready" else () if path == "/health" else ("401",)
    return {"summary": about, "responses": {"200": {"description": "Done.", "content": content}, **_errors(*codes)}}


def _errors(*codes: str) -> dict[str, Any]:
    return {code: {"description": ERRORS[code], "content": _content(schemas.ErrorReply)} for code in codes}


def _content(kind: type[BaseModel]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}}
