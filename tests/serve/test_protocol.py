"""The HTTP protocol over raw sockets: large and slow headers, slow bodies, clients that disconnect."""

from __future__ import annotations

import json
import logging
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

import surefoot
from helpers.serving import QUESTION, SOLUTION, Command, served
from surefoot.serve import Settings
from surefoot.serve.state import ServiceState

LIMIT = 4096
GET = b"GET /health HTTP/1.1\r\nHost: x\r\n"
BODY = json.dumps({"items": [{"question": QUESTION, "solution": SOLUTION}]}).encode()
POST = b"POST /v1/score HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
SCORE = POST + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"
ENDLESS = {
    "a header": (GET + b"X: ", b"x" * 1000),
    "a name": (GET, b"x" * 1000),
    "headers": (GET, b"a:b\r\n" * 200),
    "a path": (b"GET /", b"x" * 1000),
    "empty lines": (b"", b"\r\n" * 500),
}
"""The beginning of a request, and what follows without end."""


@contextmanager
def connected(url: str) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", httpx.URL(url).port or 0), timeout=60) as caller:
        yield caller


def received(caller: socket.socket) -> bytes:
    """Everything until the service closes the connection."""
    found = b""
    with suppress(ConnectionResetError):
        while part := caller.recv(65_536):
            found += part
    return found


def one_reply(caller: socket.socket) -> httpx.Response:
    """The next reply on a connection that stays open."""
    found = b""
    while b"\r\n\r\n" not in found:
        found += caller.recv(65_536)
    head, _, body = found.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = [(name, value) for name, _, value in (line.partition(": ") for line in lines)]
    while len(body) < int(dict(headers)["content-length"]):
        body += caller.recv(65_536)
    return httpx.Response(int(status.split()[1]), headers=headers, content=body)


@pytest.fixture(scope="module")
def service(scorer: surefoot.Scorer) -> Iterator[tuple[str, ServiceState]]:
    """It has an API key, and the requests do not: limits apply before the key is checked."""
    with served([scorer], Settings(max_header_bytes=LIMIT, api_key="a-key")) as found:
        yield found


@pytest.mark.parametrize("shape", ENDLESS)
@pytest.mark.parametrize("pieces", ["at once", "one by one"])
def test_headers_above_the_limit_get_431(service: tuple[str, ServiceState], shape: str, pieces: str) -> None:
    url, state = service
    before = state.metrics.registry.get_sample_value("surefoot_requests_total", {"route": "other", "status": "431"})
    beginning, more = ENDLESS[shape]
    with connected(url) as caller:
        if pieces == "at once":
            caller.sendall(beginning + more * 10)
        else:
            caller.sendall(beginning)
            for _ in range(10):
                caller.sendall(more)
        reply = received(caller)
    head, _, body = reply.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
    assert b"connection: close" in head
    assert json.loads(body)["error"] == {
        "type": "headers_too_large",
        "message": "The request line and the headers have more than 4096 bytes.",
        "code": 431,
    }
    after = state.metrics.registry.get_sample_value("surefoot_requests_total", {"route": "other", "status": "431"})
    assert after == (before or 0) + 1


def test_headers_within_the_limit_are_accepted(service: tuple[str, ServiceState]) -> None:
    with connected(service[0]) as caller:
        for _ in range(3):  # the limit is per request, not per connection
            caller.sendall(GET + b"X: " + b"x" * (LIMIT - 200) + b"\r\n\r\n")
            assert one_reply(caller).status_code == 200


def test_trailers_count(service: tuple[str, ServiceState]) -> None:
    """Headers after a chunked body: the request is being read, so there is no reply to send."""
    head = CHUNKED.replace(b"Host: x", b"Host: x\r\nAuthorization: Bearer a-key") + b"0\r\n"
    for beginning, more in (ENDLESS["headers"], ENDLESS["a header"]):
        with connected(service[0]) as caller:
            caller.sendall(head + beginning.removeprefix(GET))
            with suppress(ConnectionError):
                for _ in range(20_000):
                    caller.sendall(more)
                pytest.fail("20 MB were read")
            assert received(caller) == b""


def test_what_is_not_http_gets_400(service: tuple[str, ServiceState]) -> None:
    with connected(service[0]) as caller:
        caller.sendall(b"\x16\x03\x01\x00\xa5\x01\x00")  # a client that begins with TLS
        head, _, body = received(caller).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["error"]["type"] == "invalid_http"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the memory of a process from /proc")
