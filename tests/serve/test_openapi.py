"""The OpenAPI description against the service: whatever it allows is answered, whatever it forbids is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

import surefoot
from helpers.serving import served
from surefoot.serve import Settings
from surefoot.serve.openapi import GETS, POSTS, describe
from surefoot.serve.schemas import Result, Step

EXAMPLES = 25
DESCRIPTION: Any = schemathesis.openapi.from_dict(describe())
OPERATIONS: list[Any] = [found.ok() for found in DESCRIPTION.get_all_operations()]


@pytest.fixture(scope="module")
def url(scorer: surefoot.Scorer) -> Iterator[str]:
    with served([scorer], Settings(max_items=100)) as (url, _):
        yield url


@pytest.mark.parametrize(
    ("operation", "mode"),
    [(operation, GenerationMode.POSITIVE) for operation in OPERATIONS]
    + [(operation, GenerationMode.NEGATIVE) for operation in OPERATIONS if operation.body],
    ids=lambda value: getattr(value, "label", getattr(value, "name", "")),
)
def test_what_is_described_is_what_is_done(operation: Any, mode: GenerationMode, url: str) -> None:
    """No reply but the described ones, bodies as their schema says; forbidden bodies are refused.

    A body that its schema allows may still ask for what there is not, such as an unknown model: 422 is right then.
    """

    @settings(
        max_examples=EXAMPLES if operation.body else 2,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        reply = case.call(base_url=url)
        # Who asks for an answer in no time gets 504, which is right, and tested elsewhere.
        if reply.status_code != 504 or not asks_for_a_time(case):
            case.validate_response(reply, excluded_checks=[positive_data_acceptance])
            assert reply.status_code < 500

    ask()


def asks_for_a_time(case: Any) -> bool:
    return "X-Request-Timeout" in (case.headers or {}) or (isinstance(case.body, dict) and "timeout" in case.body)


def test_every_field_of_a_result_is_described(scorer: surefoot.Scorer) -> None:
    found = scorer.score("What is 1 + 1?", ["1 + 1 = 2."]).to_dict()
    assert set(Result.model_fields) == set(found)
    assert set(Step.model_fields) == set(found["steps"][0])


def test_every_route_is_described() -> None:
    assert {operation.path for operation in OPERATIONS} == {*POSTS, *GETS}
