"""Save and load snapshots, which hold everything needed to resume a run exactly.

Invariant: a snapshot is written atomically, so a crash leaves the previous one intact. Loading reads only tensors and
numbers and never runs pickled code.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import torch

from surefoot.errors import LoadError

NAME = re.compile(r"step-(\d{8})\.pt")
BEST = "best.pt"


def save(folder: Path, step: int, state: dict[str, Any], keep: int) -> Path:
    """Write a snapshot, and delete all but the last `keep`."""
    file = _write(folder / f"step-{step:08d}.pt", state)
    for old in _all(folder)[: -max(1, keep)]:
        old.unlink()
    return file


def save_best(folder: Path, state: dict[str, Any]) -> Path:
    """Write the best weights so far, replacing the previous ones."""
    return _write(folder / BEST, state)


def last(folder: Path) -> Path | None:
    """Return the newest snapshot, or None."""
    files = _all(folder)
    return files[-1] if files else None


def load(file: Path) -> dict[str, Any]:
    """Load a snapshot."""
    try:
        state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        raise LoadError(f"Cannot read {file} ({error}). Delete it to resume from the previous snapshot.") from error
    return state


def _all(folder: Path) -> list[Path]:
    return sorted(file for file in folder.glob("step-*.pt") if NAME.fullmatch(file.name))


def _write(file: Path, state: dict[str, Any]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(file.name + ".part")
    with part.open("wb") as stream:
        torch.save(state, stream)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(part, file)
    return file
