"""`surefoot serve` as a process: signals, restarts, logs, invalid options."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

import surefoot
from helpers.serving import Command
from surefoot.cli.main import main
from surefoot.core.calibration import Calibration, FittedOn, Logistic
from surefoot.errors import OptionError
from surefoot.scoring import loading
from surefoot.scoring.local import load_local
from surefoot.serve.server import Plan, load_models, serve
from surefoot.serve.settings import ModelSource, Settings


def questions(count: int) -> list[tuple[str, list[str]]]:
    return [(f"What is {n} + 2?", [f"{n} + 2 = {n + 2}.", "So that is it."]) for n in range(count)]


def right(found: list[surefoot.SolutionScore], expected: list[surefoot.SolutionScore]) -> bool:
    return all(
        one.step_scores == pytest.approx(other.step_scores, abs=1e-5)
        for one, other in zip(found, expected, strict=True)
    )


def test_sigterm_finishes_accepted_requests(checkpoint: Path, scorer: surefoot.Scorer) -> None:
    items = questions(300)
    expected = scorer.score_many(items)
    with Command(checkpoint, "--log-format", "json") as service:

        async def load() -> list[httpx.Response | Exception]:
            limits = httpx.Limits(max_connections=40)
            async with httpx.AsyncClient(base_url=service.url, limits=limits, timeout=60) as http:

                async def one(item: tuple[str, list[str]]) -> httpx.Response:
                    body = {"items": [{"question": item[0], "steps": item[1]}]}
                    return await http.post("/v1/score", json=body)

                asked = [asyncio.create_task(one(item)) for item in items]
                while sum(task.done() for task in asked) < 40:
                    await asyncio.sleep(0.005)
                service.signal(signal.SIGTERM)
                return await asyncio.gather(*asked, return_exceptions=True)  # type: ignore[return-value]

        replies = asyncio.run(load())
        assert service.wait() == 0
    answered = [(reply, number) for number, reply in enumerate(replies) if isinstance(reply, httpx.Response)]
    good = [(reply, number) for reply, number in answered if reply.status_code == 200]
    assert {reply.status_code for reply, _ in answered} <= {200, 503}
    assert len(good) >= 40
    for reply, number in good:
        assert right([surefoot.SolutionScore.from_dict(reply.json()["results"][0])], [expected[number]])
    assert good[0][0].json()["results"][0]["model"] == "small"
    assert all(str(checkpoint) not in reply.text and reply.headers.get("server") is None for reply, _ in answered)
    # Every reply that the service logged has arrived.
    logged = [json.loads(line) for line in service.lines]
    assert [row["message"].split()[0] for row in logged if row["logger"] == "surefoot.serve"][:2] == ["Serving", "POST"]
    assert sum(row.get("status") == 200 and row.get("items") == 1 for row in logged) == len(good)
    # All other requests were never accepted: their connection was refused, or closed before anything was read.
    assert all(isinstance(reply, httpx.TransportError) for reply in replies if not isinstance(reply, httpx.Response))


def test_the_loading_thread_ends(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its OpenMP threads would compete with those of the engine and halve its speed."""
    load, loaders = loading.load, []

    def watched(*args: Any, **options: Any) -> surefoot.StepScorer:
        loaders.append(threading.current_thread())
        return load(*args, **options)

    monkeypatch.setattr(loading, "load", watched)
    (found,) = load_models([ModelSource(str(checkpoint), "one")])
    assert (found.name, found.score(*questions(1)[0]).status) == ("one", "scored")
    with pytest.raises(surefoot.SurefootError, match="nowhere"):
        load_models([ModelSource("nowhere", "two")])
    assert len(loaders) == 2
    assert not any(loader.is_alive() for loader in loaders)


