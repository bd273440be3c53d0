"""Published scores of example solutions, which `surefoot check` compares with.

They are rows of JSON files: `goldens.json` in this folder, and the file that a family from another package names in
`Family.golden_file`. Those of the embedded model come from a plain forward pass of its checkpoint with transformers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from surefoot.errors import LoadError
from surefoot.families.base import Family
from surefoot.families.mini import NAME as EMBEDDED

FILE = Path(__file__).parent / "goldens.json"


@dataclass(frozen=True)
class Golden:
    """The published scores of one solution."""

    family: str
    models: tuple[str, ...]
    """Lower-case endings of the model names for which the scores were published; `mini` is the embedded model only."""
    source: str
    tolerance: float
    """How far a score may differ, because of other number formats and kernels."""
    question: str
    steps: tuple[str, ...]
    scores: tuple[float, ...]
    system: str | None = None
    """The system message with which the scores were published, if it is not the family's default."""


def find_goldens(family: Family, model: str | None = None) -> tuple[Golden, ...]:
    """Return the published examples of a family, or only those of the model with this name.

    >>> [golden.scores for golden in find_goldens(FAMILIES["qwen"], "Qwen/Qwen2.5-Math-PRM-7B")]
    [(1.0, 0.1904296875, 0.9765625, 1.0)]
    """
    rows = [*read_goldens(FILE), *(read_goldens(family.golden_file) if family.golden_file else ())]
    name = None if model is None else model.rstrip("/").lower()
    return tuple(row for row in rows if row.family == family.name and (name is None or _is_of(row, name)))


def _is_of(row: Golden, name: str) -> bool:
    # A folder ./mini, or one that `surefoot train` wrote, is another model than `mini`.
    return name == EMBEDDED if EMBEDDED in row.models else name.endswith(row.models)


@cache
def read_goldens(file: Path) -> tuple[Golden, ...]:
    """Read a JSON file of published examples: a list of objects with the fields of `Golden`; `system` is optional."""
    try:
        return tuple(_golden(row) for row in json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise LoadError(f"Cannot read the published scores in {file}: {error}") from error


def _golden(row: dict[str, Any]) -> Golden:
    names = {field.name for field in fields(Golden)}
    if row.keys() | {"system"} != names:
        raise ValueError(f"a row has the fields {sorted(row)} instead of {sorted(names)}")
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
    golden = Golden(**values)
    if len(golden.steps) != len(golden.scores):
        raise ValueError(f"a row has {len(golden.steps)} steps and {len(golden.scores)} scores")
    return golden
