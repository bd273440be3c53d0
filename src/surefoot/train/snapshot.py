"""A run on disk: all that is needed to go on exactly where it stood.

The rule: a snapshot is written beside its name and then renamed, so a process that dies leaves the one before. It is
read as plain tensors and numbers; nothing pickled is run.
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
    """Writes a snapshot and removes those that are older than the last `keep`."""
    file = _write(folder / f"step-{step:08d}.pt", state)
    for old in _all(folder)[: -max(1, keep)]:
        old.unlink()
    return file


def save_best(folder: Path, state: dict[str, Any]) -> Path:
    """Writes the best weights so far, in place of those before."""
    return _write(folder / BEST, state)


def last(folder: Path) -> Path | None:
    """The newest snapshot, if there is one."""
    files = _all(folder)
    return files[-1] if files else None


def load(file: Path) -> dict[str, Any]:
    """What was saved."""
    try:
        state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        raise LoadError(f"{file} cannot be read ({error}). Remove it; the run goes on from the one before.") from error
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
