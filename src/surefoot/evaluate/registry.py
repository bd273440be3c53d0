"""The benchmarks. To add one, write its module and add an entry to `BENCHMARKS`.

The command line, the reports and `surefoot.evaluate` take everything they need to know from here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from surefoot.core.aggregation import AGGREGATIONS
from surefoot.errors import InputError
from surefoot.evaluate.agentprocessbench.report import content as agentprocessbench_content
from surefoot.evaluate.agentprocessbench.result import AgentProcessBenchResult
from surefoot.evaluate.agentprocessbench.rows import read_agentprocessbench
from surefoot.evaluate.agentprocessbench.run import agentprocessbench
from surefoot.evaluate.agentprocessbench.run import check_options as check_agentprocessbench
from surefoot.evaluate.best_of_n.report import content as best_of_n_content
from surefoot.evaluate.best_of_n.result import BestOfNResult
from surefoot.evaluate.best_of_n.run import CORRECT_BY, best_of_n
from surefoot.evaluate.best_of_n.run import check_options as check_best_of_n
from surefoot.evaluate.header import BenchmarkResult
from surefoot.evaluate.prmbench.report import content as prmbench_content
from surefoot.evaluate.prmbench.result import PRMBenchResult
from surefoot.evaluate.prmbench.run import prmbench
from surefoot.evaluate.processbench.report import content as processbench_content
from surefoot.evaluate.processbench.result import ProcessBenchResult
from surefoot.evaluate.processbench.run import check_options as check_processbench
from surefoot.evaluate.processbench.run import processbench
from surefoot.evaluate.report_page.content import Content
from surefoot.evaluate.rows import read_prmbench, read_processbench, read_rollouts


@dataclass(frozen=True)
class Option:
    """An option of a benchmark's `read` or `run` function, as the command line offers it."""

    flag: str
    """As typed: `--tune-on`."""
    parameter: str
    """The keyword argument that receives the value."""
    help: str
    kind: Literal["text", "texts", "number", "integers"] = "text"
    """`texts` may be repeated; `integers` are separated by commas."""
    metavar: str = ""
    default: Any = None
    choices: tuple[str, ...] = ()
    passed_to: Literal["read", "run"] = "run"


@dataclass(frozen=True)
class Benchmark:
    """Everything that the rest of the package needs to know about a benchmark."""

    name: str
    """As on the command line and in `to_dict()["benchmark"]`."""
    title: str
    help: str
    """The question that the benchmark answers, in one line."""
    read: Callable[..., Sequence[Any]]
    """Read rows: `read(source, scores=FIELD, **options)`."""
    run: Callable[..., BenchmarkResult]
    """Measure a scorer: `run(scorer, rows, seed=, draws=, progress=, name=, scores=, **options)`."""
    result: type
    """What `run` returns."""
    report: Callable[[Any], Content]
    """Build the content of the HTML report from a result."""
    check: Callable[..., None] | None = None
    """Reject invalid options before a model is loaded: `check(rows, **options)`."""
    dataset: str | None = None
    """The data set on the Hugging Face Hub that is read by default."""
    options: tuple[Option, ...] = ()


_THRESHOLD = Option(
    "--threshold",
    "threshold",
    "scores above this count as correct (default: 0.5; 0 for margins and log-ratios)",
    kind="number",
    metavar="T",
)

_ENTRIES = (
    Benchmark(
        name="processbench",
        title="ProcessBench",
        help="does the model find the first incorrect step?",
        read=read_processbench,
        run=processbench,
        check=check_processbench,
        result=ProcessBenchResult,
        report=processbench_content,
        dataset="Qwen/ProcessBench",
        options=(
            Option("--split", "splits", "only this split; may be repeated", "texts", "NAME", passed_to="read"),
            _THRESHOLD,
            Option("--tune-on", "tune_on", "use the threshold with the highest F1 on this split", metavar="SPLIT"),
        ),
    ),
    Benchmark(
        name="prmbench",
        title="PRMBench",
        help="does the model tell correct and incorrect steps apart?",
        read=read_prmbench,
        run=prmbench,
        result=PRMBenchResult,
        report=prmbench_content,
        dataset="hitsmy/PRMBench_Preview",
        options=(_THRESHOLD,),
    ),
    Benchmark(
        name="agentprocessbench",
        title="AgentProcessBench",
        help="does the model tell correct and incorrect messages of agents apart?",
        read=read_agentprocessbench,
        run=agentprocessbench,
        check=check_agentprocessbench,
        result=AgentProcessBenchResult,
        report=agentprocessbench_content,
        options=(
            Option("--subset", "subsets", "only this subset; may be repeated", "texts", "NAME", passed_to="read"),
            _THRESHOLD,
            Option(
                "--margin",
                "margin",
                "scores this close to the threshold predict the label 0 (default: 0, which never predicts it)",
                kind="number",
                metavar="M",
                default=0.0,
            ),
        ),
    ),
    Benchmark(
        name="best-of-n",
        title="Best of N",
        help="is the solution that the model selects correct?",
        read=read_rollouts,
        run=best_of_n,
        check=check_best_of_n,
        result=BestOfNResult,
        report=best_of_n_content,
        options=(
            Option("--n", "ns", "numbers of solutions to select from (default: 1,2,4,...)", "integers", "N,N,..."),
            Option(
                "--aggregation",
                "aggregation",
                "how the report aggregates step scores (default: as the model's makers do; if that is unknown, the "
                "most accurate way)",
                choices=tuple(AGGREGATIONS),
            ),
            Option(
                "--correct-by",
                "correct_by",
                "compare answers, or use is_correct of the data",
                default="answer",
                choices=CORRECT_BY,
            ),
            Option(
                "--timeout",
                "timeout",
                "seconds to compare two answers (default: 3)",
                kind="number",
                metavar="S",
                default=3.0,
            ),
        ),
    ),
)

BENCHMARKS: Mapping[str, Benchmark] = MappingProxyType({entry.name: entry for entry in _ENTRIES})
"""By name, in the order in which the command line lists them."""


def benchmark_of(result: object) -> Benchmark:
    """Return the benchmark that made a result."""
    for benchmark in BENCHMARKS.values():
        if isinstance(result, benchmark.result):
            return benchmark
    names = ", ".join(benchmark.result.__name__ for benchmark in BENCHMARKS.values())
    raise InputError(f"{type(result).__name__} has no report. Pass the result of a benchmark: {names}.")
