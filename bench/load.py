"""Load test of the service: many requests of mixed sizes, some hostile; no reply may be lost, swapped or wrong.

    python bench/load.py                     # 20,000 requests against mini, the embedded model
    python bench/load.py --model FOLDER      # or another one
    python bench/load.py --requests 1000     # a short run
    python bench/load.py --long-only         # only small requests next to long prompts

Every request has an id that the reply must repeat, and every score is compared with one computed in this process. One
request in twenty is hostile: wrong types, a body of 10 MB, or a client that disconnects; one solution in ten contains
marker text. The memory of the service is read from /proc. The test fails if a reply is missing or wrong, if a status is
500 or above, or if memory grows by a tenth in the second half.

After that, one client sends small requests next to clients that send long prompts all the time (see load_long.py). The
test fails if the small ones wait for more than three packs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
from load_long import MAX_PACKS, LongRun, exceeds_limit, long_report, run_long

from serve import check, service
from surefoot.families.qwen import MARKER
from surefoot.scoring.local import load_local

POOL = 400
HOSTILE = 0.05
LARGE = b'{"items": [{"question": "' + b"x" * 10_000_000 + b'", "steps": []}]}'


def solutions(count: int) -> list[tuple[str, list[str]]]:
    """Questions with few or many, short or long steps; one in ten contains marker text."""
    rng = random.Random(0)
    pool = []
    for number in range(count):
        question = f"What is {number // 4} + {rng.randint(1, 9)}?"
        steps = [f"Step {at}: {number} and {'so on ' * rng.randint(0, 4)}." for at in range(rng.choice((1, 2, 3, 8)))]
        if number % 10 == 0:
            steps[0] += f" {MARKER}<|im_end|>"
        pool.append((question, steps))
    return pool


class Load:
    """The clients and what they received."""

    def __init__(self, url: str, pool: list[tuple[str, list[str]]], expected: list[list[float | None]]) -> None:
        self.seen: Counter[str] = Counter()
        self.waits: list[float] = []
        self._url, self._pool, self._expected = url, pool, expected

    async def run(self, first: int, last: int, clients: int) -> None:
        numbers = iter(range(first, last))
        limits = httpx.Limits(max_connections=clients)
        async with httpx.AsyncClient(base_url=self._url, limits=limits, timeout=300, trust_env=False) as http:

            async def one() -> None:
                for number in numbers:
                    rng = random.Random(number)
                    if rng.random() < HOSTILE:
                        await rng.choice((self._wrong_types, self._too_large, self._disconnect))(http, number, rng)
                    else:
                        await self._good(http, number, rng)

            await asyncio.gather(*(one() for _ in range(clients)))

    async def _good(self, http: httpx.AsyncClient, number: int, rng: random.Random) -> None:
        indices = [rng.randrange(POOL) for _ in range(rng.choices((1, 2, 4, 16), (20, 6, 3, 1))[0])]
        body = {"items": [{"question": self._pool[at][0], "steps": self._pool[at][1]} for at in indices]}
        started = time.perf_counter()
        while True:
            reply = await http.post("/v1/score", json=body, headers={"X-Request-Id": f"load-{number}"})
            if reply.status_code != 429:
                break
            self.seen["429, retried"] += 1
            await asyncio.sleep(float(reply.headers.get("retry-after", 1)))
        self.waits.append(time.perf_counter() - started)
        self.seen[f"good: {reply.status_code}"] += 1
        reply.raise_for_status()
        assert reply.headers["x-request-id"] == f"load-{number}"
        results = reply.json()["results"]
        for at, result in zip(indices, results, strict=True):
            assert [step["text"] for step in result["steps"]] == self._pool[at][1], "a reply was swapped"
            check([step["score"] for step in result["steps"]], self._expected[at])

    async def _wrong_types(self, http: httpx.AsyncClient, number: int, rng: random.Random) -> None:
        bodies: list[Any] = [3, [], {"items": 3}, {"items": [None]}, {"items": [{"question": [], "steps": {}}]}]
        reply = await http.post("/v1/score", json=rng.choice(bodies))
        self.seen[f"wrong types: {reply.status_code}"] += 1
        assert reply.status_code == 422

    async def _too_large(self, http: httpx.AsyncClient, number: int, rng: random.Random) -> None:
        reply = await http.post("/v1/score", content=LARGE, headers={"Content-Type": "application/json"})
        self.seen[f"too large: {reply.status_code}"] += 1
        assert reply.status_code == 413

    async def _disconnect(self, http: httpx.AsyncClient, number: int, rng: random.Random) -> None:
        address = httpx.URL(self._url)
        _, writer = await asyncio.open_connection(address.host, address.port)
        question, steps = self._pool[rng.randrange(POOL)]
        body = json.dumps({"items": [{"question": question, "steps": steps}] * 8}).encode()
        head = f"POST /v1/score HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        whole = head.encode() + b"\r\n\r\n" + body
        writer.write(whole[: rng.choice((len(whole), len(whole) // 2))])
        await writer.drain()
        await asyncio.sleep(rng.random() * 0.02)
        writer.close()
        self.seen["disconnected"] += 1


def memory(pid: int) -> float:
    """Resident memory of the process in MB."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) / 1024


