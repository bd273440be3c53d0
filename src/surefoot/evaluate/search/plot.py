"""Plot a comparison of searches with matplotlib, for notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surefoot.display.plots import new_axes
from surefoot.evaluate.report_page.figures import DASHES, POINT_MARKERS
from surefoot.evaluate.search.report import token_series
from surefoot.evaluate.search.result import SearchComparison

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_searches(comparison: SearchComparison, axes: Axes | None = None) -> Axes:
    """Plot accuracy against generated tokens per question, and return the axes: the figure of the report.

        plot_searches(compare_searches(records))

    Needs `pip install "surefoot[report]"`.
    """
    axes = new_axes() if axes is None else axes
    lines, points = token_series(comparison)
    for number, line in enumerate(lines):
        axes.plot(line.x, line.y, linestyle=DASHES[number % len(DASHES)], label=line.name)
    for number, point in enumerate(points):
        if point.interval is not None:
            axes.plot([point.tokens] * 2, list(point.interval), color="grey", linewidth=1)
        marker = POINT_MARKERS[number % len(POINT_MARKERS)]
        axes.plot([point.tokens], [point.accuracy], linestyle="", marker=marker, markersize=8, label=point.name)
    axes.set_xscale("log")
    axes.set(xlabel="generated tokens per question (log scale)", ylabel="accuracy", ylim=(0, 1.06))
    axes.legend(frameon=False, fontsize="small")
    return axes
