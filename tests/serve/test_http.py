"""The service over real HTTP: replies, errors, limits, API key, logs, metrics."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

import surefoot
from helpers.serving import QUESTION, SOLUTION, served
from helpers.small import LINEAR, write
from surefoot.client.api_key import read_key
from surefoot.core.options import THINKING, ReadOptions, Thinking
from surefoot.families.qwen import MARKER
from surefoot.scoring.local import load_local
from surefoot.scoring.pipeline import Pipeline
from surefoot.serve import Settings
from surefoot.serve.log import JsonLines
from surefoot.serve.settings import ModelSource
from surefoot.serve.state import ServiceState
from surefoot.text import math_verify_pool

ITEM = {"question": QUESTION, "solution": SOLUTION}
KEY = "a-key-for-tests"


@pytest.fixture(scope="module")
def service(scorer: surefoot.Scorer) -> Iterator[tuple[str, ServiceState]]:
    settings = Settings(max_body_bytes=200_000, max_items=50, queue_tokens=20_000)
    with served([scorer], settings) as (url, state):
        yield url, state


@pytest.fixture(scope="module")
def http(service: tuple[str, ServiceState]) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=service[0], timeout=30) as client:
        yield client


def without_time(data: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in data.items() if name != "seconds"}


def test_scores_are_those_of_the_scorer(http: httpx.Client, scorer: surefoot.Scorer) -> None:
    items = [ITEM, {"question": QUESTION, "steps": ["3 * 4 = 12.", "2 + 12 = 15."]}]
    reply = http.post("/v1/score", json={"items": items, "threshold": 0.9})
    assert reply.status_code == 200
    found = [surefoot.SolutionScore.from_dict(row) for row in reply.json()["results"]]
    expected = [scorer.score(QUESTION, SOLUTION), scorer.score(QUESTION, ["3 * 4 = 12.", "2 + 12 = 15."])]
    for one, other, row in zip(found, expected, reply.json()["results"], strict=True):
        assert one.step_scores == pytest.approx(other.step_scores, abs=1e-5)
        assert [step.text for step in one.steps] == [step.text for step in other.steps]
        assert without_time(one.to_dict(0.9)) == without_time(row)


def test_without_a_threshold_the_scale_of_the_model_has_its_own(tmp_path: Path) -> None:
    folder = write(tmp_path / "PURE-PRM-7B", "qwen2", "Qwen2ForTokenClassification", LINEAR, lm_head=False, quiet=[198])
    margins = load_local(folder)
    expected = margins.score(QUESTION, SOLUTION)
    assert (expected.first_error(), expected.first_error(0.5)) == (-1, 0)
    with served([margins]) as (url, _):
        for given in ({}, {"threshold": None}, {"threshold": -0.2}, {"threshold": 0.5}):
            (row,) = httpx.post(f"{url}/v1/score", json={"items": [ITEM], **given}, timeout=30).json()["results"]
            threshold = given.get("threshold")
            assert row["first_error"] == expected.first_error(threshold)
            assert row["correct_prefix"] == expected.correct_prefix(threshold)


def test_options_reach_the_scorer(http: httpx.Client, scorer: surefoot.Scorer) -> None:
    body = {"items": [ITEM], "split": "lines", "closing": False, "system": "Think."}
    (row,) = http.post("/v1/score", json=body).json()["results"]
    expected = scorer.score(QUESTION, SOLUTION, ReadOptions(split="lines", closing=False, system="Think."))
    assert surefoot.SolutionScore.from_dict(row).step_scores == pytest.approx(expected.step_scores, abs=1e-5)


THOUGHT = f"<think>\nIs it 3?\n</think>\n{SOLUTION}"


@pytest.mark.parametrize("thinking", THINKING)
def test_thinking_reaches_the_scorer(http: httpx.Client, scorer: surefoot.Scorer, thinking: Thinking) -> None:
    expected = scorer.score(QUESTION, THOUGHT, ReadOptions(thinking=thinking))
    item = {"question": QUESTION, "solution": THOUGHT}
    (row,) = http.post("/v1/score", json={"items": [item], "thinking": thinking}).json()["results"]
    found = surefoot.SolutionScore.from_dict(row)
    assert (found.steps[0].text, found.skipped) == (expected.steps[0].text, expected.skipped)
    asked = {"items": [item], "thinking": thinking, "recipe": "min"}
    (reward,) = http.post("/v1/reward", json=asked).json()["rewards"]
    assert reward["value"] == pytest.approx(expected.min, abs=1e-5)
    body = {"query": [f"{QUESTION} {THOUGHT}"], "prompts": [QUESTION]}
    reply = http.post("/get_reward", json=body, params={"thinking": thinking, "recipe": "min"}).json()
    assert reply["rewards"] == pytest.approx([expected.min], abs=1e-5)


def test_an_unscored_item_has_a_reason_and_the_others_are_scored(http: httpx.Client) -> None:
    items = [ITEM, {"question": QUESTION, "solution": ""}, {"question": "x " * 5000, "steps": ["No."]}, ITEM]
    results = http.post("/v1/score", json={"items": items}).json()["results"]
    assert [row["status"] for row in results] == ["scored", "unscored", "unscored", "scored"]
    assert results[1]["reason"] == "The solution has no steps."
    assert "question alone takes" in results[2]["reason"]
    assert results[2]["steps"][0]["score"] is None


def test_marker_text_stays_text(http: httpx.Client) -> None:
    item = {"question": QUESTION, "steps": [f"One {MARKER} <|im_end|> trick."]}
    (row,) = http.post("/v1/score", json={"items": [item]}).json()["results"]
    assert len(row["steps"]) == 1
    assert any(MARKER in warning for warning in row["warnings"])


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ("{", 400, "Invalid JSON"),
        ("[" * 5000, 400, "recursion"),
        ('{"items": [{"question": "\\ud800", "solution": ""}]}', 400, "hex escape"),
        ("null", 422, "an object"),
        ("{}", 422, "items: Field required"),
        ({"items": "x"}, 422, "items: Input should be a valid array"),
        ({"items": [{"question": 1, "solution": "x"}]}, 422, "items.0.question: Input should be a valid string"),
        ({"items": [{"question": "q"}]}, 422, "items.0: give either `solution` or `steps`"),
        ({"items": [{**ITEM, "steps": []}]}, 422, "items.0: give either `solution` or `steps`"),
        ({"items": [{"question": "q", "solution": None}]}, 422, "items.0.solution"),
        ({"items": [ITEM], "spilt": "lines"}, 422, "spilt: Extra inputs"),
        ({"items": [ITEM], "split": "words"}, 422, "split: Input should be 'auto'"),
        ({"items": [ITEM], "threshold": "0.5"}, 422, "threshold"),
        ({"items": [ITEM], "threshold": 1.5}, 422, "threshold=1.5 is outside the scale"),
        ('{"items": [], "threshold": 1e999}', 422, "threshold: Input should be a finite number"),
        ({"items": [ITEM], "timeout": 0}, 422, "timeout"),
        ({"items": [ITEM], "model": "other"}, 422, "There is no model with that name"),
        ({"items": [ITEM] * 51}, 413, "the limit is 50"),
        ({"items": [{"question": "q", "solution": "x" * 300_000}]}, 413, "larger than 200000 bytes"),
        ({"items": [{"question": f"{n} " + "x " * 1000, "steps": ["y"]} for n in range(40)]}, 413, "several requests"),
    ],
)
def test_invalid_requests_are_rejected_with_advice(http: httpx.Client, body: object, code: int, message: str) -> None:
    content = body if isinstance(body, str) else json.dumps(body)
    reply = http.post("/v1/score", content=content, headers={"Content-Type": "application/json"})
    assert reply.status_code == code, reply.text
    error = reply.json()["error"]
    assert error["code"] == code
    assert message in error["message"]
    assert "xxxx" not in error["message"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/score", '{"items": [' + "0," * 90_000 + "0]}"),
        ("/v1/score", '{"items": [{"question": "q", "steps": [' + "0," * 90_000 + "0]}]}"),
        ("/v1/score", '{"items": [], ' + ", ".join(f'"{number}": 0' for number in range(15_000)) + "}"),
        ("/pooling", '{"input": [' + "{}," * 60_000 + "{}]}"),
        ("/pooling", '{"input": [' + "0," * 90_000 + '""]}'),
        ("/get_reward", '{"query": [' + "0," * 90_000 + '""], "prompts": []}'),
    ],
)
def test_rejecting_a_body_costs_no_more_than_reading_it(http: httpx.Client, path: str, body: str) -> None:
    began = time.process_time()  # the service runs in this process
    reply = http.post(path, content=body, headers={"Content-Type": "application/json"})
    assert reply.status_code == 422
    assert len(reply.text) < 1000
    assert time.process_time() - began < 0.5


def test_an_item_that_would_block_others_is_not_read(scorer: surefoot.Scorer) -> None:
    items = [ITEM, {"question": QUESTION, "solution": "x " * 5_000}, ITEM]
    with served([scorer], Settings(max_item_chars=9_999)) as (url, _):
        results = httpx.post(f"{url}/v1/score", json={"items": items}, timeout=30).json()["results"]
    assert [result["status"] for result in results] == ["scored", "unscored", "scored"]
    assert results[1]["reason"].startswith(f"Item 1 has {10_000 + len(QUESTION)} characters")


def test_every_item_is_counted(scorer: surefoot.Scorer) -> None:
    with served([scorer]) as (url, state), httpx.Client(base_url=url, timeout=30) as http:
        http.post("/get_reward?recipe=min", json={"query": ["q1 + 1 = 2", "x"], "prompts": ["q", "no"]})
        http.post("/pooling", json={"input": [MARKER, MARKER]})
        counted = {
            status: sample(state, "surefoot_items_total", model=scorer.name, status=status)
            for status in ("scored", "partial", "unscored")
        }
    assert counted == {"scored": 3, "partial": 0, "unscored": 1}


@pytest.mark.parametrize("label", ["NaN", "1e999", "-Infinity", "true"])
def test_a_reference_answer_is_a_text_or_a_finite_number(http: httpx.Client, label: str) -> None:
    body = f'{{"query": ["q1 + 1 = 2"], "prompts": ["q"], "labels": [{label}]}}'
    reply = http.post("/get_reward?recipe=outcome", content=body, headers={"Content-Type": "application/json"})
    assert reply.status_code in (400, 422)
    body = f'{{"items": [{{"question": "q", "solution": "1 + 1 = 2", "gold": {label}}}]}}'
    reply = http.post("/v1/reward", content=body, headers={"Content-Type": "application/json"})
    assert reply.status_code in (400, 422)


def test_only_json_is_accepted(http: httpx.Client) -> None:
    reply = http.post("/v1/score", content=json.dumps({"items": []}), headers={"Content-Type": "text/plain"})
    assert reply.status_code == 415


def test_unknown_routes_and_methods(http: httpx.Client) -> None:
    assert http.get("/nothing").status_code == 404
    reply = http.get("/v1/score")
    assert reply.status_code == 405
    assert "POST" in reply.headers["allow"]


def test_rewards(http: httpx.Client, scorer: surefoot.Scorer) -> None:
    from surefoot.rewards.recipes import find_recipe

    items = [{**ITEM, "gold": "14"}, {**ITEM, "gold": "15"}, ITEM, {**ITEM, "gold": 14}, {**ITEM, "gold": 14.5}]
    rewards = http.post("/v1/reward", json={"items": items, "recipe": "outcome+process"}).json()["rewards"]
    default = http.post("/v1/reward", json={"items": [{**ITEM, "gold": 14}, ITEM]}).json()["rewards"]
    assert [set(row["terms"]) for row in default] == [{"outcome", "min"}, {"final", "mean", "correct_prefix"}]
    recipe, score = find_recipe("outcome+process"), scorer.score(QUESTION, SOLUTION)
    for row, gold in zip(rewards, ("14", "15", None, "14", "14.5"), strict=True):
        assert row["value"] == pytest.approx(recipe(score, gold).value, abs=1e-5)
    assert rewards[2]["value"] is None
    assert "no gold answer" in rewards[2]["reason"]
    for reply in (
        http.post("/v1/reward", json={"items": items, "recipe": "none such" * 100}),
        http.post("/get_reward", json={"query": [], "prompts": []}, params={"recipe": "none such" * 100}),
    ):
        assert reply.status_code == 422
        assert "outcome+process" in reply.json()["error"]["message"]
        assert "none such" not in reply.text


def test_a_missing_dependency_is_reported(http: httpx.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "math_verify.py").write_text("raise ImportError('No module named math_verify')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(math_verify_pool, "pool", math_verify_pool.Pool())
    item = {"question": QUESTION, "solution": "Step 1: So it is.\nFinal Answer: x + 1", "gold": "1 + x"}
    sample = {"query": [QUESTION + item["solution"]], "prompts": [QUESTION], "labels": ["1 + x"]}
    for reply in (
        http.post("/v1/reward", json={"items": [item], "recipe": "outcome"}),
        http.post("/get_reward?recipe=outcome", json=sample),
    ):
        assert reply.status_code == 501
        assert reply.json()["error"]["type"] == "missing_dependency"
        assert "surefoot[answers]" in reply.json()["error"]["message"]


def test_comparing_answers_does_not_block_scores(
    service: tuple[str, ServiceState], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, go = service[0], threading.Event()
    compared: list[str] = []

    def slow(gold: str, answer: str, *, timeout: float) -> bool:
        compared.append(answer)
        return go.wait(60)

    monkeypatch.setattr("surefoot.rewards.terms.same_answer", slow)
    body = {"items": [{**ITEM, "gold": "14"}], "recipe": "outcome"}
    clients = [
        threading.Thread(target=httpx.post, args=(f"{url}/v1/reward",), kwargs={"json": body, "timeout": 60})
        for _ in range(3)
    ]
    try:
        for client in clients:
            client.start()
        wait_until(lambda: len(compared) >= 2)
        assert httpx.post(f"{url}/v1/score", json={"items": [ITEM]}, timeout=20).status_code == 200
    finally:
        go.set()
        for client in clients:
            client.join()


def test_rewards_for_openrlhf(http: httpx.Client, scorer: surefoot.Scorer) -> None:
    from surefoot.rewards.recipes import find_recipe

    prompt = f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"
    body = {"query": [f"{prompt}{SOLUTION}<|im_end|>"], "prompts": [prompt], "labels": ["14"]}
    data = http.post("/get_reward?recipe=outcome%2Bprocess", json=body).json()
    expected = find_recipe("outcome+process")(scorer.score(QUESTION, SOLUTION), "14")
    assert data["rewards"] == pytest.approx([expected.value], abs=1e-5)
    assert data["scores"] == [1.0]
    assert http.post("/get_reward", json={"query": [], "prompts": [], "labels": []}).json()["rewards"] == []
    lost = {"query": ["another text"], "prompts": [prompt], "labels": [""]}
    assert http.post("/get_reward", json=lost).json()["rewards"] == [None]
    assert http.post("/get_reward?missing=-1", json=lost).json()["rewards"] == [-1.0]
    for wrong in ("?recipe=none", "?missing=x", "?split=words", "?spilt=lines", "?model=other"):
        assert http.post(f"/get_reward{wrong}", json=body).status_code == 422
    assert http.post("/get_reward", json={**body, "labels": []}).status_code == 422


def test_numeric_labels_keep_their_value(http: httpx.Client) -> None:
    large = 12345678901234567891
    answers = [f"Step 1: It is that.\nFinal Answer: {number}" for number in (large, large + 1, "0.25")]
    body = {"query": [QUESTION + text for text in answers], "prompts": [QUESTION] * 3, "labels": [large, large, 0.25]}
    assert http.post("/get_reward?recipe=outcome", json=body).json()["rewards"] == [1.0, 0.0, 1.0]


def test_a_timed_out_get_reward_is_dequeued(service: tuple[str, ServiceState], scorer: surefoot.Scorer) -> None:
    url, state = service
    scheduler = state.engines[scorer.name].scheduler
    with scorer.engine.lock:
        body = {"query": [f"{QUESTION} {SOLUTION}"], "prompts": [QUESTION], "labels": None}
        busy = threading.Thread(
            target=httpx.post, args=(f"{url}/v1/score",), kwargs={"json": {"items": [ITEM]}, "timeout": 60}
        )
        busy.start()
        wait_until(lambda: scheduler.busy)
        before = scheduler.tokens
        reply = httpx.post(f"{url}/get_reward", json=body, headers={"X-Request-Timeout": "0.3"})
        assert reply.status_code == 504
        wait_until(lambda: scheduler.tokens == before)
    busy.join()


def test_pooling_speaks_vllm(http: httpx.Client, scorer: surefoot.Scorer) -> None:
    steps = ["3 * 4 = 12.", "2 + 12 = 14."]
    prompt = scorer.family.render(scorer.tokenizer, QUESTION, steps)
    text = (
        "<|im_start|>system\nPlease reason step by step, and put your final answer within \\boxed{}.<|im_end|>\n"
        f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"
        f"{steps[0]}{MARKER}{steps[1]}{MARKER}<|im_end|>\n"
    )
    assert scorer.pipeline.parse_prompt(text).ids == prompt.ids
    assert scorer.pipeline.parse_prompt(text).prefix == prompt.prefix
    expected = scorer.score(QUESTION, steps).step_scores
    for given in (text, [text, text], list(prompt.ids), [list(prompt.ids)]):
        reply = http.post(
            "/pooling", json={"model": scorer.name, "input": given, "task": "token_classify", "user": "x"}
        )
        assert reply.status_code == 200, reply.text
        data = reply.json()
        assert [row["index"] for row in data["data"]] == list(range(len(data["data"])))
        for row in data["data"]:
            assert [right for _, right in row["data"]] == pytest.approx(expected, abs=1e-5)
            assert all(wrong + right == pytest.approx(1) for wrong, right in row["data"])
        assert data["usage"]["prompt_tokens"] == len(prompt.ids) * len(data["data"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([[1, 2], [999_999]], "Input 1: A token id is outside of the vocabulary"),
        ([[-1]], "Input 0: A token id is outside"),
        ([[5] * 5000], "Input 0 has 5000 tokens; the limit is 4096"),
    ],
)
def test_pooling_names_the_invalid_input(http: httpx.Client, given: object, message: str) -> None:
    reply = http.post("/pooling", json={"input": given})
    assert reply.status_code == 422
    assert message in reply.json()["error"]["message"]


def test_the_models_that_are_served(http: httpx.Client, scorer: surefoot.Scorer) -> None:
    (card,) = http.get("/v1/models").json()["data"]
    assert (card["id"], card["fingerprint"], card["max_model_len"]) == (scorer.name, scorer.fingerprint, 4096)


def test_model_names_hide_their_folders(checkpoint: Path) -> None:
    assert ModelSource(str(checkpoint)).served_name == checkpoint.name
    assert ModelSource("Qwen/Qwen2.5-Math-PRM-7B").served_name == "Qwen/Qwen2.5-Math-PRM-7B"
    assert ModelSource(str(checkpoint), "mine").served_name == "mine"


def test_metrics_are_what_prometheus_reads(http: httpx.Client) -> None:
    http.post("/v1/score", json={"items": [ITEM]})
    families = {family.name: family for family in text_string_to_metric_families(http.get("/metrics").text)}
    done = [
        s.value for s in families["surefoot_requests"].samples if s.labels == {"route": "/v1/score", "status": "200"}
    ]
    assert done[0] >= 1
    assert families["surefoot_tokens"].samples[0].value > 0
    assert families["surefoot_batch_prompts"].type == "histogram"
    documented = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
    for name, family in families.items():
        if name.startswith("surefoot_") and not name.endswith("_created"):
            assert f"| `{name}{'_total' if family.type == 'counter' else ''}` | {family.type} |" in documented
    assert not [s for family in families.values() for s in family.samples if "nothing" in str(s.labels)]
    reply = http.get("/metrics", headers={"Accept": "application/openmetrics-text"})
    assert reply.headers["content-type"].startswith("application/openmetrics-text")
    assert reply.text.endswith("# EOF\n")


def test_a_full_queue_says_when_to_retry_once_the_rate_is_measured(scorer: surefoot.Scorer) -> None:
    """Neither in the metrics nor in Retry-After, which is computed from it."""
    large = {"items": [{"question": f"{n} " + "x " * 500, "steps": ["y"]} for n in range(30)]}
    name = "surefoot_engine_tokens_per_second"
    with (
        served([scorer], Settings(queue_tokens=20_000)) as (url, state),
        httpx.Client(base_url=url, timeout=60) as http,
    ):
        scheduler = state.engines[scorer.name].scheduler
        replies, rates = [], []
        for _ in range(2):
            rates.append(state.metrics.registry.get_sample_value(name, {"model": scorer.name}))
            assert (f"\n{name}{{" in http.get("/metrics").text) == (rates[-1] is not None)
            with scorer.engine.lock:
                waiting = threading.Thread(target=http.post, args=("/v1/score",), kwargs={"json": large})
                waiting.start()
                wait_until(lambda: scheduler.tokens > 10_000)
                replies.append(http.post("/v1/score", json=large))
            waiting.join()
            wait_until(lambda: scheduler.rate is not None)
    assert [reply.status_code for reply in replies] == [429, 429]
    assert "retry-after" not in replies[0].headers
    assert 1 <= int(replies[1].headers["retry-after"]) <= 60
    assert rates[0] is None
    assert rates[1] is not None


def test_a_deadline_is_kept(http: httpx.Client, service: tuple[str, ServiceState], scorer: surefoot.Scorer) -> None:
    with scorer.engine.lock:  # the engine is busy with another request
        for body, header in (({"timeout": 0.2}, {}), ({}, {"X-Request-Timeout": "0.2"})):
            started = time.monotonic()
            reply = http.post("/v1/score", json={"items": [ITEM], **body}, headers=header)
            assert reply.status_code == 504
            assert time.monotonic() - started < 5
            assert "deadline of the request has passed" in reply.json()["error"]["message"]
    assert http.post("/v1/score", json={"items": []}, headers={"X-Request-Timeout": "soon"}).status_code == 422
    wait_until(lambda: service[1].engines[scorer.name].scheduler.tokens == 0)


def test_a_disconnected_request_is_dequeued(service: tuple[str, ServiceState], scorer: surefoot.Scorer) -> None:
    url, state = service
    scheduler = state.engines[scorer.name].scheduler
    left = sample(state, "surefoot_disconnects_total")
    with scorer.engine.lock:
        busy = threading.Thread(
            target=httpx.post, args=(f"{url}/v1/score",), kwargs={"json": {"items": [ITEM]}, "timeout": 60}
        )
        busy.start()
        wait_until(lambda: scheduler.busy)
        before = scheduler.tokens
        body = json.dumps({"items": [{"question": "And this?", "steps": ["Yes."]}]}).encode()
        with socket.create_connection(("127.0.0.1", httpx.URL(url).port or 0)) as caller:
            head = (
                f"POST /v1/score HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
            )
            caller.sendall(head.encode() + b"\r\n\r\n" + body)
            wait_until(lambda: scheduler.tokens > before)
        wait_until(lambda: scheduler.tokens == before)
    busy.join()
    assert sample(state, "surefoot_disconnects_total") == left + 1


def test_long_prompts_neither_block_small_requests_nor_outlive_their_clients(checkpoint: Path) -> None:
    slow = load_local(checkpoint)
    passes = 0

    def pause(*_: object) -> None:
        nonlocal passes
        passes += 1
        time.sleep(0.1)

    slow.engine.backbone.register_forward_pre_hook(pause)
    steps = ["We add 12 and 30, which gives 42, and go on."] * 220
    tokens = slow.score("What is 0?", steps).tokens
    assert passes == -(-tokens // 512) >= 6, "this many passes per long prompt"
    with served([slow]) as (url, state):
        scheduler = state.engines[slow.name].scheduler
        port = httpx.URL(url).port or 0
        callers = []
        for number in range(5):
            body = json.dumps({"items": [{"question": f"What is {number}?", "steps": steps}]}).encode()
            callers.append(socket.create_connection(("127.0.0.1", port), timeout=60))
            callers[-1].sendall(b"POST /v1/score HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
            callers[-1].sendall(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        wait_until(lambda: scheduler.tokens > 4 * tokens)
        before = passes
        with httpx.Client(base_url=url, timeout=60) as http:
            for _ in range(3):
                asked = passes
                assert http.post("/v1/score", json={"items": [ITEM]}).status_code == 200
                assert passes - asked <= 4, "it waited for more than three packs"
        assert scheduler.tokens > 2 * tokens, "the long prompts are not done"
        # All disconnect: the engine is idle after the current pack.
        for caller in callers:
            caller.close()
        wait_until(lambda: scheduler.tokens == 0 and not scheduler.busy)
        assert passes - before < 20 < 5 * 6
        assert sample(state, "surefoot_disconnects_total") == 5
        ended = passes
        assert httpx.post(f"{url}/v1/score", json={"items": [ITEM]}, timeout=60).status_code == 200
        assert passes == ended + 1


def test_a_client_disconnects_while_sending_the_body(
    service: tuple[str, ServiceState], caplog: pytest.LogCaptureFixture
) -> None:
    url, state = service
    before = sample(state, "surefoot_disconnects_total")
    with socket.create_connection(("127.0.0.1", httpx.URL(url).port or 0)) as caller:
        caller.sendall(b"POST /v1/score HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
        caller.sendall(b'Content-Length: 1000\r\n\r\n{"items": [')
        wait_until(lambda: state.in_flight > 0)
    wait_until(lambda: sample(state, "surefoot_disconnects_total") == before + 1)
    wait_until(lambda: state.in_flight == 0)
    assert "failed" not in caplog.text


def test_a_body_that_never_ends_times_out(scorer: surefoot.Scorer) -> None:
    with (
        served([scorer], Settings(body_timeout=0.5)) as (url, state),
        socket.create_connection(("127.0.0.1", httpx.URL(url).port or 0), timeout=20) as caller,
    ):
        caller.sendall(b"POST /v1/score HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
        caller.sendall(b'Content-Length: 1000\r\n\r\n{"items": [')
        reply = b"".join(iter(lambda: caller.recv(4096), b""))
        assert reply.startswith(b"HTTP/1.1 408")
        assert b"connection: close" in reply
        assert state.in_flight == 0


def test_the_event_loop_stays_free_while_large_texts_are_read(
    http: httpx.Client, scorer: surefoot.Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads do the slow work, a few items at a time; meanwhile other requests are answered."""
    threads: list[tuple[str, str]] = []

    def noted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            threads.append((name, threading.current_thread().name))
            return real(*arguments, **options)

        return call

    for owner, name in ((Pipeline, "prepare"), (Pipeline, "finish"), (type(scorer), "packs")):
        monkeypatch.setattr(owner, name, noted(name, getattr(owner, name)))
    large = {"items": [{"question": QUESTION, "solution": f"Line {n} of it.\n" * 2500} for n in range(3)]}
    thread = threading.Thread(target=http.post, args=("/v1/score",), kwargs={"json": large})
    thread.start()
    answered = 0
    with httpx.Client(base_url=http.base_url) as other:
        while thread.is_alive():
            answered += other.get("/health").status_code == 200
    assert answered > 5
    assert sum(name == "prepare" for name, _ in threads) == 3
    assert {thread.rpartition("_")[0] for _, thread in threads} == {"surefoot-prepare"}


