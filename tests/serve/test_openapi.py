"""The OpenAPI description against the service: valid requests are answered, invalid ones rejected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

import surefoot
from helpers.serving import served
from surefoot.serve import Settings
from surefoot.serve.schemas import Result, Step

EXAMPLES = 25
POSTS = ["/v1/score", "/v1/reward", "/get_reward", "/pooling"]
GETS = ["/v1/models", "/health", "/ready", "/metrics"]


@pytest.fixture(scope="module")
def url(scorer: surefoot.Scorer) -> Iterator[str]:
    with served([scorer], Settings(max_items=100)) as (url, _):
        yield url


@pytest.fixture(scope="module")
def description(url: str) -> Any:
    return schemathesis.openapi.from_url(f"{url}/openapi.json")


@pytest.mark.parametrize(
    ("method", "path", "mode"),
    [("GET", path, GenerationMode.POSITIVE) for path in GETS]
    + [("POST", path, mode) for path in POSTS for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)],
)
def test_the_service_matches_its_description(
    description: Any, url: str, method: str, path: str, mode: GenerationMode
) -> None:
    """All replies are described and match their schema; invalid bodies are rejected.

    A valid body may still name something that does not exist, such as an unknown model: then 422 is correct.
    """

    @settings(
        max_examples=EXAMPLES if method == "POST" else 2,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(case=description[path][method].as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        reply = case.call(base_url=url)
        # A request with a tiny timeout gets 504, which is correct and tested elsewhere.
        if reply.status_code != 504 or not has_timeout(case):
            case.validate_response(reply, excluded_checks=[positive_data_acceptance])
            assert reply.status_code < 500

    check()


def has_timeout(case: Any) -> bool:
    return "X-Request-Timeout" in (case.headers or {}) or (isinstance(case.body, dict) and "timeout" in case.body)


def test_every_field_of_a_result_is_described(scorer: surefoot.Scorer) -> None:
    found = scorer.score("What is 1 + 1?", ["1 + 1 = 2."]).to_dict()
    described = Result.model_json_schema()
    assert set(described["properties"]) == set(described["required"]) == set(found)
    assert set(Step.model_fields) == set(found["steps"][0])


def test_every_route_is_described(url: str) -> None:
    paths = httpx.get(f"{url}/openapi.json").json()["paths"]
    assert {path: tuple(methods) for path, methods in paths.items()} == {
        **dict.fromkeys(POSTS, ("post",)),
        **dict.fromkeys(GETS, ("get",)),
    }
    for path in POSTS:
        responses = paths[path]["post"]["responses"]
        assert set(responses) == {"200", "400", "401", "408", "413", "415", "422", "429", "431", "501", "503", "504"}
        for code in set(responses) - {"200"}:
            assert responses[code]["content"]["application/json"]["schema"]["$ref"].endswith("/ErrorReply")


def test_the_api_key_is_described_where_it_is_required(scorer: surefoot.Scorer) -> None:
    with served([scorer], Settings(api_key="a-key")) as (url, _):
        found = httpx.get(f"{url}/openapi.json").json()
    assert found["components"]["securitySchemes"] == {"HTTPBearer": {"type": "http", "scheme": "bearer"}}
    keyed = {path for path, methods in found["paths"].items() for one in methods.values() if "security" in one}
    assert keyed == {*POSTS, "/v1/models", "/metrics"}
