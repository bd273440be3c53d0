"""Throughput, cold start, memory and scaling: the measurements of `gpu.py`."""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import surefoot
from gpu_checks import FORMATS
from memory import reset_peak, resident
from rollouts import Group, load_groups
from surefoot.core.prompt import Prompt
from surefoot.errors import SurefootError
from surefoot.scoring.local import load_local

WARM_UP = ("What is 1 + 1?", ["It is 2.", "Done."])


def generated(questions: int, samples: int, seed: int = 0) -> list[Group]:
    """Solutions of several steps; each keeps the first steps of another one and then goes its own way."""
    rng = random.Random(seed)

    def steps(start: int) -> list[str]:
        total, lines = rng.randint(2, 50), []
        for number in range(start, 8):
            more = rng.randint(2, 90)
            lines.append(f"Step {number}: we add {more} to {total}, which gives {total} + {more} = {total + more}.")
            total += more
        return lines

    groups = []
    for number in range(questions):
        first = steps(0)
        kept = [rng.randint(0, 6) for _ in range(samples)]
        question = (
            f"Problem {seed}.{number}: a shop sells pens, and more are delivered on seven days. How many are there?"
        )
        groups.append((question, [first[:keep] + steps(keep) for keep in kept]))
    return groups


def synchronize(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def timed(device: str, work: Callable[[], object]) -> float:
    synchronize(device)
    started = time.perf_counter()
    work()
    synchronize(device)
    return time.perf_counter() - started


def reset_memory(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    else:
        reset_peak()


def peak_gb(device: str) -> float:
    """Memory that tensors took on the GPU, or the resident memory of the process, at most since the last reset."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated(device) / 1e9
    return resident("VmHWM")


class Plain:
    """One forward pass per prompt through transformers' own model, with its default attention."""

    def __init__(self, folder: Path, dtype: torch.dtype, device: str) -> None:
        from safetensors.torch import load_file
        from transformers import Qwen2Config, Qwen2Model

        raw = json.loads((folder / "config.json").read_text())
        raw.pop("auto_map", None)
        tensors: dict[str, Tensor] = {}
        for file in sorted(folder.glob("*.safetensors")):
            tensors |= {name: tensor.to(dtype) for name, tensor in load_file(file).items()}
        with torch.device("meta"):
            self.model = Qwen2Model(Qwen2Config(**raw, attn_implementation="sdpa")).eval()
        rotary = type(self.model.rotary_emb)(config=self.model.config)
        own = {name.removeprefix("model."): value for name, value in tensors.items() if name.startswith("model.")}
        self.model.load_state_dict(own, assign=True)
        self.model.rotary_emb = rotary
        self.model.to(device)
        size = raw["hidden_size"]
        self.head = nn.Sequential(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, 2)).to(device, dtype)
        self.head.load_state_dict(
            {name.removeprefix("score."): value for name, value in tensors.items() if name.startswith("score.")}
        )
        self.device = device

    @torch.inference_mode()
    def score(self, prompt: Prompt) -> list[float]:
        ids = torch.tensor([prompt.ids], device=self.device)
        states = self.model(input_ids=ids, use_cache=False).last_hidden_state[0, list(prompt.reads)]
        found: list[float] = self.head(states).float().softmax(-1)[:, 1].tolist()
        return found


def throughput(
    folder: Path, device: str, questions: int, samples: int, repeats: int, rollouts: Path | None
) -> list[dict[str, Any]]:
    """One row per format: tokens per second, and how many times faster than one forward pass per solution."""
    groups = load_groups(rollouts, questions, samples) if rollouts else generated(questions, samples)
    return [_measure_format(folder, device, groups, name, repeats) for name in FORMATS]


def _measure_format(folder: Path, device: str, groups: Sequence[Group], name: str, repeats: int) -> dict[str, Any]:
    options, _ = FORMATS[name]
    row: dict[str, Any] = {"format": name}
    reset_memory(device)
    try:
        scorer = load_local(folder, device=device, **options)
    except (SurefootError, ImportError, torch.OutOfMemoryError) as error:
        return row | {"problem": str(error)[:500]}
    row |= {"attention": scorer.engine.attention, "budget": scorer.engine.budget, "load_peak_gb": peak_gb(device)}

    def prompts(group: Group) -> list[Prompt]:
        return [scorer.family.render(scorer.tokenizer, group[0], steps).cut(scorer.max_tokens) for steps in group[1]]

    methods: dict[str, Callable[[Group], object]] = {
        "surefoot": lambda group: scorer.score_many([(group[0], steps) for steps in group[1]]),
        "surefoot, one at a time": lambda group: [scorer.score(group[0], steps) for steps in group[1]],
    }
    if "quantize" not in options:
        try:
            plain = Plain(folder, getattr(torch, options["dtype"]), device)
            methods["transformers, one at a time"] = lambda group: [plain.score(one) for one in prompts(group)]
            row["from_transformers"] = _difference(scorer, plain, groups[0])
        except torch.OutOfMemoryError as error:
            row["problem"] = f"transformers' model does not fit: {str(error)[:200]}"
    seconds: dict[str, list[float]] = {method: [] for method in methods}
    try:
        for work in methods.values():
            work((groups[0][0], groups[0][1][:2]))
        reset_memory(device)
        for _ in range(repeats):
            for group in groups:
                for method, work in methods.items():
                    seconds[method].append(timed(device, partial(work, group)))
    except torch.OutOfMemoryError as error:
        return row | {"problem": str(error)[:500]}
    tokens = repeats * sum(len(prompt.ids) for group in groups for prompt in prompts(group))
    row |= {"peak_gb": peak_gb(device), "budget_after": scorer.engine.budget}
    row["tokens_per_second"] = {method: tokens / sum(times) for method, times in seconds.items()}
    row["ratios"] = {
        method: spread([slow / fast for slow, fast in zip(times, seconds["surefoot"], strict=True)])
        for method, times in seconds.items()
        if method != "surefoot"
    }
    return row


def _difference(scorer: surefoot.Scorer, plain: Plain, group: Group) -> float:
    """The largest difference between our scores and those of transformers' model in the same format."""
    results = scorer.score_many([(group[0], steps) for steps in group[1]])
    worst = 0.0
    for steps, result in zip(group[1], results, strict=True):
        prompt = scorer.family.render(scorer.tokenizer, group[0], steps).cut(scorer.max_tokens)
        for one, other in zip(plain.score(prompt), result.step_scores, strict=True):
            worst = max(worst, abs(one - other) if other is not None else float("inf"))
    return worst


def spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "smallest": min(values), "largest": max(values)}