def test_the_api_key(scorer: surefoot.Scorer) -> None:
    with served([scorer], Settings(api_key=KEY)) as (url, _):
        for path in ("/", "/health", "/ready", "/openapi.json", "/static/page.js"):
            assert httpx.get(url + path).status_code == 200
        for header in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {KEY}"}):
            for path in ("/metrics", "/v1/models"):
                assert httpx.get(url + path, headers=header).status_code == 401
            reply = httpx.post(f"{url}/v1/score", json={"items": [ITEM]}, headers=header)
            assert reply.status_code == 401
            assert KEY not in reply.text
        assert surefoot.connect(url, api_key=KEY).score(QUESTION, SOLUTION).status == "scored"
    assert KEY not in repr(Settings(api_key=KEY))


def test_keys_come_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key").write_text(KEY + "\n")
    assert read_key(str(tmp_path / "key")) == KEY
    monkeypatch.setenv("SUREFOOT_API_KEY", KEY)
    assert read_key("env") == KEY
    monkeypatch.setenv("SUREFOOT_API_KEY", "")
    for wrong in ("env", KEY):
        with pytest.raises(surefoot.SurefootError):
            read_key(wrong)


def test_logs_contain_no_text_of_a_request(http: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        http.post(
            "/v1/score", json={"items": [{"question": "SECRET", "steps": ["SECRET"]}]}, headers={"X-Request-Id": "r-1"}
        )
        http.post("/v1/score", json={"items": [{"question": "SECRET"}]}, headers={"X-Request-Id": "bad id\tSECRET"})
        http.get("/SECRET")
        end = time.monotonic() + 10  # a line is written after its reply
        while sum(record.name == "surefoot.serve" for record in caplog.records) < 3 and time.monotonic() < end:
            time.sleep(0.01)
    lines = [JsonLines().format(record) for record in caplog.records if record.name == "surefoot.serve"]
    rows = [json.loads(line) for line in lines]
    assert not any("SECRET" in line for line in lines)
    assert [row["status"] for row in rows] == [200, 422, 404]
    assert rows[0]["request_id"] == "r-1"
    assert rows[0]["items"] == 1


def test_internal_errors_do_not_leak(
    http: httpx.Client, scorer: surefoot.Scorer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a stack trace with SECRET paths")

    monkeypatch.setattr(Pipeline, "prepare", broken)
    reply = http.post("/v1/score", json={"items": [ITEM]})
    assert reply.status_code == 500
    assert "SECRET" not in reply.text
    assert reply.headers["x-request-id"] in reply.json()["error"]["message"]
    assert "SECRET" in caplog.text


def sample(state: ServiceState, name: str, **labels: str) -> float:
    return state.metrics.registry.get_sample_value(name, labels) or 0.0


def wait_until(true: object, seconds: float = 20.0) -> None:
    assert callable(true)
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "the condition never became true"
        time.sleep(0.01)