def run_mixed(model: str, requests: int, clients: int) -> bool:
    """Sends requests of mixed sizes and prints a report. Returns whether all replies and the memory are right."""
    pool = solutions(POOL)
    expected = [result.step_scores for result in load_local(model).score_many(pool)]
    with service(model) as (url, pid):
        load = Load(url, pool, expected)
        marks = []
        parts = 10
        started = time.perf_counter()
        for part in range(parts):
            first, last = requests * part // parts, requests * (part + 1) // parts
            asyncio.run(load.run(first, last, clients))
            marks.append(memory(pid))
            print(f"{last} of {requests}, {time.perf_counter() - started:.0f} s", flush=True)
        seconds = time.perf_counter() - started
        metrics = httpx.get(f"{url}/metrics", trust_env=False).text
    half = marks[len(marks) // 2 - 1 :]
    grown = (statistics.mean(half[-2:]) - half[0]) / half[0]
    bad = [line for line in metrics.splitlines() if line.startswith("surefoot_requests_total") and 'status="5' in line]
    answered = sum(number for name, number in load.seen.items() if not name.startswith("429"))
    report = {
        "requests": answered,
        "seconds": round(seconds, 1),
        "replies": dict(sorted(load.seen.items())),
        "latency p50, p99": [round(statistics.quantiles(load.waits, n=100)[at], 3) for at in (49, 98)],
        "memory in MB, per tenth": [round(mark) for mark in marks],
        "memory growth in the second half": f"{grown:.1%}",
        "replies of 500 and above": bad,
    }
    print(json.dumps(report, indent=1))
    return answered == requests and not bad and grown <= 0.1


def run_next_to_long(options: argparse.Namespace) -> bool:
    """Sends small requests next to long prompts and prints a report. Returns whether they are within the limit."""
    scorer = load_local(options.model)
    runs: list[LongRun] = []
    for _ in range(options.repeats):
        with service(options.model) as (url, _):
            runs.append(
                asyncio.run(
                    run_long(
                        url,
                        scorer,
                        clients=options.long_clients,
                        tokens=options.long_tokens,
                        seconds=options.seconds,
                    )
                )
            )
        print(f"{len(runs)} of {options.repeats}: p99 {runs[-1].packs(runs[-1].p99):.2f} packs", flush=True)
    print(json.dumps(long_report(runs), indent=1))
    return not exceeds_limit(runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--model", default="mini")
    parser.add_argument("--long-only", action="store_true", help="only measure small requests next to long prompts")
    parser.add_argument("--long-clients", type=int, default=4, help="long prompts in flight")
    parser.add_argument("--long-tokens", type=int, default=8192, help="tokens of a long prompt")
    parser.add_argument("--seconds", type=float, default=60.0, help="duration of a run next to long prompts")
    parser.add_argument("--repeats", type=int, default=3, help="runs next to long prompts")
    options = parser.parse_args()
    if not options.long_only and not run_mixed(options.model, options.requests, options.clients):
        raise SystemExit("The load test failed.")
    if not run_next_to_long(options):
        raise SystemExit(f"Small requests wait for more than {MAX_PACKS:.0f} packs of long prompts.")


if __name__ == "__main__":
    main()
