"""`surefoot eval`: a benchmark from the command line.

The rule: options are checked, data read and the cache opened before the model is loaded, so that a wrong call is
refused at once. Scores are kept in the score cache unless told otherwise, so that a second call, or one after a crash,
computes only what is missing. What goes to a file is written before anything is printed: a reader may go away.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from surefoot.cli.options import MODEL, THRESHOLD, add_calibration_options, add_loading_options, load_model, threshold
from surefoot.errors import InputError, OptionError

if TYPE_CHECKING:
    from surefoot.scoring.score_cache import ScoreCache

DONE, UNSCORED = 0, 1


def add_eval(commands: Any) -> None:
    """Adds `eval` and its benchmarks to the commands of the program."""
    parser = commands.add_parser("eval", help="measure a model", description=ABOUT)
    benchmarks = parser.add_subparsers(title="benchmarks", required=True, metavar="BENCHMARK")

    process = benchmarks.add_parser("processbench", help="is the first wrong step found?")
    process.add_argument("--data", default="Qwen/ProcessBench", metavar="PLACE", help=DATA)
    process.add_argument("--split", action="append", metavar="NAME", help="only this split; may be repeated")
    process.add_argument("--threshold", type=threshold, metavar="T", help=THRESHOLD)
    process.add_argument("--tune-on", metavar="SPLIT", help="use the threshold with the highest F1 on this split")
    process.set_defaults(run=_run, measure=_processbench)

    steps = benchmarks.add_parser("prmbench", help="are wrong steps told from right ones?")
    steps.add_argument("--data", default="hitsmy/PRMBench_Preview", metavar="PLACE", help=DATA)
    steps.add_argument("--threshold", type=threshold, metavar="T", help=THRESHOLD)
    steps.set_defaults(run=_run, measure=_prmbench)

    best = benchmarks.add_parser("best-of-n", help="is the solution right that the model picks?")
    best.add_argument("--data", required=True, metavar="PLACE", help=DATA)
    best.add_argument("--n", type=_numbers, metavar="N,N,...", help="1,2,4,... unless said otherwise")
    best.add_argument(
        "--correct-by", choices=("answer", "label"), default="answer", help="compare answers, or believe is_correct"
    )
    best.add_argument("--timeout", type=float, default=3.0, metavar="S", help="seconds to compare two answers (3)")
    best.set_defaults(run=_run, measure=_best_of_n)

    for benchmark in (process, steps, best):
        benchmark.add_argument("--report", metavar="FILE", help="write an HTML page with everything, solutions too")
        add_calibration_options(benchmark)
        add_shared_options(benchmark)


def add_shared_options(parser: argparse.ArgumentParser) -> None:
    """What every command that measures a model can be told."""
    parser.add_argument("--model", help=MODEL)
    add_loading_options(parser)
    parser.add_argument("--scores", metavar="FIELD", help="no model: step scores from this field of the data")
    parser.add_argument(
        "--as", dest="name", metavar="NAME", help="the model's name, where its folder is called otherwise"
    )
    parser.add_argument(
        "--cache", metavar="FILE", help="where scores are kept (SUREFOOT_CACHE, else the user's cache folder)"
    )
    parser.add_argument("--no-cache", action="store_true", help="compute everything and keep nothing")
    parser.add_argument(
        "--draws", type=int, default=1000, metavar="B", help="bootstrap draws for intervals (1000); 0 for none"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the bootstrap (0)")
    parser.add_argument("--json", action="store_true", help="one JSON object")


ABOUT = "Measures a model, or step scores that are there already, on labelled data."
DATA = "a JSON or JSONL file (.gz too), a folder of them, or a hub data set"


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def check_shared_options(options: argparse.Namespace) -> None:
    """Refuses what contradicts itself, and draws that cannot be made."""
    from surefoot.evaluate.intervals import Bootstrap

    Bootstrap(options.draws, options.seed)
    if (options.model is None) == (options.scores is None):
        raise OptionError("Give either --model, or --scores with the field that holds step scores.")
    if options.cache is not None and options.no_cache:
        raise OptionError("Give --cache or --no-cache, not both.")


def _run(options: argparse.Namespace) -> int:
    check_shared_options(options)
    if options.calibration is not None and options.model is None:
        raise OptionError("--calibration is applied to the scores of a --model, not to ready-made ones.")
    if options.report is not None:
        from surefoot.evaluate.report import prepare_report

        prepare_report(options.report)
    result, complete = options.measure(options)
    if options.report is not None:
        from surefoot.evaluate import report

        report(result, options.report)
        print(f"surefoot: the report is in {options.report}", file=sys.stderr)
    print(json.dumps(result.to_dict(), ensure_ascii=False) if options.json else result)
    return DONE if complete else UNSCORED


def _processbench(options: argparse.Namespace) -> tuple[Any, bool]:
    from surefoot.evaluate import processbench, read_processbench

    if options.threshold is not None and options.tune_on is not None:
        raise OptionError("Give --threshold, or --tune-on to find one, not both.")
    rows = read_processbench(options.data, splits=options.split, scores=options.scores)
    if options.tune_on is not None and options.tune_on not in {row.split for row in rows}:
        raise InputError(f"--tune-on {options.tune_on}: no such split is read.")
    result = measure(options, processbench, rows, threshold=options.threshold, tune_on=options.tune_on)
    return result, not result.unscored


def _prmbench(options: argparse.Namespace) -> tuple[Any, bool]:
    from surefoot.evaluate import prmbench, read_prmbench

    rows = read_prmbench(options.data, scores=options.scores)
    result = measure(options, prmbench, rows, threshold=options.threshold)
    return result, not result.unscored


def _best_of_n(options: argparse.Namespace) -> tuple[Any, bool]:
    from surefoot.evaluate import best_of_n, read_rollouts
    from surefoot.evaluate.best_of_n import check_sizes

    check_sizes(options.n)
    rows = read_rollouts(options.data, scores=options.scores)
    result = measure(options, best_of_n, rows, ns=options.n, correct_by=options.correct_by, timeout=options.timeout)
    return result, not (result.unscored or result.undecided)


def measure(options: argparse.Namespace, benchmark: Callable[..., Any], rows: list[Any], **settings: Any) -> Any:
    """Opens the score cache, loads the model, and calls a function of `surefoot.evaluate` with both."""
    if not rows:
        raise InputError(f"{options.data} holds no row.")
    with _cache(options) as cache:
        return benchmark(
            None if options.model is None else load_model(options, cache),
            rows,
            **settings,
            seed=options.seed,
            draws=options.draws,
            progress=sys.stderr.isatty(),
            name=options.name or options.scores,
        )


def _cache(options: argparse.Namespace) -> ScoreCache | nullcontext[None]:
    if options.no_cache or options.model is None or options.model.startswith(("http://", "https://")):
        return nullcontext()
    from surefoot.scoring.score_cache import ScoreCache

    return ScoreCache(options.cache)
