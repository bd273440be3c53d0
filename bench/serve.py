"""Throughput of the service: many clients that send single solutions, against one score_many call in one process.

    python bench/serve.py                       # mini, 64 clients
    python bench/serve.py --model FOLDER        # another model
    python bench/serve.py --layers 8            # random weights, with layers like those of Qwen2.5-0.5B
    python bench/serve.py --layers 8 --with-vllm

`surefoot serve` runs in a separate process, the clients in this one. Rounds of both alternate, so that other load on
the machine affects both. Each client sends the next solution of a list as soon as it has the reply to its last one;
solutions of one question are adjacent in the list, like rollouts. Latencies are measured by the clients.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

import surefoot
from engine import SIZES_HALF_B
from rollouts import load_groups
from surefoot.scoring.local import load_local
from surefoot.testing import write_qwen_checkpoint

Item = tuple[str, list[str]]


@contextmanager
def service(folder: Path | str, *options: str) -> Iterator[tuple[str, int]]:
    """Starts `surefoot serve`; yields its address and its process id."""
    command = [sys.executable, "-m", "surefoot.cli", "serve", "--model", f"bench={folder}", "--port", "0"]
    child = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    said = []
    for line in child.stderr:
        said.append(line)
        if found := re.search(r"Serving .* at (http://\S+) ", line):
            break
    else:
        raise SystemExit("The service did not start:\n" + "".join(said))
    # Without a reader, the service would block on its log.
    drain = subprocess.Popen(["cat"], stdin=child.stderr, stdout=subprocess.DEVNULL)
    try:
        yield found.group(1), child.pid
    finally:
        child.terminate()
        child.wait(60)
        drain.wait(10)


async def run_clients(
    url: str, items: list[Item], count: int, expected: list[list[float | None]]
) -> tuple[float, list[float]]:
    """Returns the seconds for all items and the latency of each. Compares every reply with the expected scores."""
    waits = [0.0] * len(items)
    numbers = iter(range(len(items)))
    limits = httpx.Limits(max_connections=count, max_keepalive_connections=count)
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=600, trust_env=False) as http:
        # Open the connections before the measurement starts, like in a long training run.
        await asyncio.gather(*(http.get("/health") for _ in range(count)))

        async def one() -> None:
            for number in numbers:
                question, steps = items[number]
                started = time.perf_counter()
                reply = await http.post("/v1/score", json={"items": [{"question": question, "steps": steps}]})
                waits[number] = time.perf_counter() - started
                reply.raise_for_status()
                found = [step["score"] for step in reply.json()["results"][0]["steps"]]
                check(found, expected[number])

        started = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(count)))
        return time.perf_counter() - started, waits


def cpu_seconds(pid: int) -> float:
    """CPU time of a process: unlike wall time, it hardly depends on other load on the machine."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def check(found: list[float | None], expected: list[float | None]) -> None:
    for one, other in zip(found, expected, strict=True):
        if one is None or other is None or abs(one - other) > 1e-5:
            raise SystemExit(f"A score is {one}; expected {other}.")


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.3g} [{min(values):.3g}-{max(values):.3g}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="mini")
    parser.add_argument("--layers", type=int, default=0, help="use a model with random weights and this many layers")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--questions", type=int, default=8)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rollouts", type=Path, help="JSONL file with question and steps")
    parser.add_argument("--with-vllm", action="store_true", help="also measure a vLLM server (see vllm_server.py)")
    options = parser.parse_args()
    groups = load_groups(options.rollouts, options.questions, options.samples)
    items: list[Item] = [(question, steps) for question, solutions in groups for steps in solutions]
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.model
        if options.layers:
            folder = write_qwen_checkpoint(Path(temporary), **{**SIZES_HALF_B, "num_hidden_layers": options.layers})
        scorer = load_local(folder)
        results = scorer.score_many(items)
        expected = [result.step_scores for result in results]
        tokens = sum(result.tokens for result in results)
        print(f"{len(items)} solutions, {tokens} tokens, {options.clients} clients, {os.cpu_count()} cores", flush=True)
        local, served, latencies, cpu = [], [], [], []
        with service(folder) as (url, pid):
            asyncio.run(run_clients(url, items, options.clients, expected))
            for _ in range(options.repeats):
                started, local_cpu = time.perf_counter(), time.process_time()
                scorer.score_many(items)
                local.append(time.perf_counter() - started)
                local_cpu, before = time.process_time() - local_cpu, cpu_seconds(pid)
                seconds, waits = asyncio.run(run_clients(url, items, options.clients, expected))
                cpu.append((cpu_seconds(pid) - before) / local_cpu)
                served.append(seconds)
                latencies += waits
        report = {
            "in one process, tokens per second": spread([tokens / seconds for seconds in local]),
            "over HTTP, tokens per second": spread([tokens / seconds for seconds in served]),
            "HTTP / one process": spread([one / other for one, other in zip(local, served, strict=True)]),
            "CPU time, service / one process": spread(cpu),
            "latency p50, seconds": f"{statistics.median(latencies):.3g}",
            "latency p99, seconds": f"{statistics.quantiles(latencies, n=100)[98]:.3g}",
        }
        if options.with_vllm:
            from vllm_server import vllm_server

            with vllm_server(folder) as address:
                remote = surefoot.load(f"vllm+{address}", tokenizer=folder)
                remote.score_many(items)
                rounds = []
                for _ in range(options.repeats):
                    started = time.perf_counter()
                    remote.score_many(items)
                    rounds.append(time.perf_counter() - started)
            report["vLLM over HTTP, one list, tokens per second"] = spread([tokens / one for one in rounds])
    with suppress(BrokenPipeError):
        print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
