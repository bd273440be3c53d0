"""The registry of benchmarks agrees with the functions and results that it names."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

from surefoot import evaluate
from surefoot.errors import InputError, OptionError
from surefoot.evaluate.registry import BENCHMARKS, Benchmark, benchmark_of

ROW: dict[str, Any] = {"problem": "p", "steps": ["a", "b"], "scores": [0.9, 0.2]}
ROWS: dict[str, list[dict[str, Any]]] = {
    "processbench": [ROW | {"label": 1}, ROW | {"label": -1, "scores": [0.9, 0.8]}],
    "prmbench": [ROW | {"classification": "circular", "error_steps": [1]}],
    "agentprocessbench": [
        {
            "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
            "step_labels": {"1": 1},
            "scores": [0.9],
        }
    ],
    "best-of-n": [ROW | {"reference": "4", "final_answer": "4"}, ROW | {"reference": "4", "final_answer": "5"}],
}


@pytest.fixture(params=list(BENCHMARKS.values()), ids=list(BENCHMARKS))
def benchmark(request: pytest.FixtureRequest) -> Benchmark:
    found: Benchmark = request.param
    return found


def test_a_benchmark_runs_from_its_entry_alone(benchmark: Benchmark, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS[benchmark.name]), encoding="utf-8")
    defaults = {option.parameter: option.default for option in benchmark.options}
    read = {option.parameter for option in benchmark.options if option.passed_to == "read"}
    rows = benchmark.read(path, scores="scores", **{name: defaults[name] for name in read})
    run = {name: value for name, value in defaults.items() if name not in read}
    if benchmark.check is not None:
        benchmark.check(rows, **{name: value for name, value in run.items() if name != "timeout"})
    result = benchmark.run(None, rows, seed=0, draws=10, progress=False, name="mine", **run)
    assert type(result) is benchmark.result
    assert benchmark_of(result) is benchmark
    assert result.to_dict()["benchmark"] == benchmark.name
    assert result.complete
    assert str(result).startswith(f"{benchmark.title}: mine")
    assert f"<title>{benchmark.title}: mine</title>" in evaluate.report_html(result)


def test_options_are_parameters(benchmark: Benchmark) -> None:
    for option in benchmark.options:
        function = benchmark.read if option.passed_to == "read" else benchmark.run
        parameter = inspect.signature(function).parameters[option.parameter]
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
        assert parameter.default == option.default


def test_other_results_have_no_benchmark() -> None:
    with pytest.raises(InputError, match=r"str has no report. Pass the result of a benchmark: ProcessBenchResult, PRM"):
        benchmark_of("x")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("processbench", {"threshold": 0.5, "tune_on": "all"}, "not both"),
        ("processbench", {"tune_on": "math"}, "cannot be tuned on 'math'"),
        ("best-of-n", {"ns": [0]}, "ns=.0. is invalid"),
        ("best-of-n", {"correct_by": "vote"}, "Choose one of: answer, label"),
    ],
)
def test_options_are_checked_before_anything_is_scored(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises((OptionError, InputError), match=message):
        BENCHMARKS[name].run(None, ROWS[name], **options)
