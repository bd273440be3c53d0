"""What a report shows: cards, figures, tables, and the solutions one by one.

The rule: plain data, made by one function a benchmark (`processbench.py`, `prmbench.py`, `best_of_n.py` beside this
file) and laid out by `page.py`. Texts are raw here and escaped where they become HTML; only `svg` and `Entry.html` are
HTML already.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from surefoot.core.result import Scale
from surefoot.evaluate.intervals import Interval
from surefoot.evaluate.reliability import Reliability
from surefoot.evaluate.report import figures
from surefoot.evaluate.tables import percent, reliability_rows

KINDS = (("missed", "missed errors"), ("alarm", "false alarms"), ("right", "right"), ("unscored", "unscored"))
"""What a labelled solution may turn out to be: the filters of the page."""


def thresholds(scores: Iterable[float], points: int, scale: Scale, used: float) -> list[float]:
    """Where a curve over thresholds is drawn.

    For probabilities from 0 to 1, and further where scores lie further; else over the scores and the threshold used.
    """
    seen = [*((0.0, 1.0) if scale == "probability" else (used,)), *scores]
    low, high = min(seen), max(seen)
    if low == high:
        high = low + 1.0
    return [low + (high - low) * at / points for at in range(points + 1)]


@dataclass(frozen=True)
class Card:
    """A headline number."""

    label: str
    value: str
    detail: str = ""
    """Its interval and how many it speaks of, a line each."""
    beside: str = ""
    """What others published."""


@dataclass(frozen=True)
class Table:
    """Columns of texts; the first to the left, the others to the right."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Panel:
    """A figure, a table, or both, under a title, with a sentence on how to read it."""

    title: str
    about: str = ""
    svg: str = ""
    table: Table | None = None
    wide: bool = False
    folded: bool = False
    """Whether the table waits behind a click."""


@dataclass(frozen=True)
class Entry:
    """One solution, or one problem, of the list."""

    html: str
    kind: str
    """The filter it belongs to."""
    group: str
    """Its generator or class."""
    split: str
    badness: float
    """The worst come first."""


@dataclass(frozen=True)
class Content:
    """Everything on the page."""

    title: str
    model: str
    facts: Sequence[tuple[str, str]]
    cards: Sequence[Card]
    panels: Sequence[Panel]
    noun: str
    """What the list is a list of, in the plural."""
    kinds: Sequence[tuple[str, str]]
    """The filters: their key and what the button says."""
    group_name: str
    entries: Sequence[Entry]
    notes: Sequence[str] = ()
    source: str = ""
    """Where published numbers are from."""


def card(
    label: str, value: float | None, interval: Interval | None, total: str = "", published: float | None = None
) -> Card:
    """A share as a card."""
    between = "" if interval is None else f"{100 * interval.low:.1f} to {100 * interval.high:.1f} (95%)"
    return Card(
        label,
        "not defined" if value is None else percent(value),
        "\n".join(part for part in (between, total) if part),
        "" if published is None else f"published {published:.1f}",
    )


def calibration_panel(found: Reliability | None) -> list[Panel]:
    """The reliability curve with its table, if there is one."""
    if found is None:
        return []
    head, rows = reliability_rows(found)
    return [
        Panel(
            "Reliability",
            f"Of the steps with a score of 0.8, are 80% right? Expected calibration error (ECE) "
            f"{percent(found.ece, found.ece_interval)} percent, log-loss {found.log_loss:.3f}, over {found.steps:,} "
            "steps up to and including the first error; behind it no step has a truth.",
            svg=figures.reliability_curve("Share of right steps against the score", found),
            table=Table(head, rows),
            folded=True,
        )
    ]


def calibration_card(found: Reliability | None) -> list[Card]:
    """The expected calibration error as a headline."""
    if found is None:
        return []
    return [card("calibration error (ECE)", found.ece, found.ece_interval, f"{found.steps:,} steps")]
