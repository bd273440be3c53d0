"""The HTTP interface of the review page: only its own page may change labels, and nothing wrong is saved."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

import surefoot
from helpers.review_folder import BAKER, reviewed, solutions, write_labels
from helpers.serving import served
from surefoot.labelling.review.labels import key_of

HASH = key_of(solutions()[0]).hash
SAVE = "/api/solutions/0"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_labels(tmp_path / "labels")


@pytest.fixture
def url(folder: Path) -> Iterator[str]:
    with reviewed(folder) as url:
        yield url


def body(step: Any = 0, verdict: Any = "wrong", before: Any = None, **more: Any) -> dict[str, Any]:
    return {"hash": HASH, "changes": [{"step": step, "verdict": verdict, "before": before}], **more}


def test_what_the_page_reads(url: str) -> None:
    found = httpx.get(f"{url}/api/review").json()
    assert [(entry["index"], entry["number"], entry["first_error"]) for entry in found["entries"]] == [
        (0, 0, -1),
        (0, 1, 1),
        (1, 0, -1),
        (2, 0, None),
    ]
    assert [entry["disagrees"] for entry in found["entries"]] == [False, False, True, False]
    assert [entry["unknown"] for entry in found["entries"]] == [False, False, False, True]
    assert {entry["progress"] for entry in found["entries"]} == {"open"}
    assert (found["folder"], found["model"], found["without_steps"]) == ("labels", None, 1)
    second = httpx.get(f"{url}/api/solutions/1").json()
    assert (second["question"], second["gold"], second["first_error"]) == (BAKER, "44", {"labels": 1, "now": 1})
    step = second["steps"][1]
    assert (step["label"]["hard"], step["rollouts"]["right"], step["rollouts"]["wrong"]) == (False, 0, 8)
    assert step["interval"] == pytest.approx([0.0, 0.32441], abs=1e-4)  # Wilson: z^2 / (8 + z^2)
    assert second["steps"][2]["label"]["reason"] == "The step comes after the first error."
    third = httpx.get(f"{url}/api/solutions/2").json()
    assert third["judge"] == {"model": "judge-7b", "first_error": 0, "scores": [0.04, 0.31]}


def test_a_change_is_saved_before_the_reply(url: str, folder: Path) -> None:
    reply = httpx.post(url + SAVE, json=body(1))
    assert reply.status_code == 200
    assert reply.json()["solution"]["first_error"] == {"labels": -1, "now": 1}
    assert reply.json()["summary"]["changed"] == 1
    (line,) = map(json.loads, (folder / "corrections.jsonl").read_text().splitlines())
    assert (line["index"], line["number"], line["step"], line["verdict"]) == (0, 0, 1, "wrong")
    late = httpx.post(url + SAVE, json=body(1, "right"))
    assert late.status_code == 409
    assert "it is wrong now" in late.json()["error"]
    assert httpx.get(url + SAVE).json()["steps"][1]["opinion"] == "wrong"


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "evil.example:80"},
        {"host": "127.0.0.1.evil.example"},
        {"host": "localhost.evil.example"},
        {"host": ""},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": "http://localhost.evil.example"},
        {"origin": ""},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
    ],
)
def test_other_names_and_other_pages_are_rejected(url: str, folder: Path, headers: dict[str, str]) -> None:
    reply = httpx.post(url + SAVE, json=body(), headers=headers)
    assert reply.status_code == 403
    assert reply.json()["error"].endswith(".")
    assert not (folder / "corrections.jsonl").exists()
    if "host" in headers:
        for path in ("/", "/api/review", "/api/export", "/static/review.js"):
            found = httpx.get(url + path, headers=headers)
            assert found.status_code == 403
            assert "rolls" not in found.text
    preflight = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}
    asked = httpx.options(url + SAVE, headers=preflight | headers)
    assert asked.status_code in (403, 405)
    assert not [name for name in asked.headers if name.startswith("access-control")]


def test_two_hosts_are_rejected(url: str) -> None:
    address = httpx.URL(url)
    with socket.create_connection((address.host, address.port or 0)) as connection:
        connection.sendall(b"GET /api/review HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n")
        assert connection.recv(4096).split(b"\r\n")[0].split()[1] in (b"400", b"403")


@pytest.mark.parametrize("name", ["127.0.0.1:9000", "localhost:9000", "LOCALHOST"])
def test_the_page_works_behind_a_tunnel(url: str, name: str) -> None:
    headers = {"host": name, "origin": f"http://{name}", "sec-fetch-site": "same-origin"}
    assert httpx.post(url + SAVE, json=body(), headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("content", "kind", "code", "said"),
    [
        ("{", "application/json", 400, "not JSON"),
        ("", "application/json", 400, "not JSON"),
        ("[" * 100_000, "application/json", 400, "not JSON"),
        (b"\xff", "application/json", 400, "not JSON"),
        (json.dumps(body()), "text/plain", 415, "Content-Type: application/json"),
        (json.dumps(body()), "", 415, "Content-Type: application/json"),
        (json.dumps(body()), "application/x-www-form-urlencoded", 415, "Content-Type: application/json"),
        (json.dumps(body(padding="x" * 300_000)), "application/json", 413, "more than"),
        ("5", "application/json", 422, "`hash` and `changes`"),
        (json.dumps({"changes": []}), "application/json", 422, "`hash` and `changes`"),
        (json.dumps({"hash": HASH, "changes": []}), "application/json", 422, "at least one"),
        (json.dumps({"hash": HASH, "changes": [5]}), "application/json", 422, "`step`, `verdict` and `before`"),
        (json.dumps({"hash": HASH, "changes": body()["changes"] * 2}), "application/json", 422, "twice"),
        (json.dumps(body(step=3)), "application/json", 422, "no such step"),
        (json.dumps(body(step=-1)), "application/json", 422, "whole number"),
        (json.dumps(body(step=True)), "application/json", 422, "whole number"),
        (json.dumps(body(step="0")), "application/json", 422, "whole number"),
        (json.dumps(body(verdict="maybe")), "application/json", 422, "right, wrong, unsure"),
        (json.dumps(body(verdict=["right"])), "application/json", 422, "right, wrong, unsure"),
        (json.dumps(body(before=1)), "application/json", 422, "right, wrong, unsure"),
        (json.dumps(body() | {"hash": "0" * 16}), "application/json", 422, "Reload"),
    ],
)
def test_a_bad_body_is_rejected_and_loses_nothing(
    url: str, folder: Path, content: str | bytes, kind: str, code: int, said: str
) -> None:
    assert httpx.post(url + SAVE, json=body(2, "right")).status_code == 200
    before = (folder / "corrections.jsonl").read_bytes()
    reply = httpx.post(url + SAVE, content=content, headers={"content-type": kind})
    assert reply.status_code == code
    assert said in reply.json()["error"]
    assert (folder / "corrections.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/api/solutions/4", 404),
        ("/api/solutions/-1", 404),
        ("/api/solutions/x", 404),
        ("/api/solutions/0/scores", 404),
    ],
)
def test_what_does_not_exist(url: str, path: str, code: int) -> None:
    reply = httpx.get(url + path)
    assert reply.status_code == code
    assert "error" in reply.json()


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_read_only_folder_as_a_user(url: str, folder: Path) -> None:
    folder.chmod(0o500)
    try:
        reply = httpx.post(url + SAVE, json=body())
    finally:
        folder.chmod(0o700)
    assert reply.status_code == 500
    assert "is not saved" in reply.json()["error"]


def test_a_failure_to_write_is_an_error(url: str, folder: Path) -> None:
    (folder / "corrections.jsonl").mkdir()
    reply = httpx.post(url + SAVE, json=body())
    assert reply.status_code == 500
    assert "corrections.jsonl cannot be" in reply.json()["error"]
    (folder / "corrections.jsonl").rmdir()
    assert httpx.post(url + SAVE, json=body()).status_code == 200


def test_security_headers_and_no_inline_code(url: str) -> None:
    for path in ("/", "/static/review.js", "/static/view.js", "/static/review.css", "/static/base.css", "/api/review"):
        found = httpx.get(url + path)
        assert found.status_code == 200
        policy = found.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert found.headers["x-content-type-options"] == "nosniff"
    page = httpx.get(f"{url}/").text
    assert "<style" not in page
    assert "style=" not in page
    assert page.count("<script") == page.count('<script src="/static/') > 0
    assert "innerHTML" not in httpx.get(f"{url}/static/view.js").text + httpx.get(f"{url}/static/review.js").text


def test_the_export_is_a_download(url: str) -> None:
    httpx.post(url + SAVE, json=body(0))
    found = httpx.get(f"{url}/api/export")
    assert found.headers["content-disposition"] == 'attachment; filename="corrected.jsonl"'
    rows = [json.loads(line) for line in found.text.splitlines()]
    assert [row["targets"] for row in rows] == [[0.0, None, None], [1.0, 0.0, None], [None, 1.0]]


def test_scores_next_to_labels(folder: Path, mini: surefoot.Scorer) -> None:
    right = solutions()[2]
    write_labels(folder, [replace(right, judge=None)])
    expected = mini.score("What is 7 * 8?", ["7 * 8 = 54.", "So it is 56."])
    assert expected.first_error() == 0, "the labels say that there is no error"
    with reviewed(folder, mini) as url:
        assert httpx.get(f"{url}/api/review").json()["entries"][0]["disagrees"] is False, "not scored yet"
        found = httpx.get(f"{url}/api/solutions/0/scores", timeout=60).json()
        assert found["scores"] == pytest.approx(expected.step_scores, abs=1e-5)
        assert (found["first_error"], found["reasons"], found["scale"]) == (0, [None, None], "probability")
        assert found["entry"]["disagrees"] is True
        overview = httpx.get(f"{url}/api/review").json()
        assert (overview["model"], overview["entries"][0]["disagrees"]) == (mini.name, True)


def test_a_scorer_that_fails_does_not_stop_the_review(folder: Path, scorer: surefoot.Scorer) -> None:
    with served([scorer]) as (service, _):
        client = surefoot.Client(service, patience=0.2)
        assert client.name
    with client, reviewed(folder, client) as url:
        reply = httpx.get(f"{url}/api/solutions/0/scores", timeout=60)
        assert reply.status_code == 500
        assert service in reply.json()["error"]
        assert httpx.post(url + SAVE, json=body()).status_code == 200
