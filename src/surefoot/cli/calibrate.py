"""`surefoot calibrate`: fits a calibration on labelled solutions."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from surefoot.cli.exit_codes import DONE, INCOMPLETE
from surefoot.cli.groups import SeveralValues, with_groups
from surefoot.cli.measurement import DATA, DATA_HELP, Measurement
from surefoot.cli.options import OUTPUT, examples
from surefoot.core.calibration import Method
from surefoot.errors import OptionError

FITTING = "Fitting"

app = typer.Typer(add_completion=False)


@app.command(
    cls=SeveralValues,
    epilog=examples(
        "surefoot calibrate --model mini --data graded.jsonl --out calibration.json",
        "surefoot calibrate --model mini --data graded/*.jsonl --method isotonic",
        "surefoot score solutions.jsonl --calibration calibration.json",
    ),
)
@with_groups
def calibrate(
    *,
    data: Annotated[
        list[str],
        typer.Option(metavar="DATA...", help=f"Labelled solutions. Each is a {DATA_HELP}", rich_help_panel=DATA),
    ],
    method: Annotated[Method, typer.Option(help="Kind of map.", rich_help_panel=FITTING)] = "temperature",
    no_bias: Annotated[
        bool,
        typer.Option("--no-bias", help="Fit the temperature alone, without a bias.", rich_help_panel=FITTING),
    ] = False,
    folds: Annotated[
        int, typer.Option(metavar="K", help="Folds of the cross-validation over questions.", rich_help_panel=FITTING)
    ] = 5,
    measurement: Measurement,
    out: Annotated[
        str, typer.Option(metavar="FILE", help="File to write the calibration to.", rich_help_panel=OUTPUT)
    ] = "calibration.json",
) -> int:
    """Fit a map from a model's scores to how often its steps are correct. Prints what the map gains on questions that
    it was not fitted on, and writes it to a file for --calibration and surefoot.load(calibration=...). Exits with 1 if
    the scores of those questions become worse; the file is written nevertheless."""
    from surefoot.data.output import check_place
    from surefoot.evaluate import calibrate, read_labelled
    from surefoot.evaluate.calibrate import check_folds

    measurement.check()
    if len(measurement.model or ()) > 1:
        raise OptionError(
            "A calibration belongs to one model. Calibrate each model of the ensemble on its own, and score with "
            "--combine calibrated and one --calibration per --model."
        )
    check_place("calibration", out)
    check_folds(folds)
    if no_bias and method != "temperature":
        raise OptionError("--no-bias is for --method temperature.")
    rows = [row for place in data for row in read_labelled(place, scores=measurement.scores)]
    result = measurement.run(calibrate, rows, method=method, bias=not no_bias, folds=folds)
    result.calibration.write(out)
    measurement.print(result)
    print(f"surefoot: Wrote the calibration to {out}", file=sys.stderr)
    return INCOMPLETE if result.unscored or result.worse else DONE
