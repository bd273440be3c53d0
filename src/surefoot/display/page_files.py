"""What the pages in a browser share: colours and controls as a style sheet, the icon, and scripts."""

from __future__ import annotations

from importlib.resources import files


def base_style() -> str:
    """Return the style sheet, with that of boxes that scroll."""
    return _static("base.css") + scrolling_style()


def scrolling_style() -> str:
    """Return the style sheet that shows where a box has more than is visible."""
    return _static("scrolling.css")


def elements_script() -> str:
    """Return the script that builds elements and watches boxes that scroll. The other scripts need it before them."""
    return _static("elements.js") + _static("scrolling.js")


def theme_script() -> str:
    """Return the script of the button that chooses light or dark colours."""
    return _static("theme.js")


def icon() -> str:
    """Return the icon, as SVG."""
    return _static("icon.svg")


def _static(name: str) -> str:
    return files("surefoot.display").joinpath("static").joinpath(name).read_text(encoding="utf-8")
