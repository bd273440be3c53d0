"""What scoring costs next to vLLM: cold start, time and CPU time per solution, and memory, for one question and many.

    python bench/costs.py --layers 4 --rollouts FILE              # transformers, Surefoot in two formats, and vLLM
    python bench/costs.py --layers 4 --rollouts FILE --no-vllm

Each method is a process of its own, started when nothing else runs. A cold start ends with the first score. After that
the methods take turns. CPU time and memory are those of the process and its children; the memory is the largest sum of
their pages, shared ones counted once. Linux only. The model is a random checkpoint with the shapes of Qwen2.5-0.5B.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from rollouts import Group, load_groups
from vllm_scorer import VllmScorer

FORMATS: dict[str, dict[str, Any]] = {"Surefoot": {}, "Surefoot, int8": {"quantize": "int8"}}
TRANSFORMERS, VLLM = "transformers, one forward pass per solution", "vLLM"
POLL = 0.25
"""Seconds between two looks at the memory."""
Request = list[dict[str, Any]]
"""One row per solution: its question, steps and token ids."""


class Method(Protocol):
    """A process that scores."""

    pid: int

    def score(self, request: Request) -> object: ...


class Ours:
    """A child of this script with a loaded model."""

    def __init__(self, name: str, folder: Path) -> None:
        command = [sys.executable, __file__, "--child", name, "--folder", str(folder)]
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self._child.pid

    def score(self, request: Request) -> object:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        print(json.dumps(request), file=self._child.stdin, flush=True)
        return json.loads(self._child.stdout.readline())


class Vllm:
    """vLLM in its own environment. It gets token ids."""

    def __init__(self, folder: Path) -> None:
        self._scorer = VllmScorer(folder, "float32")
        self.pid = self._scorer.pid

    def score(self, request: Request) -> object:
        return self._scorer.score([row["ids"] for row in request])


def child(name: str, folder: Path) -> None:
    """Score what standard input asks for."""
    from surefoot.scoring.local import load_local

    score: Callable[[Request], object]
    if name == TRANSFORMERS:
        import torch

        from engine import Plain
        from surefoot.core.prompt import Prompt

        plain = Plain(folder, torch.float32)

        def score(request: Request) -> object:
            return [one.tolist() for one in plain.all([Prompt(tuple(row["ids"]), (), 0) for row in request], 1)]

    else:
        ours = load_local(folder, device="cpu", **FORMATS[name])

        def score(request: Request) -> object:
            items = [(row["question"], row["steps"]) for row in request]
            return [result.step_scores for result in ours.score_many(items)]

    for line in sys.stdin:
        print(json.dumps(score(json.loads(line))), flush=True)


def requests(folder: Path, groups: list[Group]) -> dict[str, Request]:
    """As many solutions to one question as there are questions, and one solution to each question."""
    from surefoot.scoring.local import load_local

    scorer = load_local(folder, device="cpu")

    def row(question: str, steps: list[str]) -> dict[str, Any]:
        ids = scorer.family.render(scorer.tokenizer, question, steps).ids
        return {"question": question, "steps": steps, "ids": ids}

    question, solutions = groups[0]
    return {
        "one question": [row(question, steps) for steps in solutions],
        "many questions": [row(question, solutions[0]) for question, solutions in groups],
    }


def _tree(pid: int) -> list[int]:
    """A process and its children, and theirs."""
    children = [
        int(child)
        for file in Path(f"/proc/{pid}/task").glob("*/children")
        for child in file.read_text(encoding="ascii").split()
    ]
    return [pid, *(each for child in children for each in _tree(child))]


def cpu_seconds(pid: int) -> float:
    """The CPU time that a process and its children have used so far."""
    ticks = 0
    for each in _tree(pid):
        fields = Path(f"/proc/{each}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def memory_gb(pid: int) -> float:
    """The memory of a process and its children; pages that several of them share count once."""
    rollups = [Path(f"/proc/{each}/smaps_rollup").read_text(encoding="ascii") for each in _tree(pid)]
    return sum(int(line.split()[1]) for text in rollups for line in text.splitlines() if line.startswith("Pss:")) / 1e6


def peak_memory(method: Method, request: Request) -> float:
    """The most memory that a method takes while it scores, in GB. Looking at it takes time, so it is not timed."""
    most, scored = 0.0, threading.Event()

    def score() -> None:
        method.score(request)
        scored.set()

    threading.Thread(target=score, daemon=True).start()
    while not scored.wait(POLL):
        with suppress(OSError):  # a process that ends in between
            most = max(most, memory_gb(method.pid))
    return most


def measure(folder: Path, groups: list[Group], options: argparse.Namespace) -> None:
    asked = requests(folder, groups)
    first = asked["one question"][:1]
    starts: dict[str, Callable[[], Method]] = {name: partial(Ours, name, folder) for name in (TRANSFORMERS, *FORMATS)}
    if options.vllm:
        starts[VLLM] = partial(Vllm, folder)
    methods: dict[str, Method] = {}
    cold: dict[str, float] = {}
    for name, start in starts.items():
        before = time.perf_counter()
        methods[name] = start()
        methods[name].score(first)
        cold[name] = time.perf_counter() - before
        print(f"{name}: first score after {cold[name]:.1f} s", file=sys.stderr)
    wall: dict[tuple[str, str], list[float]] = {(kind, name): [] for kind in asked for name in methods}
    cpu: dict[tuple[str, str], list[float]] = {key: [] for key in wall}
    for _ in range(options.repeats):
        for kind, request in asked.items():
            for name, method in methods.items():
                used, before = cpu_seconds(method.pid), time.perf_counter()
                method.score(request)
                wall[kind, name].append(time.perf_counter() - before)
                cpu[kind, name].append(cpu_seconds(method.pid) - used)
    memory = {name: peak_memory(method, asked["one question"]) for name, method in methods.items()}
    print(f"\nfloat32, {options.layers} layers, {len(groups)} solutions, {options.repeats} repeats\n")
    kinds = " | ".join(f"{kind}: ms, CPU ms per solution" for kind in asked)
    print(f"| method | cold start, s | memory, GB | {kinds} |")
    print("| --- | --- | --- |" + " --- |" * len(asked))
    for name in methods:
        cells = [f"{_each(wall[kind, name], asked[kind])}, {_each(cpu[kind, name], asked[kind])}" for kind in asked]
        print(f"| {name} | {cold[name]:.1f} | {memory[name]:.2f} | " + " | ".join(cells) + " |")
    if options.vllm:
        for kind in asked:
            for name in FORMATS:
                ratios = [slow / fast for slow, fast in zip(wall[kind, VLLM], wall[kind, name], strict=True)]
                print(f"\n{kind}: {name} is {_spread(ratios)} times as fast as vLLM")


def _each(seconds: list[float], request: Request) -> str:
    return f"{1000 * statistics.median(seconds) / len(request):.0f}"


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} [{min(values):.2f}-{max(values):.2f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--solutions", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--layers", type=int, default=24, help="fewer layers for a quick look")
    parser.add_argument("--rollouts", type=Path, help="JSONL file of real solutions (default: generated ones)")
    parser.add_argument("--no-vllm", dest="vllm", action="store_false")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.folder)
        return
    from engine import SIZES_HALF_B
    from surefoot.testing import write_qwen_checkpoint

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_qwen_checkpoint(folder, dtype="float32", **(SIZES_HALF_B | {"num_hidden_layers": options.layers}))
        measure(folder, load_groups(options.rollouts, options.solutions, options.solutions), options)


if __name__ == "__main__":
    main()
