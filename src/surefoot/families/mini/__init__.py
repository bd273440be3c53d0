"""The embedded model: an ordinary checkpoint of the family `mini`, shipped in this folder with its calibration.

The name `mini` always refers to them, whatever the working directory contains. A folder or file of that name is
`./mini`.
"""

from __future__ import annotations

from pathlib import Path

NAME = "mini"
FOLDER = Path(__file__).parent / "checkpoint"


def locate(model: str | Path) -> str | Path:
    """Return the embedded model's folder for `mini`, and any other model unchanged."""
    return FOLDER if model == NAME else model


def locate_calibration(calibration: str | Path) -> str | Path:
    """Return the file of the embedded model's calibration for `mini`, and any other file unchanged."""
    return FOLDER / "calibration.json" if calibration == NAME else calibration
