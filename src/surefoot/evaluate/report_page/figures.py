"""The figures of a report, as SVG that follows the page's light or dark theme.

Figures are drawn in placeholder colours, which are then replaced by the page's CSS variables; text stays text. Lines
differ in dashes or markers, not in colour alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from io import StringIO
from typing import Any
from zlib import crc32

from surefoot.core.intervals import Interval
from surefoot.errors import MissingDependencyError
from surefoot.evaluate.reliability import Reliability

# Placeholders for the page's CSS variables, because matplotlib needs real colours.
INK, FAINT, LINE = "#010101", "#020202", "#030303"
COLOURS = ("#040404", "#050505", "#060606", "#070707", "#080808")
VARIABLES = {INK: "--ink", FAINT: "--faint", LINE: "--line"} | {
    code: f"--c{number}" for number, code in enumerate(COLOURS, 1)
}
DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)), (0, (3, 1.5)))
MARKERS = ("o", "s", "^", "D", "v")
POINT_MARKERS = ("*", "P", "X", "D", "v", "o", "s", "^")
BASELINE_DASHES = ((0, (2, 2)), "-")

Points = Mapping[int, float]
"""Accuracy by N."""


@dataclass(frozen=True)
class Line:
    """A named line of a plot."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


@dataclass(frozen=True)
class Key:
    """An entry of a legend outside the figure, whose name may be long."""

    name: str
    svg: str


@dataclass(frozen=True)
class TokenPoint:
    """A named point of a plot over tokens."""

    name: str
    tokens: float
    accuracy: float
    interval: Interval | None


def require() -> None:
    """Raise early if matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            'A report needs the package matplotlib. Install it with: pip install "surefoot[report]"'
        ) from error


def threshold_curves(about: str, curves: Sequence[Line], *, used: float) -> str:
    """Draw metrics against the threshold, and mark the threshold used."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for number, line in enumerate(curves):
            axes.plot(
                line.x,
                line.y,
                color=COLOURS[number % len(COLOURS)],
                linestyle=DASHES[number % len(DASHES)],
                linewidth=1.8,
                label=line.name,
            )
        axes.axvline(used, color=INK, linewidth=1, linestyle=(0, (2, 2)), label=f"used: {used:.3g}")
        _frame(axes, "threshold", "", (curves[0].x[0], curves[0].x[-1]), (0, 1.02))
        _legend(axes, len(curves) + 1)

    return _svg(about, draw)


def histogram(about: str, kinds: Mapping[str, Sequence[float]], *, xlabel: str) -> str:
    """Draw the distribution of the scores of each kind."""
    import numpy as np

    everything = [value for values in kinds.values() for value in values]
    low, high = (0.0, 1.0) if all(0 <= value <= 1 for value in everything) else (min(everything), max(everything))
    edges = np.linspace(low, high if high > low else low + 1.0, 21)

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for number, (name, values) in enumerate(kinds.items()):
            if not values:
                continue
            shares, _ = np.histogram(values, edges)
            axes.stairs(
                shares / len(values),
                edges,
                color=COLOURS[number % len(COLOURS)],
                fill=False,
                linewidth=1.8,
                linestyle=DASHES[number % len(DASHES)],
                label=f"{name} ({len(values):,})",
            )
            axes.stairs(shares / len(values), edges, color=COLOURS[number % len(COLOURS)], fill=True, alpha=0.18)
        _frame(axes, xlabel, "fraction", (edges[0], edges[-1]), None)
        _legend(axes, len(kinds))

    return _svg(about, draw)


