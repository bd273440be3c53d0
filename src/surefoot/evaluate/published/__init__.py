"""Published benchmark results, to show next to ours.

`processbench.csv` and `prmbench.csv` hold one row per model: numbers in percent, exactly as printed, with their source.
None of them was measured with Surefoot; the authors used their own prompts and precision. `names` lists lower-case
endings of Hub ids and folders that mean the model, `other_models` ids with the same ending that do not.
`processbench.csv` holds first-error F1 only. Results with another metric of the same name, such as the binary F1 of
ThinkPRM, must not be added to it.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import NamedTuple, Protocol, TypeVar

from surefoot.evaluate.rows import PROCESSBENCH_SPLITS, official_split


class Cell(NamedTuple):
    """The published numbers of one split. Some sources print only F1."""

    error: float | None
    """Accuracy on erroneous solutions."""
    correct: float | None
    """Accuracy on correct solutions."""
    f1: float


@dataclass(frozen=True)
class PublishedProcessBench:
    """One row of `processbench.csv`."""

    model: str
    names: tuple[str, ...]
    other_models: tuple[str, ...]
    splits: dict[str, Cell]
    average: float
    source: str

    def cell(self, split: str) -> Cell | None:
        """Return the numbers of a split, also for a part of it such as `gsm8k_dev`."""
        official = official_split(split)
        return None if official is None else self.splits.get(official)

    def average_of(self, splits: Sequence[str]) -> float | None:
        """Return the average F1 over these splits: the printed one for all splits, else the mean over theirs."""
        cells = {official_split(split): self.cell(split) for split in splits}
        if set(cells) == set(self.splits):
            return self.average
        f1s = [cell.f1 for cell in cells.values() if cell is not None]
        return sum(f1s) / len(f1s) if f1s and len(f1s) == len(splits) else None


@dataclass(frozen=True)
class PublishedPRMBench:
    """One row of `prmbench.csv`: PRMScores."""

    model: str
    names: tuple[str, ...]
    other_models: tuple[str, ...]
    overall: float
    simplicity: float
    soundness: float
    sensitivity: float
    source: str

    @property
    def scores(self) -> dict[str, float]:
        """The overall score and the score per category."""
        return {
            "overall": self.overall,
            "simplicity": self.simplicity,
            "soundness": self.soundness,
            "sensitivity": self.sensitivity,
        }


def published_processbench(model: str) -> PublishedProcessBench | None:
    """Return the published ProcessBench results of a model, by Hub id or folder.

    published_processbench("Qwen/Qwen2.5-Math-PRM-7B").average  # 73.5
    """
    return _find(processbench_table(), model)


def published_prmbench(model: str) -> PublishedPRMBench | None:
    """Return the published PRMBench results of a model, by Hub id or folder.

    published_prmbench("Qwen/Qwen2.5-Math-PRM-7B").overall  # 65.5
    """
    return _find(prmbench_table(), model)


def citation(row: PublishedProcessBench | PublishedPRMBench | None) -> str:
    """Return the source of a published row as a sentence; nothing if there is no row."""
    return "" if row is None else f"Published: {row.model}, {row.source}."


@cache
def processbench_table() -> tuple[PublishedProcessBench, ...]:
    """Return all published ProcessBench results."""
    return tuple(
        PublishedProcessBench(
            model=row["model"],
            names=tuple(row["names"].split()),
            other_models=tuple(row["other_models"].split()),
            splits={split: _cell(row, split) for split in PROCESSBENCH_SPLITS},
            average=float(row["average"]),
            source=row["source"],
        )
        for row in _read("processbench.csv")
    )


@cache
def prmbench_table() -> tuple[PublishedPRMBench, ...]:
    """Return all published PRMBench results."""
    return tuple(
        PublishedPRMBench(
            model=row["model"],
            names=tuple(row["names"].split()),
            other_models=tuple(row["other_models"].split()),
            overall=float(row["overall"]),
            simplicity=float(row["simplicity"]),
            soundness=float(row["soundness"]),
            sensitivity=float(row["sensitivity"]),
            source=row["source"],
        )
        for row in _read("prmbench.csv")
    )


class _Named(Protocol):
    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def other_models(self) -> tuple[str, ...]: ...


Row = TypeVar("Row", bound=_Named)


def _find(rows: Iterable[Row], model: str) -> Row | None:
    wanted = model.replace("\\", "/").rstrip("/").lower()
    return next((row for row in rows if wanted.endswith(row.names) and wanted not in row.other_models), None)


def _read(name: str) -> list[dict[str, str]]:
    text = files(__name__).joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def _cell(row: Mapping[str, str], split: str) -> Cell:
    error, correct, f1 = (row[f"{split}_{column}"] for column in ("error", "correct", "f1"))
    return Cell(float(error) if error else None, float(correct) if correct else None, float(f1))
