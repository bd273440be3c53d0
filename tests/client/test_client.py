"""The client: the same results as a scorer, in order, through trouble."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import pickle
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import surefoot
from helpers.serving import QUESTION, SOLUTION, served
from surefoot.core.options import ReadOptions
from surefoot.core.result import SolutionScore
from surefoot.errors import InputError, OptionError, ServiceError, UnreachableError
from surefoot.serve import Settings


@pytest.fixture(scope="module")
def url(scorer: surefoot.Scorer) -> Iterator[str]:
    with served([scorer], Settings(max_items=20)) as (url, _):
        yield url


def solutions(count: int) -> list[tuple[str, str | list[str]]]:
    return [(f"What is {n} + 1?", [f"{n} + 1 = {n + 1}.", "Done."] if n % 2 else SOLUTION) for n in range(count)]


def same(found: list[SolutionScore], expected: list[SolutionScore]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert [step.text for step in one.steps] == [step.text for step in other.steps]
        assert one.step_scores == pytest.approx(other.step_scores, abs=1e-5)
        assert (one.model, one.answer, one.reason, one.outside) == (
            other.model,
            other.answer,
            other.reason,
            other.outside,
        )


def test_results_survive_json_exactly(scorer: surefoot.Scorer) -> None:
    result = scorer.score("What is <extra_0>?", "Before.\nStep 1: ½ = 0.5\nStep 2:\nFinal Answer: 3\nAfter.")
    assert result.warnings
    assert result.outside
    assert SolutionScore.from_dict(json.loads(result.to_json())) == result
    with pytest.raises(InputError, match="not a scored solution"):
        SolutionScore.from_dict({"steps": []})


def test_the_same_verbs_as_a_scorer(url: str, scorer: surefoot.Scorer) -> None:
    items = solutions(50)  # more than the service takes at a time
    expected = scorer.score_many(items)
    with surefoot.connect(url, items_per_request=8) as client:
        same(client.score_many(items), expected)
        same(list(client.score_stream(iter(items), window=7)), expected)
        same([client.score(*items[1])], expected[1:2])
        assert client.score_many([]) == []
        assert [row["id"] for row in client.models()] == [scorer.name]


def test_the_same_verbs_for_coroutines(url: str, scorer: surefoot.Scorer) -> None:
    items = solutions(30)

    async def ask() -> tuple[list[SolutionScore], list[SolutionScore], SolutionScore]:
        async with surefoot.AsyncClient(url, items_per_request=4) as client:
            many = await client.score_many(items)
            stream = [result async for result in client.score_stream(items, window=9)]
            return many, stream, await client.score(*items[0], ReadOptions(split="lines"))

    many, stream, one = asyncio.run(ask())
    expected = scorer.score_many(items)
    same(many, expected)
    same(stream, expected)
    same([one], [scorer.score(*items[0], ReadOptions(split="lines"))])


def test_a_malformed_item_does_not_end_a_stream(url: str, scorer: surefoot.Scorer) -> None:
    items: list[Any] = solutions(7)
    items[2], items[5] = (3, "x"), "text"
    expected = list(scorer.score_stream(items))

    async def ask() -> list[SolutionScore]:
        async with surefoot.AsyncClient(url, model=scorer.name) as client:
            return [result async for result in client.score_stream(items, window=4)]

    with surefoot.connect(url, model=scorer.name) as client:
        for found in (list(client.score_stream(items, window=4)), asyncio.run(ask())):
            same(found, expected)
            assert found[5].reason == "Item 5: Expected a pair of question and solution, got str."
        # An option is refused where it is given, not where the first result is asked for.
        with pytest.raises(OptionError, match="window=0"):
            client.score_stream(items, window=0)
    with pytest.raises(OptionError, match="window=0"):
        surefoot.AsyncClient(url).score_stream(items, window=0)


def test_a_client_may_be_sent_to_another_process(url: str, scorer: surefoot.Scorer) -> None:
    with surefoot.connect(url, timeout=7.0, connections=3) as client, pickle.loads(pickle.dumps(client)) as other:
        assert other is not client
        assert vars(other) | {"_transport": None} == vars(client) | {"_transport": None}
        same([other.score(QUESTION, SOLUTION)], [scorer.score(QUESTION, SOLUTION)])


def ask_in_child(client: surefoot.Client, asynchronous: surefoot.AsyncClient, answers: Any) -> None:
    async def ask() -> list[SolutionScore]:
        return await asynchronous.score_many(solutions(20)[10:])

    several = [client.score_many(solutions(20)[10:]) for _ in range(5)]
    answers.put([pickle.dumps(found) for found in [*several, asyncio.run(ask())]])
    client.close()  # closes the connections of this process only


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_client_works_on_both_sides_of_a_fork(url: str, scorer: surefoot.Scorer) -> None:
    """Parent and child ask at the same time. On one connection they would read each other's replies."""
    items = solutions(20)
    expected = scorer.score_many(items)
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()

    async def ask(client: surefoot.AsyncClient) -> list[SolutionScore]:
        return await client.score_many(items[:10])

    with surefoot.Client(url, items_per_request=2, patience=5) as client:
        asynchronous = surefoot.AsyncClient(url, patience=5)
        same(client.score_many(items), expected)
        same(asyncio.run(ask(asynchronous)), expected[:10])
        child = context.Process(target=ask_in_child, args=(client, asynchronous, answers), daemon=True)
        slots = client._transport._pool.slots
        taken = [slots.acquire() for _ in range(8)]  # by threads that do not exist in the child
        child.start()
        slots.release(len(taken))
        for _ in range(5):
            same(client.score_many(items[:10]), expected[:10])
        child.join(60)
        assert child.exitcode == 0
        for found in map(pickle.loads, answers.get()):
            same(found, expected[10:])
        same(client.score_many(items), expected)