def reliability_curve(about: str, found: Reliability) -> str:
    """Draw accuracy against score, and below it the number of steps per bin."""
    full = [each for each in found.bins if each.score is not None and each.accuracy is not None]

    def draw(figure: Any) -> None:
        axes, below = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": (3.2, 1)})
        axes.plot([0, 1], [0, 1], color=FAINT, linewidth=1.2, linestyle=(0, (4, 3)), label="perfectly calibrated")
        for each in full:
            if each.interval is not None:
                axes.plot([each.score] * 2, list(each.interval), color=COLOURS[0], linewidth=1.3, alpha=0.7)
        axes.plot(
            [each.score for each in full],
            [each.accuracy for each in full],
            color=COLOURS[0],
            marker="o",
            markersize=4.5,
            linewidth=1.6,
            label="this model, 95% interval",
        )
        _frame(axes, "", "fraction correct", (0, 1), (0, 1.02))
        axes.set_xlabel("")
        _legend(axes, 2)
        below.bar(
            [each.low for each in found.bins],
            [each.count for each in found.bins],
            width=[each.high - each.low for each in found.bins],
            align="edge",
            color=COLOURS[0],
            alpha=0.55,
            linewidth=0,
        )
        _frame(below, "score", "steps", (0, 1), None)
        below.locator_params(axis="y", nbins=2)

    return _svg(about, draw, height=3.6)


def bars(about: str, rows: Sequence[tuple[str, float, Interval | None]], *, xlabel: str) -> str:
    """Draw horizontal bars with their intervals."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        names = [name for name, _, _ in rows]
        positions = list(range(len(rows)))[::-1]
        axes.barh(positions, [value for _, value, _ in rows], color=COLOURS[0], alpha=0.6, height=0.62)
        for position, (_, _, interval) in zip(positions, rows, strict=True):
            if interval is not None:
                axes.plot(list(interval), [position, position], color=INK, linewidth=1.4)
        _frame(axes, xlabel, "", (0, 1), None)
        axes.set_yticks(positions, names)
        axes.grid(visible=False, axis="y")

    return _svg(about, draw, height=0.9 + 0.27 * len(rows))


def differences(about: str, rows: Sequence[tuple[str, float, Interval | None]]) -> str:
    """Draw differences in percentage points as points with their intervals, around a line at 0."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        positions = list(range(len(rows)))[::-1]
        axes.axvline(0, color=INK, linewidth=1, linestyle=(0, (2, 2)))
        for position, (_, value, interval) in zip(positions, rows, strict=True):
            if interval is not None:
                ends = [100 * interval.low, 100 * interval.high]
                axes.plot(ends, [position, position], color=COLOURS[0], linewidth=2)
            axes.plot([100 * value], [position], color=COLOURS[0], marker="o", markersize=6, linestyle="")
        _frame(axes, "percentage points", "", None, (-0.6, len(rows) - 0.4))
        axes.set_yticks(positions, [name for name, _, _ in rows])
        axes.grid(visible=False, axis="y")

    return _svg(about, draw, height=0.9 + 0.3 * len(rows))


def accuracy_by_n(about: str, methods: Mapping[str, Points], baselines: Mapping[str, Points]) -> str:
    """Draw accuracy against N: one line per method, with baselines in grey."""
    ns = list(next(iter(methods.values())))

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for number, (name, points) in enumerate(methods.items()):
            axes.plot(
                ns,
                list(points.values()),
                color=COLOURS[number % len(COLOURS)],
                linestyle=DASHES[number % len(DASHES)],
                marker=MARKERS[number % len(MARKERS)],
                markersize=4,
                linewidth=1.6,
                label=name,
            )
        low = min(value for points in methods.values() for value in points.values()) - 0.02
        for (name, points), dashes in zip(baselines.items(), BASELINE_DASHES, strict=False):
            values = list(points.values())
            if max(values) > low:  # a baseline far below would squeeze the methods into one line
                axes.plot(ns, values, color=FAINT, linestyle=dashes, linewidth=1.4, label=name)
        axes.set_xscale("log", base=2)
        _frame(axes, "N, solutions to choose from", "accuracy", (ns[0] / 1.1, ns[-1] * 1.1), (low, None))
        axes.set_xticks(ns, [str(n) for n in ns])
        axes.minorticks_off()
        _legend(axes, len(methods) + len(baselines), columns=3)

    return _svg(about, draw)


def accuracy_by_tokens(about: str, curves: Sequence[Line], points: Sequence[TokenPoint]) -> str:
    """Draw accuracy against tokens: samples as lines, searches as points with their intervals.

    The figure has no legend; `token_keys` are its entries.
    """

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for number, line in enumerate(curves):
            axes.plot(line.x, line.y, **_line_style(number))
        for number, point in enumerate(points):
            if point.interval is not None:
                axes.plot([point.tokens] * 2, list(point.interval), color=INK, linewidth=1)
            axes.plot([point.tokens], [point.accuracy], **_point_style(number))
        axes.set_xscale("log")
        _frame(axes, "generated tokens per question (log scale)", "accuracy", None, (0, 1.06))
        axes.xaxis.set_major_locator(_ticks())
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")
        axes.minorticks_off()

    return _svg(about, draw)


