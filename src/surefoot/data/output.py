"""Checks output paths before anything is computed, so that no result is lost because it cannot be written."""

from __future__ import annotations

from pathlib import Path

from surefoot.errors import OptionError


def check_place(what: str, path: str | Path) -> None:
    """Rejects a folder, and a file in a folder that does not exist. Messages call the file by the name `what`."""
    place = Path(path)
    if place.is_dir():
        raise OptionError(f"The {what} {place} is a folder. Name a file in it.")
    if not place.parent.is_dir():
        raise OptionError(f"The {what} cannot be written to {place}: {place.parent} is not a folder.")
