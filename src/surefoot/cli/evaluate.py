"""`surefoot eval`: measures a model on a benchmark. There is one command per entry of the registry of benchmarks.

Options are checked, data read and the score cache opened before the model is loaded, so that a wrong call fails at
once. Files are written before anything is printed, because the reader of a pipe may go away.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Annotated, Any

import typer

from surefoot.cli.benchmark_options import option_parameter, option_value
from surefoot.cli.exit_codes import DONE, INCOMPLETE
from surefoot.cli.groups import Group, SeveralValues, with_groups
from surefoot.cli.measurement import DATA, DATA_HELP, Measurement
from surefoot.cli.options import OUTPUT, CalibrationOptions, examples
from surefoot.errors import OptionError
from surefoot.evaluate.registry import BENCHMARKS, Benchmark

if TYPE_CHECKING:
    from surefoot.core.protocols import StepScorer


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Options of every benchmark."""

    calibration: CalibrationOptions
    measurement: Measurement
    report: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write an HTML report with every solution.", rich_help_panel=OUTPUT),
    ] = None

    def check(self) -> None:
        """Rejects a wrong call before the data are read."""
        self.measurement.check()
        if self.calibration.calibration and not self.measurement.model:
            raise OptionError("--calibration needs a --model: scores from the data are used as they are.")
        if self.report is not None:
            from surefoot.evaluate.report import prepare_report

            prepare_report(self.report)

    def run(self, benchmark: Callable[..., Any], rows: Sequence[Any], data: str, **settings: Any) -> Any:
        """Measures, writes the report and prints the result."""
        fingerprints = []

        def measure(scorer: StepScorer | None, *args: Any, **options: Any) -> Any:
            if scorer is not None:
                fingerprints.append(scorer.fingerprint)
            return benchmark(scorer, *args, **options)

        result = self.measurement.run(measure, rows, self.calibration.read(), **settings)
        if self.report is not None:
            from surefoot.evaluate import provenance, report
            from surefoot.evaluate.provenance import command_line

            fingerprint = fingerprints[0] if fingerprints else None
            report(result, self.report, made=provenance(data=data, fingerprint=fingerprint, command=command_line()))
            print(f"surefoot: Wrote the report to {self.report}", file=sys.stderr)
        self.measurement.print(result)
        return result


app = typer.Typer(cls=Group, add_completion=False, invoke_without_command=True)


@app.callback(
    epilog=examples(
        "surefoot eval processbench --model mini --data ProcessBench/",
        "surefoot eval best-of-n --model mini --data rollouts.jsonl --json",
    )
)
def start(context: typer.Context) -> None:
    """Measure a model, or step scores that the data already has, on a benchmark."""
    if context.invoked_subcommand is None:
        print(context.get_help(), end="")


def _command(benchmark: Benchmark) -> Callable[..., int]:
    """Makes the command of a benchmark: its own options, and those of every benchmark."""

    def evaluate(*, data: str, evaluation: Evaluation, **given: Any) -> int:
        evaluation.check()
        values = {option.parameter: option_value(option, given[option.parameter]) for option in benchmark.options}
        reading = {option.parameter for option in benchmark.options if option.passed_to == "read"}
        rows = benchmark.read(
            data, scores=evaluation.measurement.scores, **{name: values.pop(name) for name in reading}
        )
        if benchmark.check is not None:
            benchmark.check(rows, **values)
        result = evaluation.run(benchmark.run, rows, data, **values)
        return DONE if result.complete else INCOMPLETE

    source = Annotated[str, typer.Option("--data", metavar="DATA", help=DATA_HELP, rich_help_panel=DATA)]
    default = Parameter.empty if benchmark.dataset is None else benchmark.dataset
    evaluate.__signature__ = Signature(  # type: ignore[attr-defined]
        [
            Parameter("data", Parameter.KEYWORD_ONLY, default=default, annotation=source),
            *(option_parameter(option, benchmark.title) for option in benchmark.options),
            Parameter("evaluation", Parameter.KEYWORD_ONLY, annotation=Evaluation),
        ]
    )
    return with_groups(evaluate)


for _benchmark in BENCHMARKS.values():
    app.command(
        _benchmark.name,
        cls=SeveralValues,
        help=f"{_benchmark.title}: {_benchmark.help}",
        epilog=examples(
            f"surefoot eval {_benchmark.name} --model mini --data rows.json",
            f"surefoot eval {_benchmark.name} --model http://127.0.0.1:8000 --data rows.json",
            f"surefoot eval {_benchmark.name} --scores prm --data rows.json --report x.html",
        ),
    )(_command(_benchmark))