def token_keys(curves: Sequence[Line], points: Sequence[TokenPoint]) -> list[Key]:
    """Return the legend of `accuracy_by_tokens`."""
    lines = [Key(line.name, _key([0, 1], _line_style(number))) for number, line in enumerate(curves)]
    return lines + [Key(point.name, _key([0.5], _point_style(number))) for number, point in enumerate(points)]


def _line_style(number: int) -> dict[str, Any]:
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": DASHES[number % len(DASHES)],
        "linewidth": 1.5,
    }


def _point_style(number: int) -> dict[str, Any]:
    marker = POINT_MARKERS[number % len(POINT_MARKERS)]
    return {"color": INK, "marker": marker, "markersize": 8, "linestyle": "", "clip_on": False}


def _key(x: Sequence[float], style: Mapping[str, Any]) -> str:
    """Draw the sample of a legend entry. It is decoration: the name says what it is."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.plot(x, [0] * len(x), **style)
        axes.set_axis_off()

    return _svg(f"key {x} {style}", draw, width=0.4, height=0.18, decoration=True)


def _ticks() -> Any:
    """Ticks of a logarithmic axis that do not crowd over one decade and do not vanish over less."""
    from matplotlib.ticker import LogLocator

    return LogLocator(base=10, subs=(1.0, 2.0, 5.0), numticks=8)


def _frame(
    axes: Any,
    xlabel: str,
    ylabel: str,
    xlim: tuple[float, float] | None,
    ylim: tuple[float | None, float | None] | None,
) -> None:
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    if xlim is not None:
        axes.set_xlim(*xlim)
    if ylim is not None:
        axes.set_ylim(*ylim)
    axes.grid(visible=True, color=LINE, linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _legend(axes: Any, entries: int, columns: int = 2) -> None:
    """Place the legend above the plot, where it hides nothing."""
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1.01, 1, 0.1),
        mode=None,
        ncols=min(entries, columns),
        frameon=False,
        borderaxespad=0,
        handlelength=2.2,
        columnspacing=1.4,
        fontsize=9,
    )


def _svg(
    about: str,
    draw: Callable[[Any], None],
    *,
    width: float = 4.5,
    height: float = 3.2,
    decoration: bool = False,
) -> str:
    """Draw on a new figure, without the global state of pyplot. A decoration is hidden from screen readers."""
    import matplotlib
    from matplotlib.figure import Figure

    style = {
        "svg.fonttype": "none",
        "svg.hashsalt": "surefoot",
        "font.size": 9.5,
        "text.parse_math": False,  # names in data may contain dollar signs
        "text.color": INK,
        "axes.edgecolor": FAINT,
        "axes.labelcolor": INK,
        "xtick.color": FAINT,
        "ytick.color": FAINT,
        "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
    }
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(figure)
        stream = StringIO()
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _tidy(
        stream.getvalue(), about, 'aria-hidden="true"' if decoration else f'role="img" aria-label="{escape(about)}"'
    )


def _tidy(text: str, about: str, attributes: str) -> str:
    """Reduce the SVG to the drawing, with the page's colours and fonts and with ids unique to the page."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"font: ([\d.]+px) [^;\"]+", r"font-size: \1", text)
    mark = f"f{crc32(about.encode()):08x}-"
    text = re.sub(r"\bid=\"", f'id="{mark}', text)
    text = re.sub(r"url\(#", f"url(#{mark}", text)
    text = re.sub(r"href=\"#", f'href="#{mark}', text)
    for code, variable in VARIABLES.items():
        text = text.replace(code, f"var({variable})")
    text = re.sub(r"\s*\n\s*", "\n", text)
    return re.sub(
        r"<svg [^>]*?viewBox=\"([^\"]+)\"[^>]*>",
        lambda found: f'<svg xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="{found.group(1)}" {attributes}>',
        text,
        count=1,
    )