def post(caller: socket.socket, length: int, beginning: bytes) -> None:
    """Sends the head of a request with a body of this length, and the body's beginning."""
    caller.sendall(b"POST /v1/score HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
    caller.sendall(b"Content-Length: %d\r\n\r\n" % length + beginning)


@contextmanager
def unfinished(service: Command) -> Iterator[socket.socket]:
    """Keeps a request in flight: its body does not end."""
    with socket.create_connection(("127.0.0.1", service.port)) as caller:
        post(caller, 1000, b'{"items": [')
        until(lambda: "surefoot_requests_in_flight 1" in httpx.get(f"{service.url}/metrics").text)
        yield caller


def until(true: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "the condition never became true"
        time.sleep(0.02)


def test_a_second_signal_ends_the_process(checkpoint: Path) -> None:
    with Command(checkpoint, "--drain-seconds", "100") as service, unfinished(service):
        service.signal(signal.SIGTERM)
        until(lambda: httpx.get(f"{service.url}/ready").status_code == 503)
        service.signal(signal.SIGINT)
        assert service.wait(20) == -signal.SIGTERM


def test_draining_ends_with_the_drain_period(checkpoint: Path) -> None:
    with Command(checkpoint, "--drain-seconds", "5") as service, unfinished(service) as caller:
        started = time.monotonic()
        service.signal(signal.SIGTERM)
        caller.settimeout(60)
        assert caller.recv(4096).startswith(b"HTTP/1.1 503 "), "clients retry, here or elsewhere"
        assert 4.5 < time.monotonic() - started < 9.5
        assert service.wait(60) == 0


def test_an_unresponsive_engine_does_not_outlast_the_drain_period(checkpoint: Path) -> None:
    """The engine is a vLLM server that accepts a request and never replies."""
    with (
        silent_vllm() as url,
        Command(f"vllm+{url}", "--tokenizer", str(checkpoint), "--drain-seconds", "1") as service,
        ThreadPoolExecutor(1) as pool,
    ):
        item = {"question": "What is 1 + 2?", "steps": ["1 + 2 = 3."]}
        asked = pool.submit(httpx.post, f"{service.url}/v1/score", json={"items": [item]}, timeout=60)
        until(lambda: "surefoot_requests_in_flight 1" in httpx.get(f"{service.url}/metrics").text)
        time.sleep(0.5)
        started = time.monotonic()
        service.signal(signal.SIGTERM)
        reply = asked.result()
        assert (reply.status_code, reply.json()["error"]["type"]) == (503, "stopping")
        assert service.wait(30) == 1
        assert time.monotonic() - started < 15
    assert any("work was still running" in line for line in service.lines)


@contextmanager
def silent_vllm() -> Iterator[str]:
    silence = threading.Event()

    class Silent(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"data": [{"id": "small", "max_model_len": 512}]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            silence.wait(60)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Silent)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        silence.set()
        server.shutdown()
        server.server_close()


def test_a_slow_client_gets_its_whole_reply(checkpoint: Path) -> None:
    steps = ["x" * 2000] * 500
    body = json.dumps({"items": [{"question": "q", "steps": steps}] * 4}).encode()
    options = ("--max-item-chars", "2000000", "--queue-tokens", "50000000")
    with Command(checkpoint, *options) as service, socket.socket() as caller:
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        caller.settimeout(60)
        caller.connect(("127.0.0.1", service.port))
        post(caller, len(body), body)
        received = caller.recv(4096)
        service.signal(signal.SIGTERM)
        time.sleep(3)
        while b"\r\n\r\n" not in received:
            received += caller.recv(4096)
        head, _, rest = received.partition(b"\r\n\r\n")
        length = int(re.search(rb"content-length: (\d+)", head)[1])  # type: ignore[index]
        size = len(rest)
        while size < length and (more := caller.recv(1 << 16)):
            size += len(more)
        assert size == length
        assert service.wait(30) == 0


def test_clients_survive_a_killed_service(checkpoint: Path, scorer: surefoot.Scorer) -> None:
    items = questions(400)
    found: list[surefoot.SolutionScore] = []
    first = Command(checkpoint)
    with first, surefoot.connect(first.url, items_per_request=4, patience=90) as client:

        def ask() -> None:
            for result in client.score_stream(items, window=40):
                found.append(result)

        caller = threading.Thread(target=ask)
        caller.start()
        while not found:
            time.sleep(0.001)
        first.signal(signal.SIGKILL)
        first.wait()
        with Command(checkpoint, port=first.port):
            caller.join(90)
    assert right(found, scorer.score_many(items))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model", "no model"], "neither an existing folder nor a hub id"),
        (["--model", "vllm+http://127.0.0.1:9"], "Name the model that vllm+http://127.0.0.1:9 serves"),
        (["--model", "m=vllm+http://127.0.0.1:9", "--quantize", "nf4"], "--quantize: not supported for vllm+http"),
        (["--model", "m=http://127.0.0.1:9"], "http://127.0.0.1:9 is a service already"),
        (["--model", "a=b", "--model", "c=d", "--calibration", "FILE"], "A calibration belongs to one model"),
        (["--model", "m", "--api-key", "the-key-itself"], "The key file cannot be read"),
        (["--model", "m", "--host", "192.0.2.1"], "Cannot listen on 192.0.2.1"),
        (["--model", "m", "--host", "a" * 64 + "é"], "Choose another --host or --port"),
    ],
)
def test_invalid_options(options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "calibration.json"
    calibration("m", "0").write(file)
    assert main(["serve", "--port", "0", *(str(file) if option == "FILE" else option for option in options)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "the-key-itself" not in error


@pytest.mark.parametrize("port", ["99999", "-1"])
def test_a_port_has_sixteen_bits(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", f"--port={port}"]) == 2
    assert "--port: Input should be" in capsys.readouterr().err
    with pytest.raises(OptionError, match=f"Cannot listen on 127.0.0.1:{port}"):
        serve(Plan((), Settings()), port=int(port))


def test_served_scores_are_calibrated(checkpoint: Path, scorer: surefoot.Scorer, tmp_path: Path) -> None:
    file = tmp_path / "calibration.json"
    calibration(scorer.name, scorer.fingerprint).write(file)
    (item,) = questions(1)
    with Command(checkpoint, "--calibration", str(file)) as service, surefoot.connect(service.url) as client:
        found = client.score(*item)
    assert found.step_scores == pytest.approx(load_local(checkpoint, calibration=file).score(*item).step_scores)
    assert [step.raw for step in found.steps] == pytest.approx(scorer.score(*item).step_scores)
    assert found.calibration is not None


def calibration(model: str, fingerprint: str) -> Calibration:
    return Calibration(Logistic(0.3, -0.4), model, fingerprint, FittedOn(2, 5, "0" * 64))


def test_a_public_service_without_a_key_warns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--port", "0", "--host", "0.0.0.0", "--model", "no model"]) == 2
    assert "No API key is set" in capsys.readouterr().err
    assert main(["serve", "--port", "0", "--model", "no model"]) == 2
    assert "No API key is set" not in capsys.readouterr().err
