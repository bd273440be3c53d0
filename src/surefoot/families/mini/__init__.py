"""The embedded model: an ordinary checkpoint of the family `mini`, shipped in this folder.

The name `mini` always refers to it, whatever the working directory contains. A folder of that name is `./mini`.
"""

from __future__ import annotations

from pathlib import Path

NAME = "mini"
FOLDER = Path(__file__).parent / "checkpoint"


def locate(model: str | Path) -> str | Path:
    """Return the embedded model's folder for `mini`, and any other model unchanged."""
    return FOLDER if model == NAME else model
