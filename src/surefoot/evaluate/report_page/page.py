"""Lay out the content of a report as one self-contained HTML page.

A content security policy allows no script but the page's own, identified by its hash, and no network access. The
solutions are embedded as JSON and rendered a few at a time, so that a page with thousands of them stays fast.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from importlib.resources import files
from itertools import chain
from typing import Any

from surefoot._version import __version__
from surefoot.display.colour_scale import BUCKETS, themed_colour
from surefoot.display.html import class_names, render, style_sheet
from surefoot.display.mathematics import contains_mathematics, mathematics_script, mathematics_style
from surefoot.display.page_files import elements_script, scrolling_style, theme_script
from surefoot.evaluate.report_page.content import Content, definitions

PACKAGE = "surefoot.evaluate.report_page"


def page(content: Content) -> str:
    """Render the page of a benchmark, whose list shows solutions."""
    counts = {kind.key: sum(entry.kind == kind.key for entry in content.entries) for kind in content.kinds}
    return lay_out(
        "page.html.j2",
        content,
        scripts=[static("page.js")],
        groups=sorted({entry.group for entry in content.entries if entry.group}),
        splits=sorted({entry.split for entry in content.entries if entry.split}),
        filters=[
            ("", "all", len(content.entries)),
            *((kind.key, kind.name, counts[kind.key]) for kind in content.kinds if counts[kind.key]),
        ],
        definitions=definitions(kind for kind in content.kinds if counts[kind.key]),
        data=_data(content),
    )


def lay_out(
    template: str,
    content: Content,
    *,
    scripts: Sequence[str],
    styles: Sequence[str] = (),
    texts: Iterable[str] = (),
    **context: Any,
) -> str:
    """Render a template that extends `shell.html.j2`. Its list and its scripts are what makes pages differ.

    `texts` are those that scripts show in addition to the entries. KaTeX is embedded only if a text has a formula.
    """
    formulas = contains_mathematics(chain(_texts(content), texts))
    parts = [elements_script(), *([mathematics_script()] if formulas else []), theme_script()]
    script = "".join([*parts, static("list.js"), *scripts])
    digest = b64encode(sha256(script.encode()).digest()).decode()
    text = render(
        PACKAGE,
        template,
        class_names,
        content=content,
        policy=f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:",
        style="\n".join(
            [
                style_sheet(),
                scrolling_style(),
                static("page.css"),
                *([mathematics_style()] if formulas else []),
                *styles,
            ]
        ),
        script=script,
        figures=[panel for panel in content.panels if panel.svg],
        tables=[panel for panel in content.panels if not panel.svg],
        legend=[themed_colour(number)[0] for number in range(BUCKETS)],
        version=__version__,
        **context,
    )
    return text + "\n"


def static(name: str) -> str:
    """Return the text of a file of this package."""
    return files(PACKAGE).joinpath(name).read_text(encoding="utf-8")


def embedded_json(data: object) -> str:
    """Return JSON that cannot end its script element, nor start a comment in it."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def _texts(content: Content) -> Iterator[str]:
    """Yield the problems and steps of the entries."""
    for entry in content.entries:
        yield entry.problem
        yield from (step.text for section in entry.sections for step in section.steps)


def _data(content: Content) -> str:
    """Return the entries: worst first, each with its index in the data."""
    order = sorted(range(len(content.entries)), key=lambda at: -content.entries[at].severity)
    rows = []
    for at in order:
        entry = content.entries[at]
        html = render(PACKAGE, "entry.html.j2", class_names, entry=entry, scale=content.scale)
        rows.append([at, entry.kind, entry.group, entry.split, html])
    return embedded_json(rows)
