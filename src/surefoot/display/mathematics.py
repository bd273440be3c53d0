r"""Find LaTeX in texts, and the script and style sheet that render it in a browser.

Formulas are in `\(...\)`, `\[...\]`, `$$...$$`, and `$...$` if the content cannot be an amount of money. A `\boxed`
without delimiters, as models write their answers, is a formula, too. The script `static/mathematics.js` finds the same
formulas and renders them with KaTeX as MathML, which needs no fonts, no style attributes and no network.
Invariant: a formula that cannot be rendered is shown as its source.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files

MAX_CHARS = 5000
"""Longer formulas are shown as text."""

CLOSERS = {"\\(": "\\)", "\\[": "\\]", "$$": "$$", "$": "$"}
BOX = "\\boxed"
_OPENER = re.compile(r"\\[\\$]|\\[(\[]|\$\$?|\\boxed(?=\{)")
_BRACE = re.compile(r"\\boxed|\\[\s\S]|[{}]")
_ESCAPED = re.compile(r"\\[\s\S]")
_DOLLAR = re.compile(r"\\[\s\S]|\$")
_EDGE = re.compile(r"^[ \t\r\n]|[ \t\r\n]$|\n[ \t]*\n")
_WORDS = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mbox|operatorname)\*?\s*\{[^{}]*\}|\\[A-Za-z]+")
_PROSE = re.compile(r"[a-z]{3}[,;]?\s+[a-z]{2}")
_LATEX = re.compile(r"\\[^\s$]|[\^_]")
_SIMPLE = re.compile(r"(?![*/=):,]|<<)[0-9A-Za-z.,;+\-*/=<>()|!:'\[\] ]*[0-9A-Za-z)|!'\]]")
_LETTERS = re.compile(r"[A-Za-z]+")


@dataclass(frozen=True)
class Segment:
    """A part of a text: plain text, or a formula."""

    source: str
    """The part as it is written, with its delimiters."""
    formula: str | None = None
    """The LaTeX between the delimiters, or a box; None for plain text."""
    display: bool = False
    """Whether the formula has a line of its own."""


def segments(text: str) -> list[Segment]:
    r"""Split a text into plain text and formulas. Their sources together are the text.

    >>> [part.formula for part in segments(r"It costs $5 and $7, so $x^2 = 12$ or \(y\).")]
    [None, 'x^2 = 12', None, 'y', None]
    """
    found: list[Segment] = []
    plain = at = 0
    while opener := _OPENER.search(text, at):
        at = opener.end()
        formula = _formula(text, opener.group(), opener.start(), at)
        if formula is None:
            continue
        boxed = opener.group() == BOX
        end = at + len(formula) + (0 if boxed else len(opener.group()))
        if opener.start() > plain:
            found.append(Segment(text[plain : opener.start()]))
        source = text[opener.start() : end]
        found.append(Segment(source, source if boxed else formula.strip(), opener.group() in ("\\[", "$$")))
        plain = at = end
    return [*found, Segment(text[plain:])] if plain < len(text) else found


def contains_mathematics(texts: Iterable[str]) -> bool:
    r"""Return whether one of the texts has a formula.

    >>> contains_mathematics(["Tom pays $5.", r"\(2 + 3 = 5\)"])
    True
    """
    return any(part.formula is not None for text in texts for part in segments(text))


def mathematics_script() -> str:
    """Return the script, with KaTeX. It needs `elements_script` before it."""
    return katex_script() + "\n" + _static("mathematics.js")


def katex_script() -> str:
    """Return KaTeX, as published."""
    return _static("katex/katex.min.js")


def mathematics_style() -> str:
    """Return the style sheet for what browsers do not draw by themselves, such as boxes around answers."""
    return _static("mathematics.css")


def _formula(text: str, opener: str, start: int, at: int) -> str | None:
    """Return what is between an opening delimiter, which ends at `at`, and the next closing one, if it is LaTeX.

    Of a box, return the argument with its braces.
    """
    if opener == BOX:
        return _argument(text, at)
    if opener not in CLOSERS:  # an escaped dollar or backslash
        return None
    end = _closer(text, opener, at)
    if end is None or not 0 < end - at <= MAX_CHARS:
        return None
    content = text[at:end]
    if not content.strip():
        return None
    if opener.startswith("$") and _PROSE.search(_WORDS.sub(" ", content)):
        return None
    if opener != "$":
        return content
    return content if _is_formula(content, text[start - 1 : start], text[end + 1 : end + 2]) else None


def _closer(text: str, opener: str, at: int) -> int | None:
    """Return where the closing delimiter is. A second opening one before it means that there is none."""
    closer = CLOSERS[opener]
    dollars = opener.startswith("$")
    for found in (_DOLLAR if dollars else _ESCAPED).finditer(text, at, at + MAX_CHARS + 2):
        if dollars and found.group() == "$":
            return found.start() if text.startswith(closer, found.start()) else None
        if not dollars and found.group() == closer:
            return found.start()
        if not dollars and found.group() == opener:
            return None
    return None


def _argument(text: str, at: int) -> str | None:
    """Return the argument of a box, with its braces, unless it is a sentence or contains another box."""
    depth = 0
    for found in _BRACE.finditer(text, at, at + MAX_CHARS):
        if found.group() == BOX:
            return None
        depth += {"{": 1, "}": -1}.get(found.group(), 0)
        if depth == 0:
            content = text[at : found.end()]
            inside = content[1:-1]
            return content if inside.strip() and not _PROSE.search(_WORDS.sub(" ", inside)) else None
    return None


def _is_formula(content: str, before: str, after: str) -> bool:
    """Return whether the content of `$...$` is a formula: Pandoc's rule, and then LaTeX or a plain expression."""
    if _EDGE.search(content) or re.match(r"[0-9]", after):
        return False
    if _LATEX.search(content):
        return True
    if re.match(r"[0-9A-Za-z]", before) or not _SIMPLE.fullmatch(content):
        return False
    longest = 1 if " " in content else 3
    return all(len(word) <= (4 if word.isupper() else longest) for word in _LETTERS.findall(content))


def _static(name: str) -> str:
    return files("surefoot.display").joinpath("static").joinpath(name).read_text(encoding="utf-8")
