"""Read training data in several formats, recognized by the keys of a row.

An invalid row is an error that names file and line; rows that are skipped on purpose are counted and reported. All
formats of step labels in `surefoot.data.formats` are read. Labels after the first incorrect step are not used, except
those in `targets`. Besides, there are rows that only training reads:

| keys of a row | meaning |
| --- | --- |
| `steps`, `qwen_prm` | a teacher's scores as soft targets; rows where teacher and answer disagree are skipped |
| `question`, `answer` with `####` | GSM8K: correct and corrupted variants |
| `question`, `ground_truth`, models | GSM8K's example solutions, compared with the gold solution; needs `keep` |
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from surefoot.data.formats.base import list_of, text_of, texts_of
from surefoot.data.formats.labels import require_no_corrections
from surefoot.data.formats.registry import FORMATS, detect
from surefoot.data.formats.surefoot import SUREFOOT, numbers
from surefoot.data.records import read_records
from surefoot.data.step_labels import AnnotatedSolution
from surefoot.errors import InputError, OptionError
from surefoot.train.example import Example, from_scores, question_key, stop_at_error, strip_marks
from surefoot.train.joining import join_some
from surefoot.train.synthetic import compare_with_gold, known_values, make_variants

logger = logging.getLogger("surefoot")

QUESTION = ("question", "problem")
"""The keys of the question."""
CHAT_START, CHAT_END = "system\n", "\nassistant\n"
SOLVERS = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")


@dataclass(frozen=True)
class Reading:
    """Options for reading files."""

    variants: int = 4
    """Number of examples per GSM8K row."""
    seed: int = 0
    keep: Collection[str] | None = None
    """Keys of the questions whose example solutions may be used; see `read_questions`."""
    join: float = 0.0
    """Fraction of the solutions in which neighbouring steps are joined; see `joining`."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.join <= 1.0:
            raise OptionError(f"join={self.join} must be between 0 and 1.")


def read_examples(path: str | Path, reading: Reading | None = None) -> list[Example]:
    """Read all examples of a file. Their source is the name of the file."""
    reading = reading or Reading()
    examples: list[Example] = []
    rows = empty = 0
    require_no_corrections(path)
    for record in read_records(path):
        try:
            found = _examples(record.data, record.split or str(path), reading)
        except InputError as error:
            raise record.wrong(str(error)) from error
        rows, empty = rows + 1, empty + (not found)
        examples += [_clean(example) for example in found]
    if not examples:
        raise InputError(f"{path} contains no example to train on.")
    if empty:
        logger.info("%s: skipped %d of %d rows, which give no example.", path, empty, rows)
    return join_some(examples, reading.join, reading.seed) if reading.join else examples


def read_questions(path: str | Path) -> set[str]:
    """Return the keys of the questions in a file."""
    keys = set()
    for record in read_records(path):
        try:
            keys.add(question_key(_question(record.data)))
        except InputError as error:
            raise record.wrong(str(error)) from error
    return keys


def without_questions(examples: Iterable[Example], keys: Collection[str]) -> list[Example]:
    """Return the examples whose questions are not among the keys."""
    return [example for example in examples if question_key(example.question) not in keys]


def _examples(row: Mapping[str, Any], source: str, reading: Reading) -> list[Example]:
    if "ground_truth" in row and any(solver in row for solver in SOLVERS):
        return _solved(row, text_of(row, *QUESTION), source, reading)
    if "steps" in row and "qwen_prm" in row and "targets" not in row and "ratings" not in row:
        return _taught(row, text_of(row, *QUESTION), texts_of(row, "steps"), source)
    found = detect(row)
    if found is not None and found.is_empty(row):
        return []
    if found is None and "steps" not in row:
        question = text_of(row, *QUESTION)
        if isinstance(row.get("answer"), str) and "####" in row["answer"]:
            return make_variants(question, row["answer"], count=reading.variants, seed=reading.seed, source=source)
        raise InputError(
            "expected `steps`, a worked `answer` that ends with `#### number`, or the keys of another format: "
            f"{', '.join(FORMATS)}."
        )
    return _labelled((found or SUREFOOT).parse(row), source, exact="targets" in row)


def _labelled(solution: AnnotatedSolution, source: str, *, exact: bool) -> list[Example]:
    """Make an example of a solution, and one of each alternative step that it does not continue with."""
    return [
        Example(one.question, one.steps, one.targets if exact else stop_at_error(one.targets), source)
        for one in (solution, *solution.branches())
    ]


def _question(row: Mapping[str, Any]) -> str:
    found = detect(row)
    if found is not None and not found.is_empty(row):
        return found.parse(row).question
    nested = row.get("question")
    return text_of(nested if isinstance(nested, Mapping) else row, *QUESTION)


def _taught(row: Mapping[str, Any], question: str, steps: Sequence[str], source: str) -> list[Example]:
    scores = numbers(list_of(row, "qwen_prm"), "qwen_prm")
    first = _first_after_chat(steps)
    if first is None:
        return []
    at, text = first
    example = from_scores(question, [text, *steps[at + 1 :]], scores[at:], source)
    # The answer fails every check but the teacher found no error. One of them is wrong, so the row is skipped.
    failed = [row[test] for test in ("is_correct", "last_number_equals_gt") if test in row]
    return [] if example.first_error == -1 and failed and not any(failed) else [example]


def _first_after_chat(steps: Sequence[str]) -> tuple[int, str] | None:
    """Return the index and text of the first step of the solution; the steps may begin with the chat before it."""
    if not steps or not steps[0].startswith(CHAT_START):
        return (0, steps[0]) if steps else None
    for at, step in enumerate(steps):
        _, turn, text = step.partition(CHAT_END)
        if turn:
            return at, text
    return None


def _solved(row: Mapping[str, Any], question: str, source: str, reading: Reading) -> list[Example]:
    if reading.keep is None:
        raise OptionError(
            "This file contains solutions to every GSM8K test problem, including those of ProcessBench. Select the "
            "problems to train on with `keep` (in Python: Reading(keep=read_questions(FILE)))."
        )
    if question_key(question) not in reading.keep:
        return []
    solutions = [row[solver] for solver in SOLVERS if isinstance(row.get(solver), dict)]
    parts = [(_solution_steps(str(one.get("solution", ""))), bool(one.get("is_correct"))) for one in solutions]
    known = known_values(question, str(row["ground_truth"]), [steps for steps, right in parts if right])
    compared = [
        compare_with_gold(question, steps, right=right, known=known, source=source) for steps, right in parts if steps
    ]
    return [example for example in compared if example.has_loss]


def _solution_steps(text: str) -> list[str]:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return [f"The answer is {line[2:].strip()}." if line.startswith("A:") else line for line in lines]


def _clean(example: Example) -> Example:
    return replace(example, steps=tuple(strip_marks(step) for step in example.steps))
