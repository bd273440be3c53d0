"""Plain-text tables: percentages with one decimal, a dash for undefined values, intervals in brackets.

Cells and notes come from data, so everything goes through `printable`.
"""

from __future__ import annotations

from collections.abc import Sequence

from surefoot.display.terminal import printable

DASH = "-"

Cells = tuple[list[str], list[list[str]]]
"""The header of a table, and its rows."""


def percent(value: float | None, interval: tuple[float, float] | None = None) -> str:
    """Format a fraction as `82.4`, or as `82.4 [79.0-85.6]`."""
    if value is None:
        return DASH
    text = f"{100 * value:.1f}"
    return text if interval is None else f"{text} [{100 * interval[0]:.1f}-{100 * interval[1]:.1f}]"


def decimal(value: float | None, digits: int = 1) -> str:
    """Format a number, or a dash for None."""
    return DASH if value is None else f"{value:.{digits}f}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Align columns: the first to the left, the others to the right."""
    lines = [[printable(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[column]) for row in lines) for column in range(len(header))]

    def align(row: Sequence[str]) -> str:
        first, *rest = row
        cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))]
        return "  ".join(cells).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([align(lines[0]), rule, *map(align, lines[1:])])


def join_sections(sections: Sequence[str], notes: Sequence[str]) -> str:
    """Join titles and tables with blank lines, followed by the notes."""
    # A section may be a table, so its line breaks stay.
    shown = ["\n".join(map(printable, section.split("\n"))) for section in sections]
    return "\n\n".join([*shown, *(["\n".join(f"note: {printable(note)}" for note in notes)] if notes else [])])
