"""What the pages in a browser share: colours and controls as a style sheet, and the icon."""

from __future__ import annotations

from importlib.resources import files


def base_style() -> str:
    """Return the style sheet."""
    return _static("base.css")


def icon() -> str:
    """Return the icon, as SVG."""
    return _static("icon.svg")


def _static(name: str) -> str:
    return files("surefoot.display").joinpath("static").joinpath(name).read_text(encoding="utf-8")
