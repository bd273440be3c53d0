"""The command line: parses, calls, prints.

The rule: exit code 0 when everything asked for was done, 1 when something could not be scored or a check failed, 2 when
the call itself was wrong. Results go to standard output, everything else to standard error.
"""

from __future__ import annotations

import argparse
import io
import json
import logging
import os
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, BinaryIO

import surefoot
from surefoot.cli_calibrate import add_calibrate
from surefoot.cli_eval import add_eval
from surefoot.cli_loading import (
    MODEL,
    THRESHOLD,
    add_calibration_options,
    add_loading_options,
    add_model_options,
    load_model,
)
from surefoot.cli_models import add_models
from surefoot.errors import InputError, SurefootError
from surefoot.serve.command import add_serve
from surefoot.split import SPLIT_RULES
from surefoot.terminal import paint, show, wants_colour
from surefoot.train.command import add_train_command

if TYPE_CHECKING:
    from surefoot import SolutionScore
    from surefoot.check import Comparison

DONE, UNSCORED, WRONG_CALL = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and gives back its exit code."""
    options = _parser().parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper) and not sys.stdout.isatty():
        sys.stdout.reconfigure(encoding="utf-8")  # whatever the locale is: JSON is UTF-8
    logging.basicConfig(format="surefoot: %(message)s", level=logging.INFO if options.verbose else logging.WARNING)
    try:
        code: int = options.run(options)
        sys.stdout.flush()
        return code
    except SurefootError as error:
        print(f"surefoot: {error}", file=sys.stderr)
        return WRONG_CALL
    except BrokenPipeError:
        # The reader went away (`| head`). What is still buffered has no place to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="surefoot", description="Scores the steps of a solution.")
    parser.add_argument("--version", action="version", version=f"surefoot {surefoot.__version__}")
    parser.set_defaults(verbose=False)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    score = commands.add_parser("score", help="score the steps of solutions", description=SCORE)
    score.add_argument("file", nargs="?", metavar="FILE", help="JSONL file, one object a line; - is standard input")
    score.add_argument("--question", metavar="TEXT", help="a question, with --solution")
    score.add_argument("--solution", metavar="TEXT", help="its solution; - reads it from standard input")
    score.add_argument("--split", choices=SPLIT_RULES, default="auto", help="how the steps of a text are found")
    score.add_argument("--no-closing", action="store_true", help="do not make the final answer a step of its own")
    score.add_argument("--threshold", type=float, metavar="T", help=THRESHOLD)
    score.add_argument("--json", action="store_true", help="one JSON object a line, in the order of the input")
    add_calibration_options(score)
    add_model_options(score)
    score.set_defaults(run=_score)

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


SCORE = (
    "Scores every step. Give --question and --solution, or a JSONL file whose objects have `question` and either "
    "`steps` (a list) or `solution` (text). Results come in the order of the input."
)


@dataclass(frozen=True)
class _Line:
    """A line of the input: a pair to score, or the reason why it is none."""

    number: int
    pair: tuple[str, str | list[str]] | None
    error: str | None = None


def _score(options: argparse.Namespace) -> int:
    lines = _read_input(options)
    # The first line is read before the model is loaded: a wrong call should not take minutes to be refused.
    opening = list(islice(lines, 2))
    if not opening:
        raise InputError("The input has no line to score.")
    several = len(opening) > 1
    scorer = load_model(options)
    waiting: deque[_Line] = deque()

    def pairs() -> Iterator[tuple[str, str | list[str]]]:
        for line in chain(opening, lines):
            waiting.append(line)
            if line.pair is not None:
                yield line.pair

    complete = True
    results = scorer.score_stream(
        pairs(),
        split=options.split,
        closing=not options.no_closing,
        progress=several and sys.stderr.isatty(),
    )
    for result in results:
        while waiting[0].pair is None:
            _print_result(waiting.popleft(), None, options, several=several)
            complete = False
        _print_result(waiting.popleft(), result, options, several=several)
        complete &= result.status == "scored"
    for line in waiting:
        _print_result(line, None, options, several=several)
        complete = False
    return DONE if complete else UNSCORED


def _print_result(line: _Line, result: SolutionScore | None, options: argparse.Namespace, *, several: bool) -> None:
    if options.json:
        print(
            json.dumps({"line": line.number, "error": line.error})
            if result is None
            else result.to_json(options.threshold)
        )
        return
    colour = wants_colour(sys.stdout)
    if several:
        print(paint(f"line {line.number}", "1", colour))
    if result is None:
        print(f"surefoot: line {line.number}: {line.error}", file=sys.stderr)
    else:
        print(show(result, threshold=options.threshold, colour=colour))


def _read_input(options: argparse.Namespace) -> Iterator[_Line]:
    if options.question is not None or options.solution is not None:
        if options.question is None or options.solution is None or options.file is not None:
            raise InputError("Give --question and --solution together, or a JSONL file, not both.")
        solution = sys.stdin.read() if options.solution == "-" else options.solution
        yield _Line(1, (options.question, solution))
        return
    if options.file is None and sys.stdin.isatty():
        raise InputError("Nothing to score. Give --question and --solution, or a JSONL file (- is standard input).")
    try:
        if options.file in (None, "-"):
            yield from _read_jsonl(sys.stdin.buffer)
        else:
            with open(options.file, "rb") as stream:
                yield from _read_jsonl(stream)
    except OSError as error:
        raise InputError(f"{options.file or 'standard input'} cannot be read: {error}") from error


def _read_jsonl(stream: BinaryIO) -> Iterator[_Line]:
    """A line that cannot be read costs no other line."""
    for number, line in enumerate(stream, start=1):
        if line.strip():
            try:
                yield _Line(number, _pair(json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))))
            except (ValueError, RecursionError) as error:
                yield _Line(number, None, str(error))


def _pair(row: Any) -> tuple[str, str | list[str]]:
    if not isinstance(row, dict) or not isinstance(row.get("question"), str):
        raise InputError("expected an object with `question` as text")
    solution = row.get("solution") if row.get("steps") is None else row["steps"]
    if isinstance(solution, str) or (isinstance(solution, list) and all(isinstance(step, str) for step in solution)):
        return row["question"], solution
    raise InputError("expected `solution` as text, or `steps` as a list of texts")


def _check(options: argparse.Namespace) -> int:
    from surefoot.check import check

    scorer = load_model(options)
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


if __name__ == "__main__":
    sys.exit(main())
