"""Find the code in docstrings: doctests and drawn trees, which Markdown would take for quotations and paragraphs."""

from __future__ import annotations

import re

DOCTEST = re.compile(r"(?:^ *>>> .*\n?(?: *(?!>>>)\S.*\n?)*)+", re.MULTILINE)


TREE = re.compile(r"(?:^\S.*\n)?(?:^[├└│].*\n?)+", re.MULTILINE)


def fenced(text: str) -> str:
    """Return the text with a fence around every doctest and every tree.

    >>> print(fenced(">>> 1 + 1\\n2"))
    ```pycon
    >>> 1 + 1
    2
    ```
    """
    text = DOCTEST.sub(lambda match: f"```pycon\n{match[0].rstrip()}\n```\n", text)
    return TREE.sub(lambda match: f"```text\n{match[0].rstrip()}\n```\n", text).rstrip()
