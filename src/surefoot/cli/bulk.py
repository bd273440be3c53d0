"""`surefoot bulk`: scores large files into a folder. The same command continues after a crash."""

from __future__ import annotations

import json as json_format
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from surefoot.cli.exit_codes import DONE, INCOMPLETE
from surefoot.cli.groups import Command, with_groups
from surefoot.cli.options import (
    COMPUTE,
    OUTPUT,
    CalibrationOptions,
    Json,
    Models,
    Quiet,
    ReadingOptions,
    ScorerOptions,
    Verbose,
    chosen_models,
    examples,
    finite,
)
from surefoot.errors import OptionError
from surefoot.jobs.settings import Format

if TYPE_CHECKING:
    from surefoot.jobs.bulk import BulkReport

INPUT, SELECTION, JOB = "Input", "Rewards and selection", "Job"

app = typer.Typer(add_completion=False)


@dataclass(frozen=True, kw_only=True)
class InputOptions:
    """Where rows hold what is scored."""

    question: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Text or chat messages with the question; dots lead into nested values.",
            show_default="question",
            rich_help_panel=INPUT,
        ),
    ] = None
    solution: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Text or chat messages with the solution.",
            show_default="solution or steps",
            rich_help_panel=INPUT,
        ),
    ] = None
    steps: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Instead: a list of steps.", rich_help_panel=INPUT)
    ] = None
    completions: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Instead: a list of solutions.", rich_help_panel=INPUT)
    ] = None
    gold: Annotated[str | None, typer.Option(metavar="COLUMN", help="The reference answer.", rich_help_panel=INPUT)] = (
        None
    )
    group_by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Bring rows together that are not next to each other.", rich_help_panel=INPUT
        ),
    ] = None
    sample: Annotated[
        float | None,
        typer.Option(
            metavar="FRACTION",
            help="Score only this fraction of the questions.",
            callback=finite,
            rich_help_panel=INPUT,
        ),
    ] = None
    seed: Annotated[int, typer.Option(metavar="N", help="Chooses another sample.", rich_help_panel=INPUT)] = 0
    subset: Annotated[
        str | None, typer.Option(metavar="NAME", help="Configuration of a hub data set.", rich_help_panel=INPUT)
    ] = None
    data_split: Annotated[str, typer.Option(metavar="NAME", help="Its split.", rich_help_panel=INPUT)] = "train"

    def columns(self) -> dict[str, str]:
        """The columns that were named."""
        names = ("question", "solution", "steps", "completions", "gold")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


@dataclass(frozen=True, kw_only=True)
class SelectionOptions:
    """Which rows the output contains."""

    reward: Annotated[
        str | None,
        typer.Option(metavar="RECIPE", help="Add a reward, such as outcome+process.", rich_help_panel=SELECTION),
    ] = None
    filter: Annotated[
        str | None,
        typer.Option(
            metavar="EXPRESSION",
            help="Keep rows for which this is true: 'min > 0.5 and answer == gold'.",
            rich_help_panel=SELECTION,
        ),
    ] = None
    best_of: Annotated[
        int | None,
        typer.Option(metavar="N", help="Keep the N best solutions per question.", rich_help_panel=SELECTION),
    ] = None
    rank_by: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Best by this aggregation, or by reward.",
            show_default="as the makers of the model recommend, else min",
            rich_help_panel=SELECTION,
        ),
    ] = None
    refilter: Annotated[
        bool,
        typer.Option(
            "--refilter", help="Apply another selection to a finished job, without a model.", rich_help_panel=SELECTION
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """How the job runs."""

    workers: Annotated[
        int, typer.Option(min=1, metavar="N", help="Processes, each with its own model.", rich_help_panel=COMPUTE)
    ] = 1
    on: Annotated[
        str,
        typer.Option(
            metavar="WHERE", help="Where to run: local, ray, or ray://... of a Ray cluster.", rich_help_panel=COMPUTE
        ),
    ] = "local"
    gpus_per_worker: Annotated[
        float, typer.Option(min=0, metavar="N", help="GPUs per worker on Ray.", rich_help_panel=COMPUTE)
    ] = 0
    unit_rows: Annotated[
        int,
        typer.Option(
            min=1, metavar="N", help="Rows per part: what a crash costs at most, per worker.", rich_help_panel=JOB
        ),
    ] = 1024
    max_errors: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="Stop after more rows than this that cannot be read.", rich_help_panel=JOB
        ),
    ] = None
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Delete the job in OUT and start anew.", rich_help_panel=JOB)
    ] = False
    extend: Annotated[
        bool, typer.Option("--extend", help="Add rows of files that grew, and new files.", rich_help_panel=JOB)
    ] = False
    status: Annotated[
        bool, typer.Option("--status", help="Say how far the job in OUT is, and exit.", rich_help_panel=JOB)
    ] = False


