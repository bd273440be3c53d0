"""The process that `contention.py` starts for each setting: scores what it is asked for, and says how long it took."""

from __future__ import annotations

import json
import os
import random
import re
import statistics
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import torch

from surefoot.engine.thread_limit import fixed_threads
from surefoot.scoring.local import load_local

Item = tuple[str, list[str]]


def solutions(count: int, *, steps: int = 3, seed: int = 0) -> list[Item]:
    """Solutions of different questions: about 60 tokens each with three steps."""
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        total = rng.randint(2, 50)
        question, lines = f"A box holds {total} pens, and more are added. How many pens are there?", []
        for _ in range(steps):
            more = rng.randint(2, 50)
            lines.append(f"Now {total} + {more} = {total + more}.")
            total += more
        found.append((question, lines))
    return found


def answer_orders() -> None:
    """Load the model, then score what each line of standard input asks for, and print how long it took."""
    scorer = load_local("mini")
    scorer.score_many(solutions(8))
    print(json.dumps({"spin": spin_seconds(), "libraries": openmp_libraries()}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        items = solutions(order["count"], steps=order["steps"], seed=order["seed"])
        torch.set_num_threads(order["threads"])
        with nullcontext() if order["adapt"] else fixed_threads():
            scorer.score_many(items[:1])
            seconds, before = [], usage()
            for _ in range(order["repeats"]):
                started = time.perf_counter()
                results = scorer.score_many(items)
                seconds.append(time.perf_counter() - started)
        cpu, switches = ((new - old) / order["repeats"] for new, old in zip(usage(), before, strict=True))
        scores = [score for result in results for score in result.step_scores]
        tokens = sum(result.tokens for result in results)
        reply = {"seconds": seconds, "cpu": cpu, "switches": switches, "scores": scores, "tokens": tokens}
        print(json.dumps(reply), flush=True)


def openmp_libraries() -> list[str]:
    """The OpenMP runtimes that this process has loaded."""
    return sorted(set(re.findall(r"/(lib(?:gomp|i?omp)[^/\s]*)$", Path("/proc/self/maps").read_text(), re.MULTILINE)))


def run_time(task: Path) -> float:
    """CPU seconds of a thread."""
    return int((task / "schedstat").read_text().split()[0]) / 1e9


def usage() -> tuple[float, int]:
    """CPU seconds, and involuntary context switches of the threads that compute: those with much CPU time."""
    switches = 0
    for task in Path("/proc/self/task").iterdir():
        found = re.search(r"^nonvoluntary_ctxt_switches:\s+(\d+)", (task / "status").read_text(), re.MULTILINE)
        switches += int(found[1]) if found and run_time(task) > 0.1 else 0
    return time.process_time(), switches


def spin_seconds() -> float:
    """CPU time that a thread of the OpenMP pool uses after one parallel region, before it sleeps."""

    def others() -> dict[str, float]:
        tasks = [task for task in Path("/proc/self/task").iterdir() if task.name != str(os.getpid())]
        return {task.name: run_time(task) for task in tasks}

    torch.set_num_threads(2)
    numbers, measured = torch.ones(400_000), []
    for _ in range(10):
        numbers.add_(1)
        time.sleep(0.05)
        before = others()
        numbers.add_(1)
        time.sleep(0.05)
        measured.append(max(spent - before.get(task, spent) for task, spent in others().items()))
    return statistics.median(measured)


if __name__ == "__main__":
    answer_orders()
