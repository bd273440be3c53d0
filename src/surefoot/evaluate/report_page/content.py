"""The content of a report as plain data: cards, figures, tables, and the solutions one by one.

Every benchmark builds it in its module `report`; `page` lays it out. Texts are unescaped here; only `svg` is markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from surefoot.core.intervals import Interval
from surefoot.display.html import StepItem
from surefoot.display.tables import DASH, Cells, percent
from surefoot.evaluate.baselines import Baseline
from surefoot.evaluate.baselines import about as about_baselines
from surefoot.evaluate.reliability import Reliability, reliability_cells
from surefoot.evaluate.report_page import figures


@dataclass(frozen=True)
class Kind:
    """A kind of entry, which is a filter of the list."""

    key: str
    name: str
    """In the plural."""
    definition: str
    """Which entries are of this kind: the end of a sentence."""


def definitions(kinds: Iterable[Kind]) -> str:
    """Return one sentence per kind that says what it means."""
    return " ".join(f"{kind.name[:1].upper()}{kind.name[1:]}: {kind.definition}." for kind in kinds)


def thresholds(scores: Iterable[float], points: int, scale: str, used: float) -> list[float]:
    """Return the thresholds at which a curve is drawn.

    They cover the scores and, for probabilities, 0 to 1; for other scales, the threshold used.
    """
    covered = [*((0.0, 1.0) if scale == "probability" else (used,)), *scores]
    low, high = min(covered), max(covered)
    if low == high:
        high = low + 1.0
    return [low + (high - low) * at / points for at in range(points + 1)]


@dataclass(frozen=True)
class Card:
    """A headline number."""

    label: str
    value: str
    detail: str = ""
    """Its interval and its sample size, one line each."""
    beside: str = ""
    """The published number."""


@dataclass(frozen=True)
class Table:
    """A table of texts: the first column is left-aligned, the others right-aligned."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Panel:
    """A figure, a table, or both, with a title and a sentence on how to read it."""

    title: str
    about: str = ""
    svg: str = ""
    keys: Sequence[figures.Key] = ()
    """The legend of the figure, below it."""
    table: Table | None = None
    wide: bool = False
    folded: bool = False
    """Whether the table is collapsed."""
    dash: str = "the number does not apply, or there is nothing to compute it from"
    """Why a number of the table may be missing: the end of a sentence, shown if a cell is a dash."""

    @property
    def undefined(self) -> str:
        """Return what a dash in the table means, or nothing if it has none."""
        cells = () if self.table is None else (cell for row in self.table.rows for cell in row[1:])
        return f"A dash: not defined, because {self.dash}." if DASH in cells else ""


@dataclass(frozen=True)
class ScorerChip:
    """The score that one of several scorers gives a step."""

    letter: str
    score: float | None
    scale: str


@dataclass(frozen=True)
class ComparedStep:
    """A step with the scores of several scorers."""

    text: str
    chips: Sequence[ScorerChip]
    label: str = ""
    """A filled flag: the error that the data set states."""
    predictions: Sequence[str] = ()
    """Outlined flags: the scorers that predict an error here."""


@dataclass(frozen=True)
class Section:
    """The steps of one solution."""

    steps: Sequence[StepItem]
    reason: str | None = None
    """Why a step has no score."""
    title: str = ""
    compared: Sequence[ComparedStep] = ()
    """The steps with the scores of several scorers, instead of `steps`."""


@dataclass(frozen=True)
class Entry:
    """One solution, or one problem, of the list."""

    kind: str
    """The filter it belongs to."""
    badge: str
    """Its outcome."""
    facts: str
    problem: str
    sections: Sequence[Section]
    severity: float
    """Entries with a higher severity come first."""
    verdict: str = ""
    group: str = ""
    """Its generator or class."""
    split: str = ""


@dataclass(frozen=True)
class Content:
    """Everything on the page."""

    title: str
    model: str
    facts: Sequence[tuple[str, str]]
    cards: Sequence[Card]
    panels: Sequence[Panel]
    noun: str
    """What the entries are, in the plural."""
    kinds: Sequence[Kind]
    """The filters."""
    group_name: str
    entries: Sequence[Entry]
    scale: str
    notes: Sequence[str] = ()
    source: str = ""
    """The source of the published numbers."""
    order: str = "worst first"
    """How the list is ordered at first."""
    made: Mapping[str, str] = field(default_factory=dict)
    """How the report was made: see `evaluate.provenance`."""


def card(
    label: str,
    value: float | None,
    interval: Interval | None,
    total: str = "",
    published: float | None = None,
    reason: str = "",
) -> Card:
    """Build a card from a fraction. `reason` says why it is not defined, if it is None."""
    between = "" if interval is None else f"{100 * interval.low:.1f} to {100 * interval.high:.1f} (95%)"
    return Card(
        label,
        "not defined" if value is None else percent(value),
        "\n".join(part for part in (between, reason if value is None else "", total) if part),
        "" if published is None else f"published {published:.1f}",
    )


def step_item(
    step: str, score: float | None, *, label: str = "", prediction: str = "", after: bool = False
) -> StepItem:
    """Build a step of an entry. A blank step never has a score."""
    placeholder = "no score" if step.strip() else "blank"
    return StepItem(step, score, placeholder=placeholder, label=label, prediction=prediction, after=after)


def baseline_panel(baselines: Sequence[Baseline], cells: Cells, dash: str = Panel.dash) -> list[Panel]:
    """Build the panel of the model and its baselines, if there are any."""
    if not baselines:
        return []
    about = f"What is reached without reading a solution. {about_baselines(baselines)}"
    return [Panel("Baselines", about, table=Table(*cells), wide=True, dash=dash)]


def calibration_panel(found: Reliability | None) -> list[Panel]:
    """Build the panel of the reliability curve, if there is one."""
    if found is None:
        return []
    return [
        Panel(
            "Reliability",
            "Are 80% of the steps with a score of 0.8 correct? Expected calibration error (ECE) in percent: "
            f"{percent(found.ece, found.ece_interval)}. Log-loss: {found.log_loss:.3f}. Over {found.steps:,} steps up "
            "to and including the first error; later steps have no label.",
            svg=figures.reliability_curve("Fraction of correct steps against score", found),
            table=Table(*reliability_cells(found)),
            folded=True,
        )
    ]


def calibration_card(found: Reliability | None) -> list[Card]:
    """Build the card of the expected calibration error, if there is one."""
    if found is None:
        return []
    return [card("calibration error (ECE)", found.ece, found.ece_interval, f"{found.steps:,} steps")]
