"""Turns labels into the rows that `surefoot train` reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args

from surefoot.core.labels import LabelledSolution, StepLabel
from surefoot.data.files import json_line, write_file
from surefoot.errors import OptionError

Target = Literal["hard", "soft", "relative"]


def training_rows(solutions: Iterable[LabelledSolution], target: Target = "hard") -> Iterator[dict[str, Any]]:
    """Yield one row per solution: `question`, `steps` and `targets`, with null for steps without this kind of label.

    Solutions that a judge does not confirm are left out, and so are those without any target. Blanks around steps are
    removed, as scoring does.

    >>> report = surefoot.label("samples.jsonl", "labels", generator="samples.jsonl", gold="target")
    >>> next(surefoot.training_rows(report.solutions))["targets"]
    [1.0]
    """
    if target not in get_args(Target):
        raise OptionError(f"target={target!r} is unknown. Choose one of: {', '.join(get_args(Target))}.")
    for solution in solutions:
        targets = [_target(step, target) for step in solution.steps]
        if solution.kept and any(each is not None for each in targets):
            yield {
                "question": solution.question,
                "steps": [step.text.strip() for step in solution.steps],
                "targets": targets,
            }


def write_training_rows(path: str | Path, solutions: Iterable[LabelledSolution], target: Target = "hard") -> int:
    """Write the rows as a JSONL file, and return how many there are."""
    place = Path(path).expanduser().absolute()
    lines = [json_line(row) for row in training_rows(solutions, target)]
    write_file(place.parent, place.name, lambda file: file.write_bytes(b"".join(lines)))
    return len(lines)


def _target(step: StepLabel, target: Target) -> float | None:
    value = getattr(step, target) if step.state == "labelled" else None
    return None if value is None else float(value)