def test_an_item_that_is_too_large_does_not_end_a_stream(scorer: surefoot.Scorer) -> None:
    items = solutions(7)
    items[3] = ("q", "x" * 5_000)

    async def ask(url: str) -> list[SolutionScore]:
        async with surefoot.AsyncClient(url) as client:
            return [result async for result in client.score_stream(items)]

    with served([scorer], Settings(max_body_bytes=3_000)) as (url, _), surefoot.connect(url) as client:
        for found in (list(client.score_stream(items)), asyncio.run(ask(url))):
            assert [result.status for result in found] == ["scored"] * 3 + ["unscored"] + ["scored"] * 3
            assert "bytes" in (found[3].reason or "")
        with pytest.raises(ServiceError):
            client.score_many(items)


def test_after_an_error_nothing_more_is_sent() -> None:
    server = Replies((400, "{}"), (429, "{}"), retry_after="1")

    async def ask() -> int:
        async with surefoot.AsyncClient(server.url, items_per_request=1, connections=2) as client:
            with pytest.raises(ServiceError):
                await client.score_many(solutions(9))
            await asyncio.sleep(0.5)  # what was on its way has arrived
            sent = server.asked
            await asyncio.sleep(2.0)
            return server.asked - sent

    assert asyncio.run(ask()) == 0
    server.shutdown()


def test_adapters_take_the_address_of_a_service(url: str, scorer: surefoot.Scorer) -> None:
    found = surefoot.compute_reward(QUESTION, SOLUTION, "14", model=url, recipe="outcome+process")
    expected = surefoot.compute_reward(QUESTION, SOLUTION, "14", model=scorer, recipe="outcome+process")
    assert found.value == pytest.approx(expected.value, abs=1e-5)


def test_a_list_that_is_too_large_is_sent_in_halves(url: str, scorer: surefoot.Scorer) -> None:
    items = solutions(45)
    with surefoot.connect(url, items_per_request=1000) as client:
        same(client.score_many(items), scorer.score_many(items))


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("text", "Item 1: Expected a pair"),
        ((3, "x"), "Item 1: The question is int"),
        (("q", 3), "Item 1: The solution is of type int"),
        (("q", b"x"), "Item 1: The solution is bytes"),
        (("q", ["x", 3]), "Item 1: Step 1 of the list is of type int"),
        (("q", "\ud800"), "Item 1: The solution contains half of a surrogate pair"),
    ],
)
def test_a_malformed_item_is_refused_before_anything_is_sent(item: object, message: str) -> None:
    client = surefoot.connect("http://127.0.0.1:9", patience=0)
    with pytest.raises(InputError, match=message):
        client.score_many([(QUESTION, SOLUTION), item])  # type: ignore[list-item]


def test_wrong_options(url: str) -> None:
    with pytest.raises(OptionError, match="is not the address of a service"):
        surefoot.connect("127.0.0.1:8000")


def test_an_unknown_model_is_named_with_those_that_are_served(url: str, scorer: surefoot.Scorer) -> None:
    message = f"does not serve a model called 'qwen'. It serves: {scorer.name}."
    with surefoot.connect(url, model="qwen") as client:
        for ask in (lambda: client.score(QUESTION, SOLUTION), lambda: client.fingerprint):
            with pytest.raises(OptionError, match=re.escape(message)):
                ask()

    async def score() -> None:
        async with surefoot.AsyncClient(url, model="qwen") as client:
            await client.score(QUESTION, SOLUTION)

    with pytest.raises(OptionError, match=re.escape(message)):
        asyncio.run(score())


@pytest.mark.parametrize(
    ("url", "options", "message"),
    [
        ("http://127.0.0.1:port", {}, "cannot be read"),
        ("ftp://127.0.0.1", {}, "is not the address of a service"),
        ("http://", {}, "is not the address of a service"),
        ("http://me:secret@127.0.0.1:9", {}, "contains a password"),
        ("http://127.0.0.1:9", {"timeout": None}, "timeout=None"),
        ("http://127.0.0.1:9", {"timeout": 90_000}, "timeout=90000"),
        ("http://127.0.0.1:9", {"api_key": "schlüssel"}, "printable ASCII"),
        ("http://127.0.0.1:9", {"api_key": "two words"}, "printable ASCII"),
    ],
)
def test_what_cannot_work_is_refused_at_once(url: str, options: dict[str, Any], message: str) -> None:
    for kind in (surefoot.Client, surefoot.AsyncClient):
        with pytest.raises(OptionError, match=message) as caught:
            kind(url, **options)
        assert "secret" not in str(caught.value)


