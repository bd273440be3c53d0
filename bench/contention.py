"""Measure scores of the embedded model while other processes keep the CPUs busy, with several thread settings.

    python bench/contention.py settings     # 1 and 2 threads, and how long OpenMP threads spin
    python bench/contention.py workers      # two processes with one thread against one process with two threads
    python bench/contention.py bits         # are scores bit-identical with other numbers of threads?
    python bench/contention.py regions      # parallel regions per forward pass; needs gdb

The script creates the contention: it starts busy processes, which end after a time limit, and stops them by their ids.
Every setting has a process of its own, because OpenMP reads its variables once. Settings take turns, so that other load
on the machine affects all of them; "others" is that load, in CPUs. Only Linux reports what is measured here.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from surefoot.engine.threads import SPIN_COUNT, usable_cpus

Process = subprocess.Popen[str]

BUSY_SECONDS = 900
"""A busy process ends by itself after this time."""
BUSY = f"""
import os, time
parent, end = os.getppid(), time.monotonic() + {BUSY_SECONDS}
while time.monotonic() < end and os.getppid() == parent: pass
"""
FEATURES = ("avx2", "avx512f", "avx512_bf16", "amx_tile")
WORK = {"one solution": 1, "eight solutions": 8}
SPIN_COUNTS = (0, SPIN_COUNT, 10 * SPIN_COUNT)
ADAPTING = "at most 2 threads, adapting"
SETTINGS: dict[str, tuple[int, dict[str, str]]] = {
    "1 thread": (1, {}),
    "2 threads": (2, {}),
    "2 threads, OMP_WAIT_POLICY=passive": (2, {"OMP_WAIT_POLICY": "passive"}),
    ADAPTING: (2, {}),
    f"{ADAPTING}, GOMP_SPINCOUNT={SPIN_COUNT}": (2, {"GOMP_SPINCOUNT": str(SPIN_COUNT)}),
    **{f"2 threads, GOMP_SPINCOUNT={count}": (2, {"GOMP_SPINCOUNT": str(count)}) for count in SPIN_COUNTS},
}
STREAM = 64
"""Solutions that the workers share."""
GDB = """
set pagination off
handle SIGUSR1 stop nopass
handle SIGUSR2 stop nopass
run
break GOMP_parallel
ignore 1 100000000
continue
info breakpoints
"""


class Child:
    """A process that scores with one setting of the environment. It ends when its standard input closes."""

    def __init__(self, stack: ExitStack, variables: dict[str, str]) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "MKL_"))}
        pipe = subprocess.PIPE
        command = [sys.executable, str(Path(__file__).with_name("contention_child.py"))]
        self.process: Process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=kept | variables)
        stack.callback(self.process.communicate)
        self.hello = self.reply()

    def order(self, count: int, threads: int, **more: int) -> None:
        order = {"count": count, "threads": threads, "repeats": 1, "steps": 3, "seed": 0, "adapt": False} | more
        assert self.process.stdin is not None
        print(json.dumps(order), file=self.process.stdin, flush=True)

    def reply(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        reply: dict[str, Any] = json.loads(self.process.stdout.readline())
        return reply

    def measure(self, *what: int, **more: int) -> dict[str, Any]:
        self.order(*what, **more)
        return self.reply()


@contextmanager
def busy(count: int) -> Iterator[list[Process]]:
    """Keep CPUs busy with this many processes."""
    processes = [subprocess.Popen([sys.executable, "-c", BUSY], text=True) for _ in range(count)]
    try:
        time.sleep(0.5)
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def other_cpu_seconds(own: Sequence[Process]) -> float:
    """CPU time of all processes but this one and its own ones."""
    ticks = sum(map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:4]))
    for pid in [os.getpid(), *(process.pid for process in own)]:
        ticks -= sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.0f} [{min(values):.0f}-{max(values):.0f}]"


def measure_settings(options: argparse.Namespace) -> None:
    with ExitStack() as stack:
        children = {name: Child(stack, variables) for name, (_, variables) in SETTINGS.items()}
        print(f"OpenMP: {', '.join(children['1 thread'].hello['libraries'])}")
        for name, one in children.items():
            print(f"{name}: a waiting thread uses {one.hello['spin'] * 1e3:.2f} ms of CPU time before it sleeps")
        own = [one.process for one in children.values()]
        for count in options.busy:
            for work, items in WORK.items():
                replies: dict[str, list[dict[str, Any]]] = defaultdict(list)
                with busy(count) as competitors:
                    started, before = time.monotonic(), other_cpu_seconds([*own, *competitors])
                    for _ in range(options.rounds):
                        for name, (threads, _) in SETTINGS.items():
                            replies[name].append(
                                children[name].measure(items, threads, repeats=3, adapt=name.startswith(ADAPTING))
                            )
                    others = (other_cpu_seconds([*own, *competitors]) - before) / (time.monotonic() - started)
                tokens = replies["1 thread"][0]["tokens"]
                print(f"\n{count} busy processes, {work} ({tokens} tokens), others {others:.2f}")
                print("| setting | ms | median / 1 thread | CPU ms | involuntary switches |\n|" + " --- |" * 5)
                seconds = {
                    name: [one for reply in found for one in reply["seconds"]] for name, found in replies.items()
                }
                for name, found in replies.items():
                    ratio = statistics.median(seconds[name]) / statistics.median(seconds["1 thread"])
                    cpu, switches = (statistics.median(reply[key] for reply in found) for key in ("cpu", "switches"))
                    shown = spread([one * 1e3 for one in seconds[name]])
                    print(f"| {name} | {shown} | {ratio:.2f} | {cpu * 1e3:.0f} | {switches:.0f} |", flush=True)


def measure_workers(options: argparse.Namespace) -> None:
    spin = {"GOMP_SPINCOUNT": str(options.spin)}
    with ExitStack() as stack:
        plain, short, *pair = (Child(stack, each) for each in ({}, spin, spin, spin))
        own = [one.process for one in (plain, short, *pair)]
        for count in options.busy:
            rates: dict[str, list[float]] = defaultdict(list)
            with busy(count) as competitors:
                begun, before = time.monotonic(), other_cpu_seconds([*own, *competitors])
                for _ in range(options.rounds):
                    for name, workers, threads in (
                        ("1 worker with 1 thread", [short], 1),
                        ("1 worker with 2 threads, default spinning", [plain], 2),
                        (f"1 worker with 2 threads, GOMP_SPINCOUNT={options.spin}", [short], 2),
                        ("2 workers with 1 thread", pair, 1),
                        (f"2 workers with 2 threads, GOMP_SPINCOUNT={options.spin}", pair, 2),
                    ):
                        started = time.perf_counter()
                        for seed, worker in enumerate(workers):
                            worker.order(STREAM // len(workers), threads, seed=seed)
                        tokens = sum(worker.reply()["tokens"] for worker in workers)
                        rates[name].append(tokens / (time.perf_counter() - started))
                others = (other_cpu_seconds([*own, *competitors]) - before) / (time.monotonic() - begun)
            print(f"\n{count} busy processes, {STREAM} solutions, others {others:.2f}")
            print("| workers | tokens per second | median / 1 worker with 1 thread |\n| --- | --- | --- |")
            for name, found in rates.items():
                ratio = statistics.median(found) / statistics.median(rates["1 worker with 1 thread"])
                print(f"| {name} | {spread(found)} | {ratio:.2f} |", flush=True)


def compare_bits(options: argparse.Namespace) -> None:
    with ExitStack() as stack:
        one = Child(stack, {"GOMP_SPINCOUNT": str(options.spin)})
        rng = random.Random(0)
        shapes = [(1, steps) for steps in range(1, 25)] + [(rng.randint(2, 12), rng.randint(1, 9)) for _ in range(24)]
        total, different, largest, where = 0, 0, 0.0, []
        for seed, (count, steps) in enumerate(shapes):
            found = [one.measure(count, threads, steps=steps, seed=seed) for threads in (1, 2, 1, 2)]
            scores = [reply["scores"] for reply in found]
            if scores[0] != scores[2] or scores[1] != scores[3]:
                print(f"{count} solutions with {steps} steps: not repeatable with the same number of threads")
            off = [abs(a - b) for a, b in zip(scores[0], scores[1], strict=True)]
            total, different, largest = total + len(off), different + sum(map(bool, off)), max(largest, *off)
            if any(off):
                where.append(f"{count} x {steps} steps ({found[0]['tokens']} tokens)")
    print(
        f"{total} scores in {len(shapes)} calls: {different} differ between 1 and 2 threads, by at most {largest:.1e}"
    )
    print("calls with a difference: " + (", ".join(where) or "none"))
    compare_products()


def compare_products() -> None:
    """Compare the matrix products of the model's sizes with 1 and 2 threads."""
    import torch

    from surefoot.families.mini import FOLDER

    config = json.loads((FOLDER / "config.json").read_text())
    wide, inner = config["hidden_size"], config["intermediate_size"]
    for inputs, outputs in ((wide, wide), (wide, inner), (inner, wide)):
        weight, differing = torch.randn(outputs, inputs), []
        for rows in range(1, 520):
            states, products = torch.randn(rows, inputs), []
            for threads in (1, 2):
                torch.set_num_threads(threads)
                products.append(states @ weight.T)
            differing += [] if torch.equal(*products) else [rows]
        print(f"[rows, {inputs}] x [{inputs}, {outputs}] differs between 1 and 2 threads for rows in {differing}")


