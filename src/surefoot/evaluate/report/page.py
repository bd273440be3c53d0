"""A report's content laid out as one HTML page.

The rule: self-contained, and closed: a content security policy lets no script run but the page's own, known by its
hash, and lets nothing be loaded. Solutions are HTML made in `content`, kept as JSON and put on the page a few at a
time, so that thousands of them scroll smoothly.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from importlib.resources import files

from surefoot._version import __version__
from surefoot.display.html import BUCKETS, clean, colour, escape, style_sheet
from surefoot.evaluate.report.content import Card, Content, Panel, Table


def page(content: Content) -> str:
    """The whole file."""
    here = files("surefoot.evaluate.report")
    script = here.joinpath("page.js").read_text(encoding="utf-8")
    style = style_sheet() + "\n" + here.joinpath("page.css").read_text(encoding="utf-8")
    allowed = b64encode(sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{allowed}'; img-src data:"
    title = f"{content.title}: {content.model}"
    figures = [panel for panel in content.panels if panel.svg]
    tables = [panel for panel in content.panels if not panel.svg]
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{escape(title)}</title><style>{style}</style></head><body>",
        '<a class="skip" href="#list">Skip to the list</a>',
        _header(content),
        "<main>",
        _cards(content.cards),
        _notes(content),
        _panels("Figures", figures),
        _panels("Tables", tables),
        _list(content),
        "</main>",
        f"<footer>{escape(content.source)} Made by surefoot {escape(__version__)}.</footer>",
        f'<script type="application/json" id="data">{_data(content)}</script>',
        f"<script>{script}</script></body></html>\n",
    ]
    return "\n".join(parts)


def _header(content: Content) -> str:
    facts = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in content.facts)
    return (
        f'<header class="top"><div class="name"><p class="kicker">{escape(content.title)}</p>'
        f"<h1>{escape(content.model)}</h1></div><dl>{facts}</dl>"
        '<button id="theme" type="button" title="Light or dark (t)">◐ <span>theme</span></button></header>'
    )


def _cards(cards: Sequence[Card]) -> str:
    return '<section class="cards" aria-label="Headline numbers">' + "".join(map(_card, cards)) + "</section>"


def _card(card: Card) -> str:
    beside = f'<p class="beside">{escape(card.beside)}</p>' if card.beside else ""
    small = " small" if len(card.value) > 6 else ""
    return (
        f'<div class="card"><p class="label">{escape(card.label)}</p><p class="value{small}">{escape(card.value)}</p>'
        f'<p class="detail">{escape(card.detail)}</p>{beside}</div>'
    )


def _notes(content: Content) -> str:
    if not content.notes:
        return ""
    return f'<ul class="notes">{"".join(f"<li>{escape(note)}</li>" for note in content.notes)}</ul>'


def _panels(name: str, panels: Sequence[Panel]) -> str:
    # Three in a row, unless the last would then stand alone.
    two = " two" if len(panels) % 3 == 1 else ""
    return f'<section class="panels{two}" aria-label="{escape(name)}">{"".join(map(_panel, panels))}</section>'


def _panel(panel: Panel) -> str:
    table = "" if panel.table is None else _table(panel.table)
    if panel.folded:
        table = f"<details><summary>as a table</summary>{table}</details>"
    about = f'<p class="about">{escape(panel.about)}</p>' if panel.about else ""
    wide = " wide" if panel.wide else ""
    return f'<section class="panel{wide}"><h2>{escape(panel.title)}</h2>{about}{panel.svg}{table}</section>'


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.head)
    rows = "".join(
        f'<tr><th scope="row">{escape(first)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in rest)}</tr>'
        for first, *rest in table.rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _list(content: Content) -> str:
    counts = {key: sum(entry.kind == key for entry in content.entries) for key, _ in content.kinds}
    buttons = [("", "all", len(content.entries)), *((key, name, counts[key]) for key, name in content.kinds)]
    shown = "".join(
        f'<button type="button" data-kind="{escape(key)}" aria-pressed="{"true" if not key else "false"}">'
        f"{escape(name)} <b>{count:,}</b></button>"
        for key, name, count in buttons
        if count or not key
    )
    selects = _select("group", content.group_name, [entry.group for entry in content.entries])
    selects += _select("split", "split", [entry.split for entry in content.entries])
    return (
        f'<section id="list" class="list" aria-label="{escape(content.noun)}" tabindex="-1">'
        f'<h2>{escape(content.noun.capitalize())}</h2><div class="tools">'
        f'<label class="search"><span>Search</span><input id="search" type="search" autocomplete="off" '
        f'placeholder="words in problems and steps (/)"></label>{selects}'
        '<label><span>Order</span><select id="order"><option value="bad">worst first</option>'
        '<option value="file">as in the data</option></select></label>'
        f'<div class="kinds" role="group" aria-label="Filter">{shown}</div></div>{_legend()}'
        '<nav class="pager" aria-label="Pages"><button id="prev" type="button">← previous</button>'
        '<span id="count" role="status" aria-live="polite"></span><button id="next" type="button">next →</button></nav>'
        '<div id="items"></div>'
        "<noscript><p>The list needs JavaScript. All numbers above do not.</p></noscript></section>"
    )


def _legend() -> str:
    chips = "".join(f'<i style="background:{colour(number)[0]}"></i>' for number in range(BUCKETS))
    return f'<p class="legend" aria-hidden="true">score 0 <span>{chips}</span> 1</p>'


def _select(key: str, name: str, values: Sequence[str]) -> str:
    there = sorted({value for value in values if value})
    if len(there) < 2:
        return ""
    options = "".join(f'<option value="{escape(value)}">{escape(value)}</option>' for value in there)
    return (
        f'<label><span>{escape(name.capitalize())}</span><select id="{key}"><option value="">all</option>{options}'
        "</select></label>"
    )


def _data(content: Content) -> str:
    """The list as JSON that cannot end the script element it stands in. Worst first; `at` is the place in the data."""
    order = sorted(range(len(content.entries)), key=lambda at: -content.entries[at].badness)
    rows = [
        [at, entry.kind, clean(entry.group), clean(entry.split), entry.html]
        for at in order
        for entry in (content.entries[at],)
    ]
    return json.dumps(rows, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
