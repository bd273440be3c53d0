"""Lay out the content of a report as one self-contained HTML page.

A content security policy allows no script but the page's own, identified by its hash, and no network access. The
solutions are embedded as JSON and rendered a few at a time, so that a page with thousands of them stays fast.
"""

from __future__ import annotations

import json
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files

from surefoot._version import __version__
from surefoot.display.colour_scale import BUCKETS, colour
from surefoot.display.html import class_names, render, style_sheet
from surefoot.evaluate.report_page.content import Content, definitions

PACKAGE = "surefoot.evaluate.report_page"


def page(content: Content) -> str:
    """Render the whole page."""
    script = _static("page.js")
    digest = b64encode(sha256(script.encode()).digest()).decode()
    counts = {kind.key: sum(entry.kind == kind.key for entry in content.entries) for kind in content.kinds}
    text = render(
        PACKAGE,
        "page.html.j2",
        class_names,
        content=content,
        policy=f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:",
        style=style_sheet() + "\n" + _static("page.css"),
        script=script,
        figures=[panel for panel in content.panels if panel.svg],
        tables=[panel for panel in content.panels if not panel.svg],
        groups=sorted({entry.group for entry in content.entries if entry.group}),
        splits=sorted({entry.split for entry in content.entries if entry.split}),
        filters=[
            ("", "all", len(content.entries)),
            *((kind.key, kind.name, counts[kind.key]) for kind in content.kinds if counts[kind.key]),
        ],
        definitions=definitions(kind for kind in content.kinds if counts[kind.key]),
        legend=[colour(number)[0] for number in range(BUCKETS)],
        data=_data(content),
        version=__version__,
    )
    return text + "\n"


def _static(name: str) -> str:
    return files(PACKAGE).joinpath(name).read_text(encoding="utf-8")


def _data(content: Content) -> str:
    """Return the entries as JSON that cannot end its script element: worst first, each with its index in the data."""
    order = sorted(range(len(content.entries)), key=lambda at: -content.entries[at].severity)
    rows = []
    for at in order:
        entry = content.entries[at]
        html = render(PACKAGE, "entry.html.j2", class_names, entry=entry, scale=content.scale)
        rows.append([at, entry.kind, entry.group, entry.split, html])
    return json.dumps(rows, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