def test_140_mb_of_headers_cost_no_memory(checkpoint: Path) -> None:
    with Command(checkpoint) as process:

        def peak() -> int:
            return int(Path(f"/proc/{process.pid}/status").read_text().split("VmHWM:")[1].split()[0])

        with connected(process.url) as caller:  # memory that every first request takes
            caller.sendall(SCORE)
            assert one_reply(caller).status_code == 200
        before = peak()
        for beginning, more in ENDLESS.values():
            with connected(process.url) as caller, suppress(ConnectionError):
                caller.sendall(beginning)
                part = more * (1_000_000 // len(more))
                for _ in range(140):
                    caller.sendall(part)
        assert httpx.get(f"{process.url}/health").status_code == 200
        assert peak() - before < 20_000, "in kB"


@pytest.mark.parametrize(
    "beginning",
    [b"", b"GE", b"GET /heal", GET, GET + b"X: 1", GET + b"X: 1\r\n", b"\r\n", SCORE[:60]],
    ids=["nothing", "method", "path", "headers", "value", "line", "empty line", "post"],
)
def test_unfinished_headers_are_not_waited_for(scorer: surefoot.Scorer, beginning: bytes) -> None:
    with served([scorer], Settings(header_timeout=0.3, api_key="a-key")) as (url, _), ExitStack() as stack:
        callers = [stack.enter_context(connected(url)) for _ in range(25)]
        for caller in callers:
            caller.sendall(beginning)
        replies = [received(caller) for caller in callers]
    assert {reply[:13] for reply in replies} == {b"HTTP/1.1 408 " if beginning else b""}


def test_bytes_do_not_extend_the_time_for_headers(scorer: surefoot.Scorer) -> None:
    with served([scorer], Settings(header_timeout=0.5)) as (url, _), connected(url) as caller:
        caller.sendall(GET)
        caller.settimeout(0.02)
        deadline = time.monotonic() + 60
        reply = b""
        while not reply:
            assert time.monotonic() < deadline, "the connection stayed open"
            caller.sendall(b"a:b\r\n")
            with suppress(TimeoutError):
                reply = caller.recv(4096)
        assert reply.startswith(b"HTTP/1.1 408 ")


def test_a_connection_stays_open_between_requests_and_during_long_ones(scorer: surefoot.Scorer) -> None:
    settings = Settings(header_timeout=0.2, body_timeout=0.2)
    with served([scorer], settings) as (url, _), connected(url) as caller:
        caller.sendall(GET + b"\r\n")
        assert one_reply(caller).status_code == 200
        time.sleep(0.6)
        with scorer.engine.lock:
            caller.sendall(SCORE)
            time.sleep(0.6)
        assert one_reply(caller).status_code == 200
        # The second request on a connection has the same limit as the first one.
        caller.sendall(GET)
        assert received(caller).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("key", [b"", b"Authorization: Bearer a-key\r\n"], ids=["no key", "key"])
def test_an_unfinished_body_is_not_waited_for(scorer: surefoot.Scorer, key: bytes) -> None:
    """Neither by a request that is being read, nor on a connection whose request was rejected before."""
    with (
        served([scorer], Settings(body_timeout=0.5, api_key="a-key")) as (url, _),
        connected(url) as caller,
    ):
        caller.sendall(POST + key + b'Content-Length: 1000\r\n\r\n{"items": [')
        caller.settimeout(0.05)
        deadline = time.monotonic() + 60
        found, closed = b"", False
        while not closed:
            assert time.monotonic() < deadline, "the connection stayed open"
            try:
                caller.sendall(b" ")
                part = caller.recv(4096)
                found, closed = found + part, not part
            except TimeoutError:
                pass
            except ConnectionError:
                closed = True
    assert found.startswith(b"HTTP/1.1 408 " if key else b"HTTP/1.1 401 ")


def test_clients_that_disconnect_during_the_reply_are_no_errors(
    scorer: surefoot.Scorer, caplog: pytest.LogCaptureFixture
) -> None:
    """Requests that were sent without waiting for replies are cancelled, too, and nothing is written to the socket."""
    long = json.dumps({"items": [{"question": "q", "steps": ["x " * 3] * 500}]}).encode()
    large = POST + b"Content-Length: %d\r\n\r\n" % len(long) + long
    page = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
    garbage = b"this is not HTTP\r\n\r\n"
    with served([scorer]) as (url, state), caplog.at_level(logging.DEBUG):
        for sent in (large, SCORE * 2, SCORE + page, page * 3, large * 3, SCORE + garbage):
            with scorer.engine.lock, connected(url) as caller:
                caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # reset, not close
                caller.sendall(sent)
                if b"/v1/score" in sent:
                    deadline = time.monotonic() + 30
                    while not state.in_flight and garbage not in sent:
                        assert time.monotonic() < deadline
                        time.sleep(0.01)
            with connected(url) as caller:  # begins to read the reply
                caller.sendall(sent)
                caller.recv(1)
        deadline = time.monotonic() + 30
        while state.in_flight:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert httpx.get(f"{url}/health").status_code == 200
    assert [record for record in caplog.records if record.levelno >= logging.ERROR or record.exc_info] == []
