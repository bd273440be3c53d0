"""The embedded model: an ordinary checkpoint of the family `mini`, in this very folder.

The rule: its name, `mini`, always means this folder, whatever lies in the working directory. A folder there that is
called so is `./mini`.
"""

from __future__ import annotations

from pathlib import Path

NAME = "mini"
FOLDER = Path(__file__).parent / "checkpoint"


def locate(model: str | Path) -> str | Path:
    """The folder of the embedded model if it is meant; else what was given, untouched."""
    return FOLDER if model == NAME else model
