"""`surefoot eval`: measures a model on a benchmark.

Options are checked, data read and the score cache opened before the model is loaded, so that a wrong call fails at
once. Files are written before anything is printed, because the reader of a pipe may go away.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from surefoot.cli.exit_codes import DONE, INCOMPLETE
from surefoot.cli.groups import Group, SeveralValues, with_groups
from surefoot.cli.options import (
    MODEL,
    OUTPUT,
    READING,
    CalibrationOptions,
    Json,
    ModelOptions,
    Name,
    OptionalModel,
    Quiet,
    Threshold,
    Verbose,
    examples,
)
from surefoot.errors import InputError, OptionError

if TYPE_CHECKING:
    from surefoot.core.calibration import Calibration
    from surefoot.scoring.score_cache import ScoreCache

DATA, CACHE, INTERVALS = "Data", "Score cache", "Confidence intervals"
DATA_HELP = "JSON or JSONL file, gzipped or not, a folder of them, or a hub data set."

Data = Annotated[str, typer.Option(metavar="DATA", help=DATA_HELP, rich_help_panel=DATA)]


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Options of every command that measures a model."""

    model: OptionalModel = None
    scores: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD",
            help="Use the step scores in this field of the data instead of a model.",
            rich_help_panel=MODEL,
        ),
    ] = None
    name: Name = None
    model_options: ModelOptions
    cache: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Where scores are stored, so that none is computed twice.",
            show_default="SUREFOOT_CACHE, or a file in the user's cache folder",
            rich_help_panel=CACHE,
        ),
    ] = None
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Compute every score and store none.", rich_help_panel=CACHE)
    ] = False
    draws: Annotated[
        int, typer.Option(metavar="B", help="Bootstrap draws; 0 for no intervals.", rich_help_panel=INTERVALS)
    ] = 1000
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the bootstrap.", rich_help_panel=INTERVALS)] = 0
    json: Json = False
    quiet: Quiet = False
    verbose: Verbose = False

    def check(self) -> None:
        """Rejects options that contradict each other."""
        from surefoot.evaluate.intervals import Bootstrap

        Bootstrap(self.draws, self.seed)
        if (self.model is None) == (self.scores is None):
            raise OptionError("Give either --model, or --scores with the field that holds step scores.")
        if self.cache is not None and self.no_cache:
            raise OptionError("Give --cache or --no-cache, not both.")

    def run(
        self, benchmark: Callable[..., Any], rows: list[Any], calibration: Calibration | None = None, **settings: Any
    ) -> Any:
        """Loads the model and calls a function of `surefoot.evaluate` with it."""
        if not rows:
            raise InputError("The data have no rows.")
        settings |= {"seed": self.seed, "draws": self.draws, "name": self.name or self.scores}
        if self.model is None:
            return benchmark(None, rows, **settings)
        with self._open_cache(self.model) as cache:
            scorer = self.model_options.load(self.model, calibration=calibration, cache=cache)
            return benchmark(scorer, rows, progress=not self.quiet, **settings)

    def print(self, result: Any) -> None:
        """Prints the result as a table or as JSON."""
        print(json.dumps(result.to_dict(), ensure_ascii=False) if self.json else result)

    def _open_cache(self, model: str) -> ScoreCache | nullcontext[None]:
        # The scores of a service are stored there, if at all.
        if self.no_cache or (self.cache is None and model.startswith(("http://", "https://"))):
            return nullcontext()
        from surefoot.scoring.score_cache import ScoreCache

        return ScoreCache(self.cache)


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
        if self.calibration.calibration is not None and self.measurement.model is None:
            raise OptionError("--calibration needs a --model: scores from the data are used as they are.")
        if self.report is not None:
            from surefoot.evaluate.report import prepare_report

            prepare_report(self.report)

    def run(self, benchmark: Callable[..., Any], rows: list[Any], **settings: Any) -> Any:
        """Measures, writes the report and prints the result."""
        result = self.measurement.run(benchmark, rows, self.calibration.read(), **settings)
        if self.report is not None:
            from surefoot.evaluate import report

            report(result, self.report)
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
    """Measure a model, or step scores that the data already have, on a benchmark."""
    if context.invoked_subcommand is None:
        print(context.get_help(), end="")


