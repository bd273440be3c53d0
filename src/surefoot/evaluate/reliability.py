"""Reliability of scores: are 80% of the steps with a score of 0.8 correct?

Only steps with a known label count: every step of a correct solution, and the steps of an erroneous one up to and
including the first error. Intervals take into account that steps of one solution are alike: the bootstrap resamples
whole solutions, and Wilson's intervals use the effective number of steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from surefoot.core.calibration import EDGE
from surefoot.core.intervals import Bootstrap, Interval, Numbers
from surefoot.display.plots import new_axes
from surefoot.display.tables import Cells, decimal, percent, table
from surefoot.errors import OptionError
from surefoot.evaluate.scoring import are_probabilities, nonblank_steps

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LabelledScore = tuple[float, bool]
"""The score of a step, and whether the step is correct."""

BinKind = Literal["width", "mass"]
"""Bins of equal width, or of equal numbers of steps (as far as equal scores stay together)."""


@dataclass(frozen=True)
class Bin:
    """Steps with scores from `low` (inclusive) to `high` (exclusive, unless it is 1)."""

    low: float
    high: float
    count: int
    score: float | None
    """The mean score; None for an empty bin."""
    accuracy: float | None
    """The fraction of correct steps; None for an empty bin."""
    interval: Interval | None
    """The confidence interval of the accuracy, by Wilson's formula."""


@dataclass(frozen=True)
class Reliability:
    """The reliability curve and its summary numbers."""

    bins: tuple[Bin, ...]
    kind: BinKind
    ece: float
    """Expected calibration error: the mean distance between a bin's mean score and its accuracy, weighted by steps."""
    ece_interval: Interval | None
    log_loss: float
    """In nats. Scores are clipped to 1e-7 from 0 and 1."""
    brier: float
    """The mean squared distance between a score and its label, which is 1 for a correct step and 0 for an error."""
    steps: int
    solutions: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)

    def plot(self, axes: Axes | None = None) -> Axes:
        """Plot accuracy against score with matplotlib, and return the axes. Needs `pip install "surefoot[report]"`."""
        axes = new_axes() if axes is None else axes
        full = [
            (each.score, each.accuracy, each.interval)
            for each in self.bins
            if each.score is not None and each.accuracy is not None
        ]
        axes.plot([0, 1], [0, 1], color="grey", linestyle="--", linewidth=1, label="perfectly calibrated")
        for score, _, interval in full:
            if interval is not None:
                axes.plot([score] * 2, list(interval), color="C0", alpha=0.7)
        axes.plot([each[0] for each in full], [each[1] for each in full], "o-", color="C0", label="this model")
        axes.set(xlabel="score", ylabel="fraction correct", xlim=(0, 1), ylim=(0, 1.02))
        axes.legend(frameon=False)
        return axes


def labelled_scores(steps: Sequence[str], scores: Sequence[float | None], label: int) -> list[LabelledScore]:
    """Return the scored steps with a known label. `label` is the index of the first incorrect step, or -1."""
    return [
        (score, at != label)
        for at, score in nonblank_steps(steps, scores)
        if score is not None and (label == -1 or at <= label)
    ]


