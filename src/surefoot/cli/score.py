"""`surefoot score`: solutions from the command line, a file or a pipe.

The rule: one result for every line of the input, in its order and of one shape; a line that cannot be read is an
unscored result whose reason names it. Results are out as soon as they are known: a run that is interrupted has lost no
more than a batch, and a pipe that stays open waits for nothing but the model.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import IO, Any

from surefoot.cli.options import THRESHOLD, add_calibration_options, add_model_options, load_model, threshold
from surefoot.core.options import SPLIT_RULES, ReadOptions
from surefoot.core.protocols import StepScorer
from surefoot.core.result import SolutionScore
from surefoot.data.items import read_record
from surefoot.data.records import Entry, file_entries, stream_entries
from surefoot.display.terminal import paint, show, wants_colour
from surefoot.errors import InputError

DONE, UNSCORED = 0, 1

BATCH = 64
"""Solutions that are scored together, at most: a batch is printed as a whole."""

ABOUT = (
    "Scores every step. Give --question and --solution, or a JSONL file whose objects have `question` and either "
    "`steps` (a list) or `solution` (text); gzipped files and JSON lists are read too. Results come in the order of "
    "the input."
)


def add_score(commands: Any) -> None:
    """Adds `score` to the commands of the program."""
    score = commands.add_parser("score", help="score the steps of solutions", description=ABOUT)
    score.add_argument("file", nargs="?", metavar="FILE", help="JSONL file, one object a line; - is standard input")
    score.add_argument("--question", metavar="TEXT", help="a question, with --solution")
    score.add_argument("--solution", metavar="TEXT", help="its solution; - reads it from standard input")
    score.add_argument("--split", choices=SPLIT_RULES, default="auto", help="how the steps of a text are found")
    score.add_argument("--no-closing", action="store_true", help="do not make the final answer a step of its own")
    score.add_argument("--threshold", type=threshold, metavar="T", help=THRESHOLD)
    score.add_argument("--json", action="store_true", help="one JSON object a line, in the order of the input")
    add_calibration_options(score)
    add_model_options(score)
    score.set_defaults(run=_score)


@dataclass(frozen=True)
class _Line:
    """A line of the input: a pair to score, or the reason why it is none."""

    place: str
    pair: tuple[str, str | Sequence[str]] | None
    reason: str = ""


def _score(options: argparse.Namespace) -> int:
    from tqdm import tqdm

    batches = _read_input(options)
    # The first line is read before the model is loaded: a wrong call should not take minutes to be refused.
    opening = next(batches, None)
    if opening is None:
        raise InputError("The input has no line to score.")
    scorer = load_model(options)
    several = options.question is None
    complete = True
    with tqdm(unit="solution", disable=not (several and sys.stderr.isatty())) as bar:
        for batch in chain([opening], batches):
            pairs = [line.pair for line in batch if line.pair is not None]
            results = scorer.score_stream(pairs, ReadOptions(options.split, not options.no_closing), window=BATCH)
            for line in batch:
                result = _unscored(scorer, line.reason) if line.pair is None else next(results)
                _print_result(result, line.place if several else None, options)
                complete &= result.status == "scored"
            sys.stdout.flush()
            bar.update(len(batch))
    return DONE if complete else UNSCORED


def _unscored(scorer: StepScorer, reason: str) -> SolutionScore:
    return SolutionScore((), scorer.name, reason=reason, scale=scorer.scale, calibration=scorer.calibration)


def _print_result(result: SolutionScore, place: str | None, options: argparse.Namespace) -> None:
    if options.json:
        print(result.to_json(options.threshold))
        return
    colour = wants_colour(sys.stdout)
    if place is not None:
        print(paint(place, "1", colour))
    print(show(result, threshold=options.threshold, colour=colour))


def _read_input(options: argparse.Namespace) -> Iterator[list[_Line]]:
    if options.question is not None or options.solution is not None:
        if options.question is None or options.solution is None or options.file is not None:
            raise InputError("Give --question and --solution together, or a JSONL file, not both.")
        solution = _read_solution() if options.solution == "-" else options.solution
        yield [_checked(Entry("line 1", 1, {"question": options.question, "solution": solution}))]
    elif options.file in (None, "-"):
        if options.file is None and sys.stdin is not None and sys.stdin.isatty():
            raise InputError("Nothing to score. Give --question and --solution, or a JSONL file (- is standard input).")
        yield from _arriving(map(_checked, stream_entries(_standard_input(), "standard input")))
    else:
        file = Path(options.file)
        lines = map(_checked, file_entries(file))
        # The same batches every time, and with them the same last digits; but a named pipe is a pipe.
        yield from iter(lambda: list(islice(lines, BATCH)), []) if file.is_file() else _arriving(lines)


def _standard_input() -> IO[bytes]:
    if sys.stdin is None:
        raise InputError("Standard input is closed. Give a file, or --question and --solution.")
    # Not `sys.stdin.buffer`: at its end Python waits for whoever still reads from that, and dies of it.
    return open(sys.stdin.fileno(), "rb", closefd=False)


def _read_solution() -> str:
    try:
        return _standard_input().read().decode("utf-8-sig").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"Standard input cannot be read as UTF-8: {error}") from error


def _arriving(lines: Iterator[_Line]) -> Iterator[list[_Line]]:
    """What has come in the meantime, at most a batch; waits only while there is nothing."""
    arrived: Queue[_Line | Exception | None] = Queue(BATCH)

    def read() -> None:
        try:
            for line in lines:
                arrived.put(line)
            arrived.put(None)
        except Exception as error:
            arrived.put(error)

    # A daemon, as its pipe may stay open when all is over.
    Thread(target=read, name="surefoot-read", daemon=True).start()
    while True:
        batch: list[_Line] = []
        while not batch or (len(batch) < BATCH and not arrived.empty()):
            line = arrived.get()
            if isinstance(line, _Line):
                batch.append(line)
                continue
            if batch:
                yield batch
            if line is not None:
                raise line
            return
        yield batch


def _checked(entry: Entry) -> _Line:
    """A line that cannot be scored costs no other line."""
    place = entry.place[0].upper() + entry.place[1:]
    if entry.error is not None:
        return _Line(entry.place, None, f"{place} {entry.error}")
    try:
        return _Line(entry.place, _pair(entry))
    except InputError as error:
        return _Line(entry.place, None, f"{place}: {error}")


def _pair(entry: Entry) -> tuple[str, str | Sequence[str]]:
    return read_record(entry.data)