@app.command(
    cls=SeveralValues,
    epilog=examples(
        "surefoot eval processbench --model mini --data ProcessBench/ --split gsm8k",
        "surefoot eval processbench --model prm/ --report report.html",
        "surefoot eval processbench --model http://127.0.0.1:8000 --tune-on gsm8k",
    ),
)
@with_groups
def processbench(
    *,
    data: Data = "Qwen/ProcessBench",
    split: Annotated[
        list[str] | None, typer.Option(metavar="NAME...", help="Read only these splits.", rich_help_panel=DATA)
    ] = None,
    threshold: Threshold = None,
    tune_on: Annotated[
        str | None,
        typer.Option(
            metavar="SPLIT", help="Use the threshold with the best F1 on this split.", rich_help_panel=READING
        ),
    ] = None,
    evaluation: Evaluation,
) -> int:
    """Measure whether the model finds the first wrong step of solutions (ProcessBench)."""
    from surefoot.evaluate import processbench, read_processbench

    evaluation.check()
    if threshold is not None and tune_on is not None:
        raise OptionError("Give --threshold, or --tune-on to find one, not both.")
    rows = read_processbench(data, splits=split, scores=evaluation.measurement.scores)
    if tune_on is not None and tune_on not in {row.split for row in rows}:
        raise InputError(f"--tune-on {tune_on}: no such split is read.")
    result = evaluation.run(processbench, rows, threshold=threshold, tune_on=tune_on)
    return INCOMPLETE if result.unscored else DONE


@app.command(
    cls=SeveralValues,
    epilog=examples(
        "surefoot eval prmbench --model mini --data prmbench.jsonl",
        "surefoot eval prmbench --model Qwen/Qwen2.5-Math-PRM-7B --quantize nf4 --json",
    ),
)
@with_groups
def prmbench(
    *,
    data: Data = "hitsmy/PRMBench_Preview",
    threshold: Threshold = None,
    evaluation: Evaluation,
) -> int:
    """Measure whether the model tells wrong steps from correct ones (PRMBench)."""
    from surefoot.evaluate import prmbench, read_prmbench

    evaluation.check()
    rows = read_prmbench(data, scores=evaluation.measurement.scores)
    result = evaluation.run(prmbench, rows, threshold=threshold)
    return INCOMPLETE if result.unscored else DONE


@app.command(
    "best-of-n",
    cls=SeveralValues,
    epilog=examples(
        "surefoot eval best-of-n --model mini --data rollouts.jsonl --n 1,4,16",
        "surefoot eval best-of-n --scores qwen_prm --data rollouts.jsonl",
    ),
)
@with_groups
def best_of_n(
    *,
    data: Data,
    ns: Annotated[
        str | None,
        typer.Option(
            "--n",
            metavar="N,N,...",
            help="Numbers of solutions to choose from.",
            show_default="1,2,4,...",
            rich_help_panel="Benchmark",
        ),
    ] = None,
    correct_by: Annotated[
        Literal["answer", "label"],
        typer.Option(help="Compare final answers, or use the field is_correct.", rich_help_panel="Benchmark"),
    ] = "answer",
    timeout: Annotated[
        float, typer.Option(metavar="S", help="Seconds to compare two answers.", rich_help_panel="Benchmark")
    ] = 3.0,
    evaluation: Evaluation,
) -> int:
    """Measure how often the solution that the model prefers is correct (best of N)."""
    from surefoot.evaluate import best_of_n, read_rollouts
    from surefoot.evaluate.best_of_n import check_sizes

    evaluation.check()
    sizes = None if ns is None else _numbers(ns)
    check_sizes(sizes)
    rows = read_rollouts(data, scores=evaluation.measurement.scores)
    result = evaluation.run(best_of_n, rows, ns=sizes, correct_by=correct_by, timeout=timeout)
    return INCOMPLETE if result.unscored or result.undecided else DONE


def _numbers(text: str) -> list[int]:
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise OptionError(f"--n {text}: give whole numbers with commas between them, such as 1,4,16.") from None
