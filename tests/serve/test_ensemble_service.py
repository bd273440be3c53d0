"""An ensemble as a service: the members' scores are numpy's input, and each member keeps its queue and its metrics."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import surefoot
from helpers.serving import QUESTION, SOLUTION, Command, served
from surefoot.cli.main import main
from surefoot.errors import OptionError
from surefoot.scoring.ensemble import Ensemble
from surefoot.scoring.local import load_local
from surefoot.serve import Settings, create_app
from surefoot.serve.schemas import ScoreReply
from surefoot.serve.state import ServiceState

ITEM = {"question": QUESTION, "solution": SOLUTION}
ITEMS: list[tuple[str, Any]] = [
    (f"What is {number} + 2?", [f"{number} + 2 = {number + 2 + number % 2}."] * (1 + number % 3)) for number in range(8)
]


@pytest.fixture(scope="module")
def small(checkpoint: Path) -> surefoot.Scorer:
    return load_local(checkpoint, name="small")


@pytest.fixture(scope="module")
def service(mini: surefoot.Scorer, small: surefoot.Scorer) -> Iterator[tuple[str, ServiceState]]:
    with served([Ensemble([mini, small])]) as found:
        yield found


def table(members: list[surefoot.Scorer], item: tuple[str, Any]) -> np.ndarray[Any, Any]:
    return np.array([member.score(*item).step_scores for member in members], dtype=float)


def wait_until(true: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_the_reply_has_members_and_spread(
    service: tuple[str, ServiceState], mini: surefoot.Scorer, small: surefoot.Scorer
) -> None:
    reply = httpx.post(f"{service[0]}/v1/score", json={"items": [ITEM]}, timeout=60).json()
    ScoreReply.model_validate(reply, strict=False)
    (result,) = reply["results"]
    expected = table([mini, small], (QUESTION, SOLUTION))
    assert result["model"] == "mean(mini, small)"
    assert [step["score"] for step in result["steps"]] == pytest.approx(expected.mean(axis=0), abs=1e-5)
    assert [step["spread"] for step in result["steps"]] == pytest.approx(expected.std(axis=0, ddof=1), abs=1e-5)
    for at, step in enumerate(result["steps"]):
        assert [member["model"] for member in step["members"]] == ["mini", "small"]
        assert [member["score"] for member in step["members"]] == pytest.approx(expected[:, at], abs=1e-5)
        assert [member["reason"] for member in step["members"]] == [None, None]


def test_the_client_is_the_ensemble(
    service: tuple[str, ServiceState], mini: surefoot.Scorer, small: surefoot.Scorer
) -> None:
    """Alone or among others, a solution has the same score: each member is batch-invariant."""
    url, local = service[0], Ensemble([mini, small])
    client = surefoot.load(url)
    assert (client.fingerprint, client.scale, client.calibration) == (local.fingerprint, "probability", None)
    together = client.score_many(ITEMS)
    with ThreadPoolExecutor(len(ITEMS)) as threads:
        alone = list(threads.map(lambda item: client.score(*item), ITEMS))
    for item, one, two, three in zip(ITEMS, together, alone, local.score_many(ITEMS), strict=True):
        assert one.step_scores == pytest.approx(table([mini, small], item).mean(axis=0), abs=1e-5)
        assert two.step_scores == pytest.approx(one.step_scores, abs=1e-5)
        for step, other in zip(one.steps, three.steps, strict=True):
            assert step.spread == pytest.approx(other.spread, abs=1e-5)
            assert [member.model for member in step.members] == [member.model for member in other.members]
        assert (one.model, one.tokens, one.recommended) == (three.model, three.tokens, three.recommended)
    unscored = client.score(QUESTION, "")
    assert (unscored.status, unscored.reason) == ("unscored", "The solution has no steps.")


def test_what_the_service_says_about_it(
    service: tuple[str, ServiceState], mini: surefoot.Scorer, small: surefoot.Scorer
) -> None:
    url, state = service
    (card,) = httpx.get(f"{url}/v1/models").json()["data"]
    assert (card["id"], card["family"]) == ("mean(mini, small)", "ensemble")
    assert card["max_model_len"] == min(mini.max_tokens, small.max_tokens)
    assert httpx.get(f"{url}/ready").status_code == 200
    assert httpx.post(f"{url}/v1/score", json={"items": [ITEM], "model": "mini"}).status_code == 422
    pooling = httpx.post(f"{url}/pooling", json={"input": "x"})
    assert (pooling.status_code, "Use /v1/score" in pooling.text) == (422, True)
    before = httpx.get(f"{url}/metrics").text
    httpx.post(f"{url}/v1/reward", json={"items": [ITEM], "recipe": "min"}, timeout=60)
    body = {"query": [QUESTION + SOLUTION], "prompts": [QUESTION]}
    assert httpx.post(f"{url}/get_reward?recipe=min", json=body, timeout=60).json()["rewards"][0] is not None
    assert before != httpx.get(f"{url}/metrics").text
    sample = state.metrics.registry.get_sample_value
    for name in ("mini", "small"):
        assert (sample("surefoot_tokens_total", {"model": name}) or 0) > 0
        assert sample("surefoot_queue_tokens", {"model": name}) == 0
    assert (sample("surefoot_items_total", {"model": "mean(mini, small)", "status": "scored"}) or 0) >= 2


def test_a_missing_member(mini: surefoot.Scorer, checkpoint: Path) -> None:
    short = load_local(checkpoint, name="short", max_tokens=60)
    for missing, score in (("unscored", False), ("skip", True)):
        with served([Ensemble([mini, short], missing=missing)]) as (url, _):  # type: ignore[arg-type]
            result = surefoot.load(url).score(QUESTION, [*["3 * 4 = 12."] * 9, "2 + 12 = 14."])
        last = result.steps[-1]
        assert [member.score is None for member in last.members] == [False, True]
        assert "end past the limit of 60 tokens" in (last.members[1].reason or "")
        assert (last.score is not None, last.spread) == (score, None)


def test_a_deadline_frees_the_queues_of_all_members(
    service: tuple[str, ServiceState], mini: surefoot.Scorer, small: surefoot.Scorer
) -> None:
    url, state = service
    engines = [state.engines[name].scheduler for name in ("mini", "small")]
    with small.engine.lock:
        late = httpx.post(f"{url}/v1/score", json={"items": [ITEM]}, headers={"X-Request-Timeout": "0.5"}, timeout=60)
        assert late.status_code == 504
    wait_until(lambda: all(scheduler.tokens == 0 for scheduler in engines))
    assert httpx.post(f"{url}/v1/score", json={"items": [ITEM]}, timeout=60).status_code == 200


def test_one_full_queue_rejects_the_request_and_cancels_the_rest(mini: surefoot.Scorer, small: surefoot.Scorer) -> None:
    """Both members render a prompt of about the same length; the queue of the one that is held up gets full."""
    with served([Ensemble([mini, small])], Settings(queue_tokens=400)) as (url, state):
        held = state.engines["small"].scheduler
        codes: list[int] = []

        def ask() -> None:
            codes.append(httpx.post(f"{url}/v1/score", json={"items": [ITEM]}, timeout=60).status_code)

        with small.engine.lock:
            threads = [threading.Thread(target=ask) for _ in range(8)]
            for thread in threads:
                thread.start()
            wait_until(lambda: 429 in codes and held.tokens > 0)
        for thread in threads:
            thread.join()
        assert set(codes) == {200, 429}
        wait_until(lambda: all(engine.scheduler.tokens == 0 for engine in state.engines.values()))


def test_a_small_request_is_not_blocked_by_a_large_one(service: tuple[str, ServiceState]) -> None:
    url = service[0]
    many = [{"question": f"What is {number}?", "steps": [f"It is {number}."] * 40} for number in range(40)]
    ended: dict[str, float] = {}

    def ask(name: str, items: list[Any]) -> None:
        assert httpx.post(f"{url}/v1/score", json={"items": items}, timeout=120).status_code == 200
        ended[name] = time.monotonic()

    large = threading.Thread(target=ask, args=("large", many))
    large.start()
    wait_until(lambda: all(engine.scheduler.busy for engine in service[1].engines.values()))
    ask("small", [ITEM])
    large.join()
    assert ended["small"] < ended["large"]


def test_what_cannot_be_served(mini: surefoot.Scorer, small: surefoot.Scorer) -> None:
    with served([small]) as (url, _), pytest.raises(OptionError, match="is not a model that can be served"):
        create_app([Ensemble([mini, surefoot.load(url)])])
    with pytest.raises(OptionError, match="Two models have the name 'mini'"):
        create_app([mini, Ensemble([mini, small])])


def test_the_command(checkpoint: Path, mini: surefoot.Scorer, scorer: surefoot.Scorer) -> None:
    with Command(checkpoint, "--model", "mini", "--combine", "min") as command:
        result = surefoot.load(command.url).score(QUESTION, SOLUTION)
    assert result.model == "min(small, mini)"
    assert result.step_scores == pytest.approx(table([mini, scorer], (QUESTION, SOLUTION)).min(axis=0), abs=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--combine", "mean"], "--combine and --missing-member are for an ensemble. Name several models."),
        (["--model", "a", "--model", "b", "--missing-member", "skip"], "Add --combine"),
        (["--model", "mini", "--model", "x=mini", "--combine", "mean"], "are the same model"),
        (["--model", "mini", "--model", "http://127.0.0.1:9", "--combine", "mean"], "is a service already"),
        (["--model", "a", "--model", "b", "--combine", "rank"], "--combine: 'rank' is not one of"),
    ],
)
def test_wrong_calls(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--port", "0", *options]) == 2
    assert message in capsys.readouterr().err
