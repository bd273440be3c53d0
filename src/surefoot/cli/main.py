"""The command line: parses, calls, prints.

The rule: exit code 0 when everything asked for was done, 1 when something could not be scored or a check failed, 2 when
the call itself was wrong or its input or output failed. Results go to standard output, everything else to standard
error.
"""

from __future__ import annotations

import argparse
import io
import logging
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from surefoot._version import __version__
from surefoot.cli.calibrate import add_calibrate
from surefoot.cli.evaluate import add_eval
from surefoot.cli.models import add_models
from surefoot.cli.options import MODEL, add_loading_options, load_model
from surefoot.cli.score import add_score
from surefoot.cli.serve import add_serve
from surefoot.cli.train import add_train_command
from surefoot.errors import OptionError, SurefootError

if TYPE_CHECKING:
    from surefoot.scoring.check import Comparison

DONE, UNSCORED, WRONG_CALL = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and gives back its exit code."""
    if sys.stderr is None:  # `2>&-`; messages have no place to go, and must not end among the results
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    options = _parser().parse_args(arguments)
    if sys.stdout is None:
        print("surefoot: Standard output is closed. Send it to a file, or to /dev/null.", file=sys.stderr)
        return WRONG_CALL
    if isinstance(sys.stdout, io.TextIOWrapper) and not sys.stdout.isatty():
        sys.stdout.reconfigure(encoding="utf-8")  # whatever the locale is: JSON is UTF-8
    logging.basicConfig(format="surefoot: %(message)s", level=logging.INFO if options.verbose else logging.WARNING)
    try:
        code: int = options.run(options)
        sys.stdout.flush()
        return code
    except SurefootError as error:
        print(f"surefoot: {error}", file=sys.stderr)
        return _leave(WRONG_CALL)
    except BrokenPipeError:  # the reader went away (`| head`)
        return _leave(DONE)
    except OSError as error:
        print(f"surefoot: Reading or writing failed: {error}", file=sys.stderr)
        return _leave(WRONG_CALL)
    except KeyboardInterrupt:
        return _leave(130)


def _leave(code: int) -> int:
    """Drops what is still buffered and cannot be written: Python would try again at its end, with a code of its own."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="surefoot", description="Scores the steps of a solution.")
    parser.add_argument("--version", action="version", version=f"surefoot {__version__}")
    parser.set_defaults(verbose=False)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    add_score(commands)

    check = commands.add_parser("check", help="load a model and compare it with its published scores")
    check.add_argument(
        "--as", dest="name", metavar="NAME", help="the model's name, where its folder is called otherwise"
    )
    check.add_argument("model", metavar="MODEL", help=MODEL)
    add_loading_options(check)
    check.set_defaults(run=_check)

    add_eval(commands)
    add_calibrate(commands)
    add_serve(commands)
    add_train_command(commands)
    add_models(commands)
    return parser


def _check(options: argparse.Namespace) -> int:
    from surefoot.scoring.check import check
    from surefoot.scoring.scorer import Scorer

    scorer = load_model(options)
    if not isinstance(scorer, Scorer):
        raise OptionError("surefoot check needs the model itself: a folder, a hub id or a vllm+http:// address.")
    report = check(scorer, options.name)
    print(f"{scorer.name}: every expected tensor is there; family {scorer.family.name}, {scorer.max_tokens} tokens.")
    for comparison in report.comparisons:
        _print_comparison(comparison)
    return DONE if report.passed else UNSCORED


def _print_comparison(comparison: Comparison) -> None:
    example, golden = comparison.example, comparison.golden
    published = golden.scores if golden else (None,) * len(example.steps)
    print(f"{'step':>4}  {'score':>8}  {'published':>9}")
    for number, (step, wanted) in enumerate(zip(example.steps, published, strict=True), start=1):
        score = step.status if step.score is None else format(step.score, ".4f")
        print(f"{number:>4}  {score:>8}  {'-' if wanted is None else format(wanted, '.4f'):>9}")
    if golden is None:
        print("No published scores are known for this model name; it was loaded and run, not compared.")
    else:
        verdict = "agree" if comparison.passed else "DO NOT AGREE"
        print(f"The scores {verdict} within {golden.tolerance} ({golden.source}).")
