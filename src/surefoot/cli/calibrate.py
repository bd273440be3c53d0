"""`surefoot calibrate`: fits a calibration from the command line.

The rule: as for `surefoot eval`, a wrong call is refused before the model is loaded, and scores are kept in the score
cache.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from surefoot.cli.evaluate import DATA, add_shared_options, check_shared_options, measure
from surefoot.core.calibration import METHODS
from surefoot.errors import OptionError

DONE, UNSCORED = 0, 1


def add_calibrate(commands: Any) -> None:
    """Adds `calibrate` to the commands of the program."""
    parser = commands.add_parser("calibrate", help="make scores into honest probabilities", description=ABOUT)
    parser.add_argument("--data", required=True, nargs="+", metavar="PLACE", help=f"labelled solutions: {DATA}")
    parser.add_argument("--method", choices=METHODS, default="temperature", help="the kind of map (temperature)")
    parser.add_argument("--no-bias", action="store_true", help="the temperature alone, without a shift of the logit")
    parser.add_argument("--folds", type=int, default=5, metavar="K", help="of the cross-validation over questions (5)")
    parser.add_argument("--out", default="calibration.json", metavar="FILE", help="what to write (calibration.json)")
    add_shared_options(parser)
    parser.set_defaults(run=_run)


ABOUT = (
    "Fits a map from a model's scores to how often its steps are right, says what that gains on questions the map has "
    "not seen, and writes it to a file for --calibration and surefoot.load(calibration=...)."
)


def _run(options: argparse.Namespace) -> int:
    from surefoot.data.output import check_place
    from surefoot.evaluate import calibrate, read_labelled
    from surefoot.evaluate.calibrate import check_folds

    check_shared_options(options)
    check_place("calibration", options.out)
    check_folds(options.folds)
    if options.no_bias and options.method != "temperature":
        raise OptionError("--no-bias goes with --method temperature.")
    rows = [row for place in options.data for row in read_labelled(place, scores=options.scores)]
    result = measure(options, calibrate, rows, method=options.method, bias=not options.no_bias, folds=options.folds)
    result.calibration.write(options.out)
    print(json.dumps(result.to_dict(), ensure_ascii=False) if options.json else result)
    print(f"surefoot: the calibration is in {options.out}", file=sys.stderr)
    return UNSCORED if result.unscored else DONE
