"""Rows of the benchmarks and their readers: labelled solutions, solutions with injected errors, rollouts.

A malformed row raises `InputError` with its location. Indices are 0-based here, whatever they are in the file. A row
may carry precomputed step scores, which replace a scorer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from surefoot.data.records import Record, read_records
from surefoot.errors import InputError
from surefoot.text.answers import find_answer

PROCESSBENCH_SPLITS = ("gsm8k", "math", "olympiadbench", "omnimath")

ORIGINAL = "correct"
"""The class of unmodified PRMBench solutions."""

# As in PRMBench, except that a decimal such as 0.25 is not a prefix.
_STEP_PREFIX = re.compile(r"(?:step\s*\d+\.|\d+\.(?!\d))\s*", re.IGNORECASE)

Scores = tuple[float | None, ...]


@dataclass(frozen=True)
class ProcessBenchRow:
    """A solution and the index of its first incorrect step, -1 if every step is correct."""

    id: str
    split: str
    problem: str
    steps: tuple[str, ...]
    label: int
    generator: str | None = None
    """The model that wrote the solution."""
    answer_correct: bool | None = None
    """Whether the final answer is correct. An erroneous process may still reach it."""
    scores: Scores | None = None


@dataclass(frozen=True)
class PRMBenchRow:
    """A solution with injected errors of one class, and the indices of all its incorrect steps."""

    id: str
    classification: str
    problem: str
    steps: tuple[str, ...]
    """Without prefixes such as `Step 1. `, as in the official protocol."""
    errors: frozenset[int]
    out_of_range: int = 0
    """The number of error indices past the last step, which are ignored as in the official protocol."""
    scores: Scores | None = None


@dataclass(frozen=True)
class Rollout:
    """One of several solutions of a problem, its answer, and a reference or label to judge it by."""

    group: str
    """Identifies the problem: solutions with the same value are selected from together."""
    problem: str
    solution: str | tuple[str, ...]
    answer: str | None
    """The final answer that the solution states."""
    reference: str | None = None
    label: bool | None = None
    """`is_correct` in the data."""
    scores: Scores | None = None


Row = TypeVar("Row")
Rows = Iterable["Row | Mapping[str, Any]"]


def read_processbench(
    source: str | Path, *, splits: Sequence[str] | None = None, scores: str | None = None
) -> list[ProcessBenchRow]:
    """Read ProcessBench, or any data whose objects have `problem`, `steps` and `label`.

        rows = evaluate.read_processbench("ProcessBench/", splits=["gsm8k"])

    `splits` keeps only the files or Hub splits of these names. `scores` names a field with precomputed step scores.
    """
    rows = list(processbench_rows(read_records(source), scores))
    if splits is None:
        return rows
    present = {row.split for row in rows}
    if missing := [name for name in splits if name not in present]:
        raise InputError(f"{source} has no split {', '.join(missing)}. It has: {', '.join(sorted(present))}.")
    return [row for row in rows if row.split in splits]


def read_prmbench(source: str | Path, *, scores: str | None = None) -> list[PRMBenchRow]:
    """Read PRMBench, with the unmodified original of every `redundency` row as a row of the class `correct`."""
    return list(prmbench_rows(read_records(source), scores))


def read_rollouts(source: str | Path, *, scores: str | None = None) -> list[Rollout]:
    """Read solutions with `question`, `steps` or `solution`, and `ground_truth`, `reference` or `is_correct`."""
    return list(rollouts(read_records(source), scores))


def processbench_rows(records: Iterable[Record], scores: str | None = None) -> Iterator[ProcessBenchRow]:
    """Convert every record to a row."""
    for number, record in enumerate(records):
        data = record.data
        steps = _steps(record, "steps")
        label = data.get("label")
        if not isinstance(label, int) or isinstance(label, bool) or not -1 <= label < len(steps):
            raise record.wrong(
                f"label is {label!r}; expected the 0-based index of the first incorrect of {len(steps)} steps, or -1."
            )
        name = str(data.get("id", number))
        generator, correct = data.get("generator"), data.get("final_answer_correct")
        if generator is not None and not isinstance(generator, str):
            raise record.wrong(f"generator is {generator!r}; expected text, or null.")
        if correct is not None and not isinstance(correct, bool):
            raise record.wrong(f"final_answer_correct is {correct!r}; expected true, false or null.")
        yield ProcessBenchRow(
            id=name,
            split=str(data.get("split") or record.split or _split_of(name)),
            problem=required_text(record, "problem", "question"),
            steps=steps,
            label=label,
            generator=generator,
            answer_correct=correct,
            scores=precomputed_scores(record, scores, len(steps)),
        )


def read_labelled(source: str | Path, *, scores: str | None = None) -> list[ProcessBenchRow]:
    """Read solutions with a labelled first error, in the format of ProcessBench or of PRMBench."""
    return list(labelled_rows(read_records(source), scores))


def labelled_rows(records: Iterable[Record], scores: str | None = None) -> Iterator[ProcessBenchRow]:
    """Convert every record to a row, whichever of the two formats it has."""
    for prmbench, some in groupby(records, lambda record: "error_steps" in record.data):
        if not prmbench:
            yield from processbench_rows(some, scores)
            continue
        for row in prmbench_rows(some, scores):
            label = min(row.errors, default=-1)
            yield ProcessBenchRow(row.id, row.classification, row.problem, row.steps, label, scores=row.scores)


def prmbench_rows(records: Iterable[Record], scores: str | None = None) -> Iterator[PRMBenchRow]:
    """Convert every record to a row, drop duplicates, and add the unmodified originals.

    The official format, with `modified_process`, counts `error_steps` from 1; the format with `steps` counts from 0.
    """
    seen: set[tuple[str, str, tuple[str, ...]]] = set()
    for number, record in enumerate(records):
        data = record.data
        official = "modified_process" in data
        classification = required_text(record, "classification")
        name = str(data.get("idx", data.get("id", number)))
        steps = _steps(record, "modified_process" if official else "steps")
        # Several solutions of one problem may share an id; only an identical one is a duplicate.
        if (classification, name, steps) in seen:
            continue
        seen.add((classification, name, steps))
        errors = _errors(record, first=1 if official else 0)
        yield PRMBenchRow(
            id=name,
            classification=classification,
            problem=required_text(record, "modified_question", "problem", "question"),
            steps=tuple(map(without_prefix, steps)),
            errors=frozenset(error for error in errors if error < len(steps)),
            out_of_range=sum(error >= len(steps) for error in errors),
            scores=precomputed_scores(record, scores, len(steps)),
        )
        if official and classification == "redundency" and scores is None and "original_process" in data:
            original = tuple(map(without_prefix, _steps(record, "original_process")))
            if (ORIGINAL, name, original) not in seen:
                seen.add((ORIGINAL, name, original))
                question = required_text(record, "original_question")
                yield PRMBenchRow(f"{ORIGINAL}_{name}", ORIGINAL, question, original, frozenset())


def rollouts(records: Iterable[Record], scores: str | None = None) -> Iterator[Rollout]:
    """Convert every record to a rollout. Records that share a `problem_id` must share the problem."""
    first: dict[str, tuple[str, str]] = {}
    for record in records:
        found = _rollout(record, scores)
        problem, location = first.setdefault(found.group, (found.problem, record.place))
        if problem != found.problem:
            raise record.wrong(
                f"problem_id is {found.group!r}, which belongs to another problem at {location}. "
                "Give every problem its own id, or none."
            )
        yield found


def _rollout(record: Record, scores: str | None) -> Rollout:
    data = record.data
    problem = required_text(record, "question", "problem")
    solution: str | tuple[str, ...]
    solution = required_text(record, "solution") if data.get("steps") is None else _steps(record, "steps")
    reference = next((data[name] for name in ("ground_truth", "reference") if data.get(name) is not None), None)
    label = data.get("is_correct")
    if reference is None and label is None:
        raise record.wrong(
            "expected the reference answer as `ground_truth` or `reference`, or a label as `is_correct`."
        )
    if label is not None and not isinstance(label, bool):
        raise record.wrong(f"is_correct is {label!r}; expected true or false.")
    stated = data.get("final_answer")
    if stated is None:
        found = find_answer(solution if isinstance(solution, str) else "\n\n".join(solution))
        stated = found.value if found else None
    answer = "" if stated is None else str(stated).strip()
    named = data.get("problem_id")
    count = None if isinstance(solution, str) else len(solution)
    return Rollout(
        group=problem if named is None else str(named),
        problem=problem,
        solution=solution,
        answer=answer or None,
        reference=None if reference is None else str(reference),
        label=label,
        scores=precomputed_scores(record, scores, count),
    )


def as_rows(rows: Rows[Row], kind: type[Row], read: Callable[[Iterable[Record]], Iterable[Row]]) -> list[Row]:
    """Return rows unchanged, and convert mappings like the objects of a file."""
    given = list(rows)
    if not given:
        raise InputError("There are no rows to evaluate.")
    found = [row for row in given if isinstance(row, kind)]
    if len(found) == len(given):
        return found
    records = []
    for number, row in enumerate(given):
        if not isinstance(row, Mapping):
            raise InputError(
                f"Row {number} (from 0) is {type(row).__name__}; expected only {kind.__name__}, or only mappings."
            )
        records.append(Record(row, f"row {number} (from 0)"))
    return list(read(records))


def without_prefix(step: str) -> str:
    """Remove a prefix such as `Step 3. ` or `3. `. A step that is nothing but a number, such as `30.`, is kept."""
    bare = step.strip()
    prefix = _STEP_PREFIX.match(bare)
    return (bare[prefix.end() :] if prefix else "") or bare


def official_split(name: str) -> str | None:
    """Return the ProcessBench split that a name refers to, also with a suffix (`gsm8k_dev`, `math-odd`)."""
    return next((split for split in PROCESSBENCH_SPLITS if re.fullmatch(rf"{split}(?:[^a-z0-9].*)?", name, re.I)), None)


def _split_of(name: str) -> str:
    stem = name.rpartition("-")[0]
    return stem if stem in PROCESSBENCH_SPLITS else "all"


def required_text(record: Record, *names: str) -> str:
    """Return the first of these fields that is present; it has to be text."""
    for name in names:
        if record.data.get(name) is not None:
            value = record.data[name]
            if not isinstance(value, str):
                raise record.wrong(f"`{name}` is {type(value).__name__}; expected text.")
            return value
    raise record.wrong(f"expected `{names[0]}`. Its fields are: {', '.join(map(str, record.data)) or 'none'}.")


def _steps(record: Record, name: str) -> tuple[str, ...]:
    steps = record.data.get(name)
    if not isinstance(steps, list | tuple) or not steps or not all(isinstance(step, str) for step in steps):
        raise record.wrong(f"expected `{name}` as a non-empty list of texts.")
    return tuple(steps)


def _errors(record: Record, first: int) -> list[int]:
    given = record.data.get("error_steps")
    if not isinstance(given, list | tuple) or not all(isinstance(error, int) for error in given):
        raise record.wrong("expected `error_steps` as a list of integers.")
    errors = [error - first for error in given]
    if any(error < 0 for error in errors):
        raise record.wrong(f"error_steps is {given}; this format counts steps from {first}.")
    label = record.data.get("label")
    if label is not None and label != min(errors, default=-1):
        raise record.wrong(f"label is {label} and error_steps is {given}; the label has to be the smallest of them.")
    return errors


def precomputed_scores(record: Record, name: str | None, count: int | None) -> Scores | None:
    """Return the scores in the field `name`, one for each of `count` steps; None if no field is named."""
    if name is None:
        return None
    given = record.data.get(name)
    if not isinstance(given, list | tuple) or not all(_is_score(score) for score in given):
        raise record.wrong(f"expected `{name}` as a list of numbers, with null for an unscored step.")
    if count is not None and len(given) != count:
        raise record.wrong(f"`{name}` has {len(given)} scores for {count} steps.")
    return tuple(None if score is None else float(score) for score in given)


def _is_score(score: object) -> bool:
    return score is None or (isinstance(score, int | float) and not isinstance(score, bool) and math.isfinite(score))
