"""Bulk jobs: overhead of the runner, cost of continuing a finished job, and memory of large jobs.

    python bench/bulk.py                               # rows per second: score_stream, bulk, workers, Ray Data
    python bench/bulk.py --rollouts FILE --rows 1024   # real solutions: JSONL with `question` and `steps`
    python bench/bulk.py --memory                      # peak memory at 10,000 and 200,000 rows, plain and regrouped
    python bench/bulk.py --resume                      # checking a finished job of 200,000 rows

Speeds are measured with mini, in turns, and compared within one run. Memory is measured in a process of its own, with a
small checkpoint, whose own memory does not hide that of the runner. With --ray, Ray Data takes part (`map_batches` with
`surefoot.integrations.ray.ScoreBatch`): pip install "ray[data]".
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import surefoot
from rollouts import load_groups
from surefoot.testing import write_qwen_checkpoint

SAMPLES = 8


def write_rows(path: Path, rollouts: Path | None, rows: int) -> Path:
    """Write rollouts, those of one question next to each other."""
    with path.open("w") as stream:
        for question, solutions in load_groups(rollouts, -(-rows // SAMPLES), SAMPLES):
            stream.writelines(json.dumps({"question": question, "steps": steps}) + "\n" for steps in solutions)
    return path


def write_many(path: Path, rows: int, *, shuffled: bool) -> Path:
    """Write short solutions: `rows` of them, eight per question."""
    order = list(range(rows))
    if shuffled:
        random.Random(0).shuffle(order)
    with path.open("w") as stream:
        for at in order:
            question = f"What is {at // SAMPLES} + {at // SAMPLES % 7}?"
            solution = f"It is {at // SAMPLES} + {at // SAMPLES % 7} = {at // SAMPLES + at % 5}.\nThat is all."
            stream.write(json.dumps({"id": at, "question": question, "solution": solution, "note": "x" * 200}) + "\n")
    return path


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds, and CPU seconds of this process."""
    started, used = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - started, time.process_time() - used


class TimedScorer:
    """A scorer that adds up the time in which it computes: the rest of a job is the runner's."""

    def __init__(self, scorer: surefoot.StepScorer) -> None:
        self.seconds = 0.0
        self._scorer = scorer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scorer, name)

    def score_stream(self, *arguments: Any, **options: Any) -> Iterator[surefoot.SolutionScore]:
        results = self._scorer.score_stream(*arguments, **options)
        while True:
            started = time.perf_counter()
            try:
                result = next(results)
            except StopIteration:
                return
            finally:
                self.seconds += time.perf_counter() - started
            yield result


def measure_speed(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    source = write_rows(folder / "in.jsonl", options.rollouts, options.rows)
    scorer = surefoot.load("mini")
    rows = [json.loads(line) for line in source.open()]
    items = [(row["question"], row["steps"]) for row in rows]
    scorer.score_many(items[:SAMPLES])
    out = folder / "out"

    def bulk(**given: Any) -> None:
        shutil.rmtree(out, ignore_errors=True)
        surefoot.bulk(source, out, unit_rows=options.unit_rows, **given)

    overheads: list[float] = []

    def bulk_here() -> None:
        timed_scorer = TimedScorer(scorer)
        started = time.perf_counter()
        bulk(model=timed_scorer)
        overheads.append((time.perf_counter() - started - timed_scorer.seconds) / timed_scorer.seconds)

    ways: dict[str, Callable[[], Any]] = {
        "score_stream": lambda: list(scorer.score_stream(items, window=options.unit_rows)),
        "bulk": bulk_here,
    }
    here = list(ways)
    if options.workers > 1:
        ways[f"bulk --workers {options.workers}"] = lambda: bulk(model="mini", workers=options.workers)
    if options.ray:
        ways["Ray Data map_batches"] = lambda: ray_data(source, folder / "ray")
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for repeat in range(options.repeats):
        for name, work in ways.items():
            spent[name].append(timed(work))
            print(f"{repeat + 1}: {name}: {len(items) / spent[name][-1][0]:.1f} rows/s", flush=True)
    base = spent["score_stream"]
    found: dict[str, Any] = {}
    for name, each in spent.items():
        speeds = [before[0] / after[0] for after, before in zip(each, base, strict=True)]
        rows_per_second = round(len(items) / statistics.median(seconds for seconds, _ in each), 2)
        found[name] = {"rows per second": rows_per_second, "speed of score_stream": ratios(speeds)}
        if name in here:  # other load on the machine matters less
            used = [after[1] / before[1] for after, before in zip(each, base, strict=True)]
            found[name]["CPU time of score_stream"] = ratios(used)
    found["bulk"]["seconds outside the scorer, as a share of those inside"] = ratios(overheads)
    return found


def ray_data(source: Path, out: Path) -> None:
    import ray

    from surefoot.integrations.ray import ScoreBatch

    shutil.rmtree(out, ignore_errors=True)
    if not ray.is_initialized():
        # The actor gets all cores. Without some more on paper, reading and writing would wait for it for ever.
        ray.init(num_cpus=(os.cpu_count() or 1) + 2, include_dashboard=False, log_to_driver=False)
    rows = ray.data.read_json(str(source))
    scored = rows.map_batches(
        ScoreBatch,
        fn_constructor_kwargs={"model": "mini", "columns": {"steps": "steps"}},
        batch_format="pyarrow",
        batch_size=1024,
        compute=ray.data.ActorPoolStrategy(size=1),
        num_cpus=os.cpu_count(),
    )
    scored.write_parquet(str(out))


def ratios(values: list[float]) -> str:
    return f"{statistics.median(values):.3f} [{min(values):.3f}-{max(values):.3f}]"


CHILD = """
import json, sys, time
import surefoot
source, out, model, options = sys.argv[1:]
started = time.perf_counter()
report = surefoot.bulk(source, out, model=model, **json.loads(options))
seconds = time.perf_counter() - started
peak = int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) // 1024
print(json.dumps({"rows": report.rows, "seconds": round(seconds, 1), "peak memory in MB": peak}))
"""


def in_child(source: Path, out: Path, model: Path, **options: Any) -> dict[str, Any]:
    command = [sys.executable, "-c", CHILD, str(source), str(out), str(model), json.dumps(options)]
    found: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return found


def measure_memory(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    model = write_qwen_checkpoint(folder / "model")
    found = {}
    for shuffled in (False, True):
        for rows in (10_000, options.many):
            source = write_many(folder / "in.jsonl", rows, shuffled=shuffled)
            given = {"group_by": "question"} if shuffled else {}
            name = f"{rows:,} rows{', regrouped' if shuffled else ''}"
            found[name] = in_child(source, folder / f"out-{rows}-{shuffled}", model, **given)
            print(name, found[name], flush=True)
            shutil.rmtree(folder / f"out-{rows}-{shuffled}")
    return found


def measure_resume(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    model = write_qwen_checkpoint(folder / "model")
    source, out = write_many(folder / "in.jsonl", options.many, shuffled=False), folder / "out"
    first = in_child(source, out, model)
    again = [in_child(source, out, model)["seconds"] for _ in range(3)]
    size = sum(part.stat().st_size for part in out.glob("part-*"))
    return {"scoring": first, "seconds to check the finished job": again, "MB of parts": round(size / 1e6, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--rollouts", type=Path)
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--unit-rows", type=int, default=1024)
    parser.add_argument("--many", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--ray", action="store_true", help="also measure Ray Data")
    options = parser.parse_args()
    measure = measure_memory if options.memory else measure_resume if options.resume else measure_speed
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(options, Path(folder)), indent=1))


if __name__ == "__main__":
    main()