def test_a_key_may_end_like_a_line(scorer: surefoot.Scorer) -> None:
    with served([scorer], Settings(api_key="word")) as (url, _), surefoot.connect(url, api_key="word\n") as client:
        assert client.score(QUESTION, SOLUTION).status == "scored"


def test_nobody_there_is_an_error_and_no_number() -> None:
    with pytest.raises(UnreachableError, match="did not answer"):
        surefoot.connect("http://127.0.0.1:9", patience=0.3).score(QUESTION, SOLUTION)

    async def ask() -> None:
        async with surefoot.AsyncClient("http://127.0.0.1:9", patience=0.3) as client:
            await client.score(QUESTION, SOLUTION)

    with pytest.raises(UnreachableError, match="did not answer"):
        asyncio.run(ask())


class Replies(ThreadingHTTPServer):
    """A server that gives prepared replies, one after the other; the last one again and again."""

    def __init__(self, *replies: tuple[int, str], retry_after: str = "0", pause: float = 0.0) -> None:
        self.asked = 0

        class Handler(BaseHTTPRequestHandler):
            def do_POST(handler) -> None:
                handler.rfile.read(int(handler.headers["Content-Length"]))
                code, body = replies[min(self.asked, len(replies) - 1)]
                self.asked += 1
                time.sleep(pause)
                if code == 0:
                    handler.close_connection = True
                    return
                handler.send_response(code)
                if code == 429:
                    handler.send_header("Retry-After", retry_after)
                handler.send_header("Content-Length", str(len(body.encode())))
                handler.end_headers()
                handler.wfile.write(body.encode())

            def log_message(handler, format: str, *args: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


def test_what_may_pass_is_tried_again(scorer: surefoot.Scorer) -> None:
    expected = scorer.score(QUESTION, SOLUTION)
    good = json.dumps({"results": [expected.to_dict()]})
    with Replies((503, "stopping"), (0, ""), (429, "{}"), (502, ""), (200, good)) as server:
        assert surefoot.connect(server.url).score(QUESTION, SOLUTION) == expected
        assert server.asked == 5
        server.shutdown()


def test_patience_begins_with_the_first_try(scorer: surefoot.Scorer) -> None:
    """The last of six requests over one connection waits for longer than its patience, and then is put off once."""
    expected = scorer.score(QUESTION, SOLUTION)
    good = (200, json.dumps({"results": [expected.to_dict()]}))
    items = [(QUESTION, SOLUTION)] * 6
    with Replies(*[good] * 5, (503, "{}"), good, pause=0.2) as server:

        async def ask() -> list[SolutionScore]:
            options: dict[str, Any] = {"patience": 0.5, "connections": 1, "items_per_request": 1}
            async with surefoot.AsyncClient(server.url, **options) as client:
                return await client.score_many(items)

        assert asyncio.run(ask()) == [expected] * 6
        assert server.asked == 7
        server.shutdown()


def test_a_long_retry_after_does_not_end_patience(scorer: surefoot.Scorer) -> None:
    expected = scorer.score(QUESTION, SOLUTION)
    good = json.dumps({"results": [expected.to_dict()]})
    with Replies((429, "{}"), (200, good), retry_after="60") as server:
        started = time.monotonic()
        assert surefoot.connect(server.url, patience=1.0).score(QUESTION, SOLUTION) == expected
        assert server.asked == 2
        assert 0.9 < time.monotonic() - started < 30
        server.shutdown()


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ((200, "<html>"), "not JSON"),
        ((200, "{}"), "has no results"),
        ((200, '{"results": []}'), "1 items were sent, but 0 results"),
        ((200, '{"results": [{"steps": 3, "model": "x"}]}'), "has no results"),
        ((500, '{"error": {"message": "broken"}}'), "500: broken"),
        ((504, "late"), "504"),
        ((413, "large"), "413"),
        ((401, "no"), "401"),
    ],
)
def test_what_is_no_answer_is_an_error_at_once(reply: tuple[int, str], message: str) -> None:
    with Replies(reply) as server:
        with pytest.raises(ServiceError, match=message) as raised:
            surefoot.connect(server.url).score(QUESTION, SOLUTION)
        assert not isinstance(raised.value, UnreachableError)
        assert server.asked == 1
        server.shutdown()


def test_patience_ends() -> None:
    with Replies((503, '{"error": {"message": "busy"}}')) as server:
        with pytest.raises(UnreachableError, match="503: busy"):
            surefoot.connect(server.url, patience=0.5).score(QUESTION, SOLUTION)
        assert server.asked > 1
        server.shutdown()


def test_importing_surefoot_is_light() -> None:
    code = "import surefoot, sys; print(sorted({'torch', 'httpx', 'starlette'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    code = "import surefoot, sys; surefoot.connect('http://127.0.0.1:9'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
