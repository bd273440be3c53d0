"""`surefoot score`: scores solutions from the command line, a file or a pipe.

There is one result per line of input, in the same order. A line that cannot be read is an unscored result whose reason
names the line. Results are printed as soon as they are known: an interrupted run loses at most one batch.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from surefoot.cli.exit_codes import DONE, INCOMPLETE
from surefoot.cli.groups import Command, with_groups
from surefoot.cli.options import (
    OUTPUT,
    CalibrationOptions,
    JsonLines,
    Models,
    Quiet,
    ReadingOptions,
    ScorerOptions,
    Threshold,
    Verbose,
    chosen_models,
    examples,
)
from surefoot.core.result import threshold_for
from surefoot.data.items import over_limit, read_record
from surefoot.data.records import MAX_LINE_BYTES, Entry, file_entries, stream_entries
from surefoot.errors import InputError

if TYPE_CHECKING:
    from surefoot.core.protocols import StepScorer
    from surefoot.core.result import SolutionScore

BATCH = 64
"""Solutions that are scored and printed together, at most."""

INPUT = "Input"

READ_KEYS = ("question", "solution", "steps")
"""The keys of an object that are scored. The others are passed through."""
RENAMED = "input"
"""The key of the output for passed keys whose names the result has, too."""

logger = logging.getLogger("surefoot")

app = typer.Typer(add_completion=False)


@app.command(
    cls=Command,
    epilog=examples(
        'surefoot score --question "What is 2 + 3?" --solution "2 + 3 = 6."',
        "surefoot score solutions.jsonl --json > scores.jsonl",
        "zcat solutions.jsonl.gz | surefoot score --model http://127.0.0.1:8000 --json",
        "surefoot score solutions.jsonl --model Qwen/Qwen2.5-Math-PRM-7B --quantize nf4",
        "surefoot score solutions.jsonl --model mini --model http://127.0.0.1:8000",
    ),
)
@with_groups
def score(
    *,
    file: Annotated[
        str | None,
        typer.Argument(metavar="FILE", help="JSONL file or JSON list, gzipped or not; - is standard input."),
    ] = None,
    question: Annotated[
        str | None, typer.Option(metavar="TEXT", help="A question, with --solution.", rich_help_panel=INPUT)
    ] = None,
    solution: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Its solution; - reads it from standard input.", rich_help_panel=INPUT),
    ] = None,
    model: Models = None,
    model_options: ScorerOptions,
    reading: ReadingOptions,
    threshold: Threshold = None,
    calibration: CalibrationOptions,
    full: Annotated[
        bool,
        typer.Option("--full", help="Show the whole text of every step, on several lines.", rich_help_panel=OUTPUT),
    ] = False,
    json: JsonLines = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> int:
    """Score every step of solutions. Give --question and --solution, or a file whose objects have `question` and
    either `steps` (a list) or `solution` (text). Results come in the order of the input. With --json, other keys such
    as `id` are passed through. A key that is named `input` or like a field of the result is in the object `input`."""
    from surefoot.display.progress import Progress

    options = reading.given()
    batches = _read_input(file, question, solution)
    # The first line is read before the model is loaded, so that a wrong call fails at once.
    opening = next(batches, None)
    if opening is None:
        raise InputError("The input has no line to score.")
    scorer = model_options.load(chosen_models(model), calibration=calibration.read())
    threshold_for(scorer.scale, threshold)  # before anything is scored
    several = question is None
    complete = True
    with Progress(None, shown=several and not quiet) as bar:
        for batch in chain([opening], batches):
            pairs = [line.pair for line in batch if line.pair is not None]
            results = scorer.score_stream(pairs, options, window=BATCH)
            tokens = 0
            for line in batch:
                result = next(results) if line.pair is not None else _unscored(scorer, line.reason)
                tokens += result.tokens
                if json:
                    print(_json_line(result.to_dict(threshold), line))
                else:
                    _show_result(result, line.place if several else None, threshold, full=full)
                complete &= result.status == "scored"
            sys.stdout.flush()
            bar.settle(len(batch), tokens)
    return DONE if complete else INCOMPLETE


@dataclass(frozen=True)
class _Line:
    """A line of the input: a pair to score, or the reason why it cannot be scored."""

    place: str
    pair: tuple[str, str | Sequence[str]] | None
    reason: str = ""
    passed: Mapping[str, Any] = field(default_factory=dict)
    """The keys that are passed through."""


def _unscored(scorer: StepScorer, reason: str) -> SolutionScore:
    from surefoot.core.result import SolutionScore

    return SolutionScore((), scorer.name, reason=reason, scale=scorer.scale, calibration=scorer.calibration)


def _json_line(result: dict[str, Any], line: _Line) -> str:
    """Returns the result with the passed keys of its line. Fields of the result keep their names."""
    renamed = {name: value for name, value in line.passed.items() if name in result or name == RENAMED}
    own = {name: value for name, value in line.passed.items() if name not in renamed}
    row = own | result | ({RENAMED: renamed} if renamed else {})
    try:
        text = json.dumps(row, ensure_ascii=False)
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(row)  # half of a surrogate pair can only be written as an escape
    except RecursionError:
        flat = {name: value for name, value in line.passed.items() if not isinstance(value, dict | list)}
        logger.warning("%s: values that are nested too deeply to be written are left out.", line.place)
        return _json_line(result, replace(line, passed=flat))
    return text


def _show_result(result: SolutionScore, place: str | None, threshold: float | None, *, full: bool) -> None:
    from surefoot.display.terminal import paint, show, wants_colour

    colour = wants_colour(sys.stdout)
    if place is not None:
        print(paint(place, "1", colour))
    print(show(result, threshold=threshold, colour=colour, full=full))


def _read_input(file: str | None, question: str | None, solution: str | None) -> Iterator[list[_Line]]:
    if question is not None or solution is not None:
        if question is None or solution is None or file is not None:
            raise InputError("Give --question and --solution together, or a JSONL file, not both.")
        text = _read_solution() if solution == "-" else solution
        yield [_checked(Entry("line 1", 1, {"question": question, "solution": text}))]
    elif file in (None, "-"):
        if file is None and sys.stdin is not None and sys.stdin.isatty():
            raise InputError("Nothing to score. Give --question and --solution, or a JSONL file (- is standard input).")
        yield from _arriving(map(_checked, stream_entries(_standard_input(), "standard input")))
    else:
        path = Path(str(file))
        lines = map(_checked, file_entries(path))
        # A file always gives the same batches, and so the same last digits. A named pipe is read like a pipe.
        yield from iter(lambda: list(islice(lines, BATCH)), []) if path.is_file() else _arriving(lines)


def _standard_input() -> IO[bytes]:
    if sys.stdin is None:
        raise InputError("Standard input is closed. Give a file, or --question and --solution.")
    # Not `sys.stdin.buffer`: at exit Python locks it, and crashes while our thread still reads from it.
    return open(sys.stdin.fileno(), "rb", closefd=False)


def _read_solution() -> str:
    try:
        read = _standard_input().read(MAX_LINE_BYTES + 1)
        if len(read) > MAX_LINE_BYTES:
            raise InputError(f"Standard input is longer than {MAX_LINE_BYTES >> 20} MiB.")
        return read.decode("utf-8-sig").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"Standard input cannot be read as UTF-8: {error}") from error


def _arriving(lines: Iterator[_Line]) -> Iterator[list[_Line]]:
    """Yields the lines that have arrived, at most a batch, and waits only if there are none."""
    arrived: Queue[_Line | Exception | None] = Queue(BATCH)

    def read() -> None:
        try:
            for line in lines:
                arrived.put(line)
            arrived.put(None)
        except Exception as error:
            arrived.put(error)

    # A daemon: its pipe may stay open when the command ends.
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
    """Turns what is wrong with a line into a reason, so that the other lines are scored."""
    place = entry.place[0].upper() + entry.place[1:]
    if entry.error is not None:
        return _Line(entry.place, None, f"{place} {entry.error}")
    data = entry.data if isinstance(entry.data, dict) else {}
    passed = {name: value for name, value in data.items() if name not in READ_KEYS}
    try:
        pair = read_record(entry.data)
        # Large lines are dropped here, so that a batch of them does not fill the memory.
        if reason := over_limit(*pair):
            raise InputError(reason)
    except InputError as error:
        return _Line(entry.place, None, f"{place}: {error}", passed)
    return _Line(entry.place, pair, passed=passed)