def count_regions(options: argparse.Namespace) -> None:
    passes = 4
    program = (
        "import os, signal, sys; sys.path.insert(0, sys.argv[1]); from contention_child import solutions\n"
        "from surefoot.scoring.local import load_local\n"
        "scorer, items = load_local('mini'), solutions(int(sys.argv[2]))\n"
        "scorer.score_many(items); os.kill(os.getpid(), signal.SIGUSR1)\n"
        f"for _ in range({passes}): scorer.score_many(items)\n"
        "os.kill(os.getpid(), signal.SIGUSR2)\n"
    )
    for work, items in WORK.items():
        with tempfile.NamedTemporaryFile("w", suffix=".gdb") as script:
            script.write(GDB)
            script.flush()
            inferior = [sys.executable, "-c", program, str(Path(__file__).parent), str(items)]
            command = ["gdb", "-q", "-batch", "-x", script.name, "--args", *inferior]
            said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout
        hits = re.search(r"already hit (\d+) times", said)
        print(f"{work}: {int(hits[1]) / passes:.0f} parallel regions per call" if hits else said)


def main() -> None:
    commands = {
        "settings": measure_settings,
        "workers": measure_workers,
        "bits": compare_bits,
        "regions": count_regions,
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=commands, metavar="settings|workers|bits|regions")
    parser.add_argument("--busy", type=int, nargs="+", default=[0, 1, 2, 4], help="numbers of busy processes")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--spin", type=int, default=SPIN_COUNT, help="GOMP_SPINCOUNT of the workers")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # stops the other processes
    cpuinfo = Path("/proc/cpuinfo").read_text()
    name = re.search(r"^model name\s+: (.*)", cpuinfo, re.MULTILINE)
    flags = ", ".join(flag for flag in FEATURES if f" {flag}" in cpuinfo)
    print(f"{usable_cpus()} CPUs, {name[1] if name else 'unknown'}, features: {flags or 'none'}", flush=True)
    commands[options.what](options)


if __name__ == "__main__":
    main()
