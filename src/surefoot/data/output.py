"""Where a result is going to be written.

The rule: a place that cannot be written to is refused before anything is computed, so that no result is lost there.
"""

from __future__ import annotations

from pathlib import Path

from surefoot.errors import OptionError


def check_place(what: str, path: str | Path) -> None:
    """Refuses a folder, and a file in a folder that is not there. `what` is called by this name: `report`."""
    place = Path(path)
    if place.is_dir():
        raise OptionError(f"The {what} {place} is a folder. Name a file in it.")
    if not place.parent.is_dir():
        raise OptionError(f"The {what} cannot be written to {place}: there is no folder {place.parent}.")