def reliability(
    solutions: Sequence[Sequence[LabelledScore]],
    *,
    bins: int = 10,
    kind: BinKind = "width",
    bootstrap: Bootstrap | None = None,
) -> Reliability | None:
    """Compute the reliability curve; None if there is no step, or if a score is not a probability.

    solutions = [evaluate.labelled_scores(row.steps, row.scores, row.label) for row in rows]
    print(evaluate.reliability(solutions, bins=20).ece)
    """
    if bins < 1:
        raise OptionError(f"bins={bins} is invalid. Pass a number above 0.")
    if kind not in ("width", "mass"):
        raise OptionError(f"kind={kind!r} is unknown. Choose 'width' or 'mass'.")
    solutions = [solution for solution in solutions if solution]
    if not solutions or not are_probabilities(score for solution in solutions for score, _ in solution):
        return None
    scores = np.array([score for solution in solutions for score, _ in solution])
    correct = np.array([correct for solution in solutions for _, correct in solution], dtype=np.float64)
    edges = _edges(scores, bins, kind)
    counts = len(edges) - 1
    # One row per solution: for every bin the number of steps, the sum of their scores, and the number of correct ones.
    owner = np.repeat(np.arange(len(solutions)), [len(solution) for solution in solutions])
    bin_of = np.searchsorted(edges[1:-1], scores, side="right")
    table = np.zeros((len(solutions), 3, counts))
    for row, values in enumerate((np.ones_like(scores), scores, correct)):
        np.add.at(table[:, row], (owner, bin_of), values)
    draws, whole = bootstrap or Bootstrap(0), table.sum(axis=0)
    drawn = draws.resampled_sums("reliability", table.reshape(len(solutions), -1)).reshape(-1, 3, counts)
    count, score, hits = whole
    return Reliability(
        bins=tuple(
            Bin(
                low=float(edges[at]),
                high=float(edges[at + 1]),
                count=int(count[at]),
                score=float(score[at] / count[at]) if count[at] else None,
                accuracy=float(hits[at] / count[at]) if count[at] else None,
                interval=draws.clustered_wilson(table[:, 2, at], table[:, 0, at]),
            )
            for at in range(counts)
        ),
        kind=kind,
        ece=float(np.abs(_gaps(whole[None])).sum()),
        ece_interval=_ece_interval(_gaps(whole[None])[0], _gaps(drawn), draws) if draws.draws else None,
        log_loss=log_loss(scores, correct),
        brier=float(((scores - correct) ** 2).mean()),
        steps=len(scores),
        solutions=len(solutions),
    )


def log_loss(scores: Numbers, correct: Numbers) -> float:
    """Return the mean negative log-likelihood of the labels, in nats."""
    safe = np.clip(scores, EDGE, 1.0 - EDGE)
    return float(-np.where(correct > 0.5, np.log(safe), np.log1p(-safe)).mean())


def reliability_cells(found: Reliability) -> Cells:
    """Return the table of the reliability curve: one row per bin."""
    rows = [
        [
            f"{each.low:.2f}-{each.high:.2f}",
            decimal(each.score, 3),
            percent(each.accuracy, each.interval),
            str(each.count),
        ]
        for each in found.bins
    ]
    return ["scores", "mean score", "correct", "steps"], rows


def reliability_sections(found: Reliability | None) -> list[str]:
    """Return the reliability part of a benchmark's tables; nothing if it is undefined."""
    if found is None:
        return []
    title = f"Calibration: ECE {percent(found.ece, found.ece_interval)}, log-loss {found.log_loss:.3f}"
    return [f"{title}, {found.steps} steps up to the first error", table(*reliability_cells(found))]


def _edges(scores: Numbers, bins: int, kind: BinKind) -> Numbers:
    # Not linspace, whose 0.3 is slightly above the score 0.3.
    fractions = np.arange(bins + 1) / bins
    if kind == "width":
        return fractions
    inner = np.quantile(scores, fractions[1:-1])
    return np.unique(np.concatenate([[0.0], inner, [1.0]]))


def _gaps(sums: Numbers) -> Numbers:
    """Return, per draw and bin, the sum of scores minus the number of correct steps, over all steps.

    The ECE is the sum of their absolute values.
    """
    gaps: Numbers = (sums[:, 1] - sums[:, 2]) / sums[:, 0].sum(axis=1, keepdims=True)
    return gaps


def _ece_interval(gaps: Numbers, drawn: Numbers, draws: Bootstrap) -> Interval | None:
    """Return an interval that covers the true ECE about as often as its level says.

    Noise only ever adds to an ECE, and a draw contains it twice: the percentile interval alone lies too high, and never
    contains the 0 of perfectly calibrated scores. So the interval also covers the percentile interval mirrored at the
    estimate, and 0 if the gaps are no larger than noise.
    """
    ece = float(np.abs(gaps).sum())
    percentile = draws.interval(np.abs(drawn).sum(axis=1))
    if percentile is None:
        return None
    noise = float(np.quantile(np.abs(drawn - gaps).sum(axis=1), draws.level))
    low = 0.0 if ece <= noise else min(percentile.low, 2.0 * ece - percentile.high)
    return Interval(max(low, 0.0), min(max(percentile.high, 2.0 * ece - percentile.low), 1.0))
