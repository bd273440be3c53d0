"""The view of a search tree that reports and the service's page share: one script and one style sheet.

The script defines `renderSearchTree(container, result)`, which needs `elements_script` before it and inserts all
texts as text.
"""

from __future__ import annotations

from importlib.resources import files

from surefoot.display.colour_scale import BUCKETS, themed_colour


def search_tree_script() -> str:
    """Return the script."""
    return _static("search_tree.js")


def search_tree_style() -> str:
    """Return the style sheet, with one class per colour of the scale."""
    rules = []
    for number in range(BUCKETS):
        background, ink = themed_colour(number)
        rules.append(f".st-c{number} {{ background: {background}; color: {ink}; }}")
    return "\n".join([_static("search_tree.css"), *rules, ""])


def _static(name: str) -> str:
    return files("surefoot.display").joinpath("static").joinpath(name).read_text(encoding="utf-8")
