"""A Griffe extension for the API reference: doctests and drawn trees in docstrings become code blocks."""

from __future__ import annotations

from typing import Any

import griffe

from docstring_code import fenced


class DoctestFences(griffe.Extension):  # type: ignore[misc]  # not installed where types are checked
    """Puts fences around the code in docstrings."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Rewrite the docstring of an object when it is loaded."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