def run_child(settings: dict[str, Any]) -> dict[str, Any]:
    """Measure in a new process, whose memory and compiled kernels are its own."""
    command = [sys.executable, str(Path(__file__).with_name("gpu.py")), "--child", json.dumps(settings)]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    if child.returncode:
        return {"problem": (child.stderr.strip().splitlines() or ["no message"])[-1][:500]}
    found: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])
    return found


def measure_child(settings: dict[str, Any]) -> dict[str, Any]:
    """What a child process measures: load the model, score, and score `count` solutions as a stream."""
    device = settings["device"]
    reset_memory(device)
    found: dict[str, Any] = {}
    started = time.perf_counter()
    scorer = load_local(settings["folder"], device=device, **settings["options"])
    synchronize(device)
    found["load_s"] = time.perf_counter() - started
    found["load_peak_gb"] = peak_gb(device)
    found["first_score_s"] = timed(device, lambda: scorer.score(*WARM_UP))
    found["second_score_s"] = timed(device, lambda: scorer.score(*WARM_UP))
    if count := settings.get("count"):
        groups = generated(-(-count // settings["samples"]), settings["samples"])
        items = [(question, steps) for question, solutions in groups for steps in solutions][:count]
        scorer.score_many(items[: settings["samples"]])
        reset_memory(device)
        results: list[surefoot.SolutionScore] = []
        found["seconds"] = timed(device, lambda: results.extend(scorer.score_stream(iter(items), window=256)))
        assert [result.status for result in results] == ["scored"] * count
        found |= {"tokens": sum(result.tokens for result in results), "peak_gb": peak_gb(device)}
    return found


def cold_starts(folder: Path, device: str, repeats: int, formats: Sequence[str]) -> list[dict[str, Any]]:
    """From a new process to the first score. The second score shows what compiling costs in the first."""
    rows = []
    for name in formats:
        options, _ = FORMATS[name]
        runs = []
        for _ in range(repeats):
            started = time.perf_counter()
            one = run_child({"folder": str(folder), "device": device, "options": options})
            runs.append(one | {"process_s": time.perf_counter() - started})
        if "problem" in runs[0]:
            rows.append({"format": name, "problem": runs[0]["problem"]})
            continue
        keys = ("process_s", "load_s", "first_score_s", "second_score_s", "load_peak_gb")
        rows.append({"format": name} | {key: spread([each[key] for each in runs]) for key in keys})
    return rows


def scaling(folder: Path, device: str, counts: Sequence[int], samples: int) -> list[dict[str, Any]]:
    """Time and memory of streams of different lengths, in the default format."""
    rows: list[dict[str, Any]] = []
    for count in counts:
        one = run_child({"folder": str(folder), "device": device, "options": {}, "count": count, "samples": samples})
        row = {"solutions": count} | one
        if rows and "seconds" in row and "seconds" in rows[-1]:
            row["against_previous"] = row["seconds"] / rows[-1]["seconds"]
        rows.append(row)
    return rows
