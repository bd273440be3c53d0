"""Plot the scores of a solution with matplotlib, for notebooks. matplotlib is imported at the first plot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surefoot.display.colour_scale import CORRECT, INCORRECT
from surefoot.display.views import SolutionView
from surefoot.errors import MissingDependencyError

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def new_axes() -> Axes:
    """Return the axes of a new figure of pyplot, which notebooks show."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise MissingDependencyError(
            'A plot needs the package matplotlib. Install it with: pip install "surefoot[report]"'
        ) from error
    axes: Axes = pyplot.subplots(figsize=(6, 3), layout="constrained")[1]
    return axes


def plot_steps(result: SolutionView, *, threshold: float | None = None, axes: Axes | None = None) -> Axes:
    """Plot score against step, with the threshold and the first error. An unscored step is a gap in the line."""
    axes = new_axes() if axes is None else axes
    threshold = result.natural_threshold if threshold is None else threshold
    scores = [float("nan") if step.score is None else step.score for step in result.steps]
    numbers = list(range(1, len(scores) + 1))
    blue, orange = (tuple(channel / 255 for channel in colour) for colour in (CORRECT, INCORRECT))
    axes.plot(numbers, scores, marker="o", color=blue)
    axes.axhline(threshold, color="grey", linestyle="--", linewidth=1, label=f"threshold {threshold:g}")
    error = result.first_error(threshold)
    if error is not None and error >= 0:
        axes.plot(
            [error + 1], [scores[error]], "X", markersize=11, color=orange, label=f"first error: step {error + 1}"
        )
    if result.scale != "log_ratio":
        axes.set_ylim(-0.03 if result.scale == "probability" else -1.05, 1.05)
    axes.set(xlabel="step", ylabel="score", xticks=numbers[:: max(1, len(numbers) // 12)])
    axes.legend(frameon=False)
    return axes
