"""The rows that an evaluation is made of: a labelled solution, a solution with several errors, a rollout.

The rule: a row is read completely or refused with its place and what is wrong; indices are 0-based here, whatever they
are in the file. Ready-made step scores may come with a row; they then take the place of a model.
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

TWIN = "correct"
"""The class of PRMBench solutions that were left untouched."""

# As PRMBench does; but a number such as 0.25 keeps what stands before its point.
_STEP_PREFIX = re.compile(r"(?:step\s*\d+\.|\d+\.(?!\d))\s*", re.IGNORECASE)

Scores = tuple[float | None, ...]


@dataclass(frozen=True)
class ProcessBenchRow:
    """A solution and the index of its first wrong step, -1 when every step is right."""

    id: str
    split: str
    problem: str
    steps: tuple[str, ...]
    label: int
    generator: str | None = None
    """The model that wrote the solution."""
    answer_correct: bool | None = None
    """Whether the final answer is right, which a wrong process may well reach."""
    scores: Scores | None = None


@dataclass(frozen=True)
class PRMBenchRow:
    """A solution into which errors of one class were put, and the indices of all its wrong steps."""

    id: str
    classification: str
    problem: str
    steps: tuple[str, ...]
    """Without prefixes such as `Step 1. `, as the protocol feeds them."""
    errors: frozenset[int]
    misplaced: int = 0
    """Indices in the file that point past the last step; the protocol leaves them out, and so do we."""
    scores: Scores | None = None


@dataclass(frozen=True)
class Rollout:
    """One of several solutions of a problem, its answer, and what tells whether that is right."""

    group: str
    """The problem: solutions with the same value compete."""
    problem: str
    solution: str | tuple[str, ...]
    answer: str | None
    """What the solution states as its final answer."""
    reference: str | None = None
    label: bool | None = None
    """`is_correct` of the file."""
    scores: Scores | None = None


Row = TypeVar("Row", ProcessBenchRow, PRMBenchRow, Rollout)
Rows = Iterable["Row | Mapping[str, Any]"]


def read_processbench(
    source: str | Path, *, splits: Sequence[str] | None = None, scores: str | None = None
) -> list[ProcessBenchRow]:
    """Rows of ProcessBench, or of any file whose objects have `problem`, `steps` and `label`.

    `splits` keeps only the files or hub splits of these names. `scores` names a field with ready-made step scores.
    """
    rows = list(processbench_rows(read_records(source), scores))
    if splits is None:
        return rows
    there = {row.split for row in rows}
    if missing := [name for name in splits if name not in there]:
        raise InputError(f"{source} has no split {', '.join(missing)}. It has: {', '.join(sorted(there))}.")
    return [row for row in rows if row.split in splits]


def read_prmbench(source: str | Path, *, scores: str | None = None) -> list[PRMBenchRow]:
    """Rows of PRMBench, with the untouched twin of every `redundency` row as a row of the class `correct`."""
    return list(prmbench_rows(read_records(source), scores))


def read_rollouts(source: str | Path, *, scores: str | None = None) -> list[Rollout]:
    """Solutions with `question`, `steps` or `solution`, and `ground_truth`, `reference` or `is_correct`."""
    return list(rollouts(read_records(source), scores))


def processbench_rows(records: Iterable[Record], scores: str | None = None) -> Iterator[ProcessBenchRow]:
    """Each record as a row."""
    for number, record in enumerate(records):
        data = record.data
        steps = _steps(record, "steps")
        label = data.get("label")
        if not isinstance(label, int) or isinstance(label, bool) or not -1 <= label < len(steps):
            raise record.wrong(
                f"label is {label!r}; expected the 0-based index of the first wrong of {len(steps)} steps, or -1."
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
            problem=_text(record, "problem", "question"),
            steps=steps,
            label=label,
            generator=generator,
            answer_correct=correct,
            scores=_scores(record, scores, len(steps)),
        )


def read_labelled(source: str | Path, *, scores: str | None = None) -> list[ProcessBenchRow]:
    """Solutions whose first wrong step is known, from files of ProcessBench's form or of PRMBench's."""
    return list(labelled_rows(read_records(source), scores))


def labelled_rows(records: Iterable[Record], scores: str | None = None) -> Iterator[ProcessBenchRow]:
    """Each record as a row, whichever of both forms it has."""
    for official, some in groupby(records, lambda record: "error_steps" in record.data):
        if not official:
            yield from processbench_rows(some, scores)
            continue
        for row in prmbench_rows(some, scores):
            label = min(row.errors, default=-1)
            yield ProcessBenchRow(row.id, row.classification, row.problem, row.steps, label, scores=row.scores)


def prmbench_rows(records: Iterable[Record], scores: str | None = None) -> Iterator[PRMBenchRow]:
    """Each record as a row, repeats left out, and the twins.

    The official files count `error_steps` from 1. Files with a `label` beside them are ours and count from 0.
    """
    seen: set[tuple[str, str, tuple[str, ...]]] = set()
    for number, record in enumerate(records):
        data = record.data
        official = "modified_process" in data
        classification = _text(record, "classification")
        name = str(data.get("idx", data.get("id", number)))
        steps = _steps(record, "modified_process" if official else "steps")
        # Several solutions of one problem may carry the same id; only the very same one is a repeat.
        if (classification, name, steps) in seen:
            continue
        seen.add((classification, name, steps))
        errors = _errors(record, first=1 if official else 0)
        yield PRMBenchRow(
            id=name,
            classification=classification,
            problem=_text(record, "modified_question", "problem", "question"),
            steps=tuple(map(without_prefix, steps)),
            errors=frozenset(error for error in errors if error < len(steps)),
            misplaced=sum(error >= len(steps) for error in errors),
            scores=_scores(record, scores, len(steps)),
        )
        if official and classification == "redundency" and scores is None and "original_process" in data:
            twin = tuple(map(without_prefix, _steps(record, "original_process")))
            if (TWIN, name, twin) not in seen:
                seen.add((TWIN, name, twin))
                yield PRMBenchRow(f"{TWIN}_{name}", TWIN, _text(record, "original_question"), twin, frozenset())


def rollouts(records: Iterable[Record], scores: str | None = None) -> Iterator[Rollout]:
    """Each record as a rollout. Records that share a `problem_id` must share the problem."""
    first: dict[str, tuple[str, str]] = {}
    for record in records:
        found = _rollout(record, scores)
        problem, place = first.setdefault(found.group, (found.problem, record.place))
        if problem != found.problem:
            raise record.wrong(
                f"problem_id is {found.group!r}, which is another problem at {place}. Give each one its own, or none."
            )
        yield found


def _rollout(record: Record, scores: str | None) -> Rollout:
    data = record.data
    problem = _text(record, "question", "problem")
    solution: str | tuple[str, ...]
    solution = _text(record, "solution") if data.get("steps") is None else _steps(record, "steps")
    reference = next((data[name] for name in ("ground_truth", "reference") if data.get(name) is not None), None)
    label = data.get("is_correct")
    if reference is None and label is None:
        raise record.wrong("expected the right answer as `ground_truth` or `reference`, or a verdict as `is_correct`.")
    if label is not None and not isinstance(label, bool):
        raise record.wrong(f"is_correct is {label!r}, not true or false.")
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
        scores=_scores(record, scores, count),
    )


def as_rows(rows: Rows[Row], kind: type[Row], read: Callable[[Iterable[Record]], Iterable[Row]]) -> list[Row]:
    """Rows as they are, or plain mappings read as the objects of a file are."""
    given = list(rows)
    if not given:
        raise InputError("There is no row to evaluate.")
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
    """The step without `Step 3. ` or `3. ` before it. A step that is nothing else, such as `30.`, is no prefix."""
    bare = step.strip()
    prefix = _STEP_PREFIX.match(bare)
    return (bare[prefix.end() :] if prefix else "") or bare


def usual_split(name: str) -> str | None:
    """The ProcessBench split that a name means: its own, or with something behind it (`gsm8k_dev`, `math-odd`)."""
    return next((split for split in PROCESSBENCH_SPLITS if re.fullmatch(rf"{split}(?:[^a-z0-9].*)?", name, re.I)), None)


def _split_of(name: str) -> str:
    stem = name.rpartition("-")[0]
    return stem if stem in PROCESSBENCH_SPLITS else "all"


def _text(record: Record, *names: str) -> str:
    for name in names:
        if record.data.get(name) is not None:
            value = record.data[name]
            if not isinstance(value, str):
                raise record.wrong(f"`{name}` is {type(value).__name__}, not text.")
            return value
    raise record.wrong(f"expected `{names[0]}`. It has: {', '.join(map(str, record.data)) or 'nothing'}.")


def _steps(record: Record, name: str) -> tuple[str, ...]:
    steps = record.data.get(name)
    if not isinstance(steps, list | tuple) or not steps or not all(isinstance(step, str) for step in steps):
        raise record.wrong(f"expected `{name}` as a list of texts that is not empty.")
    return tuple(steps)


def _errors(record: Record, first: int) -> list[int]:
    given = record.data.get("error_steps")
    if not isinstance(given, list | tuple) or not all(isinstance(error, int) for error in given):
        raise record.wrong("expected `error_steps` as a list of whole numbers.")
    errors = [error - first for error in given]
    if any(error < 0 for error in errors):
        raise record.wrong(f"error_steps is {given}; the first step of this format is {first}.")
    label = record.data.get("label")
    if label is not None and label != min(errors, default=-1):
        raise record.wrong(f"label is {label} and error_steps is {given}; the label has to be the first of them.")
    return errors


def _scores(record: Record, name: str | None, count: int | None) -> Scores | None:
    if name is None:
        return None
    given = record.data.get(name)
    if not isinstance(given, list | tuple) or not all(_is_score(score) for score in given):
        raise record.wrong(f"expected `{name}` as a list of numbers, null for a step without a score.")
    if count is not None and len(given) != count:
        raise record.wrong(f"`{name}` has {len(given)} scores for {count} steps.")
    return tuple(None if score is None else float(score) for score in given)


def _is_score(score: object) -> bool:
    return score is None or (isinstance(score, int | float) and not isinstance(score, bool) and math.isfinite(score))