@app.command(
    cls=Command,
    epilog=examples(
        "surefoot bulk rollouts.jsonl scored/",
        "surefoot bulk data/ scored/ --question problem --solution response",
        "surefoot bulk chats.parquet scored/ --question messages --solution messages",
        "surefoot bulk samples/ kept/ --gold target --filter 'min > 0.5 and correct'",
        "surefoot bulk kept/ --refilter --filter 'min > 0.7'",
        "surefoot bulk --status scored/",
    ),
)
@with_groups
def bulk(
    *,
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="IN...", help="Files, folders, globs, URLs, or a data set of the hub.", show_default=False
        ),
    ] = None,
    out: Annotated[str, typer.Argument(metavar="OUT", help="Folder for the output.")],
    input_options: InputOptions,
    model: Models = None,
    model_options: ScorerOptions,
    reading: ReadingOptions,
    calibration: CalibrationOptions,
    selection: SelectionOptions,
    job: JobOptions,
    format: Annotated[
        Format, typer.Option(metavar="FORMAT", help="Format of the parts: parquet or jsonl.", rich_help_panel=OUTPUT)
    ] = "parquet",
    prefix: Annotated[
        str, typer.Option(metavar="TEXT", help="Starts the names of added columns.", rich_help_panel=OUTPUT)
    ] = "prm_",
    step_text: Annotated[
        bool,
        typer.Option("--step-text", help="Repeat the text of every step, not only its span.", rich_help_panel=OUTPUT),
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> int:
    """Score all rows of files into a folder of Parquet files. The same command continues after a crash; nothing is
    lost or doubled. Rows that cannot be read are set aside with a reason."""
    if job.status:
        return _show_status(out, as_json=json, inputs=inputs)
    if not inputs and not selection.refilter:
        raise OptionError("Give the input and the folder for the output: surefoot bulk IN OUT.")
    from surefoot.jobs.bulk import bulk as run

    models, calibrated = chosen_models(model), calibration.read()
    report = run(
        inputs or [],
        out,
        model=models,
        load=model_options.arguments(models) | ({} if calibrated is None else {"calibration": calibrated}),
        columns=input_options.columns(),
        options=reading.given(),
        reward=selection.reward,
        filter=selection.filter,
        best_of=selection.best_of,
        rank_by=selection.rank_by,
        sample=input_options.sample,
        seed=input_options.seed,
        group_by=input_options.group_by,
        format=format,
        prefix=prefix,
        step_text=step_text,
        unit_rows=job.unit_rows,
        subset=input_options.subset,
        data_split=input_options.data_split,
        workers=job.workers,
        threads=model_options.threads,
        on=job.on,
        gpus_per_worker=job.gpus_per_worker,
        max_errors=job.max_errors,
        fresh=job.fresh,
        extend=job.extend,
        refilter=selection.refilter,
        progress=not quiet,
    )
    if json:
        print(json_format.dumps(asdict(report) | {"out": str(report.out)}))
    else:
        print(_summary(report))
    return INCOMPLETE if report.bad_rows else DONE


def _summary(report: BulkReport) -> str:
    parts = [f"{report.results:,} results", f"{report.kept:,} kept", f"{report.unscored:,} unscored"]
    text = f"{report.out}: {', '.join(parts)}, {report.units:,} parts"
    if report.resumed_units:
        text += f" ({report.resumed_units:,} from earlier runs)"
    if report.bad_rows:
        text += f". {report.bad_rows:,} rows cannot be read: see {report.out / '_surefoot' / 'errors'}"
    return text


def _show_status(out: str, *, as_json: bool, inputs: list[str] | None) -> int:
    from surefoot.jobs.status import job_status

    if inputs:
        raise OptionError("--status takes only the folder of the job: surefoot bulk --status OUT.")
    status = job_status(out)
    if as_json:
        print(json_format.dumps(asdict(status)))
    else:
        sys.stdout.write(status.text())
    return DONE if status.finished and not status.bad_rows else INCOMPLETE
