"""Are the scores probabilities: of the steps with a score of 0.8, are 80% right?

The rule: only steps whose truth is known count: every step of a correct solution, and of an erroneous one the steps up
to and including the first error. What is drawn again for an interval is a solution, with all its steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from surefoot.core.calibration import EDGE
from surefoot.errors import OptionError
from surefoot.evaluate.intervals import Bootstrap, Interval, Numbers, ratio
from surefoot.evaluate.scoring import judged

Known = tuple[float, bool]
"""The score of a step, and whether the step is right."""

BinKind = Literal["width", "mass"]
"""Bins of equal width, or with the same number of steps in each (as far as equal scores stay together)."""


@dataclass(frozen=True)
class Bin:
    """Steps with scores from `low` (included) to `high` (not included, unless it is 1)."""

    low: float
    high: float
    count: int
    score: float | None
    """The mean score; None in an empty bin."""
    right: float | None
    """The share of right steps; None in an empty bin."""
    interval: Interval | None
    """Of that share."""


@dataclass(frozen=True)
class Reliability:
    """The reliability curve and the numbers made of it."""

    bins: tuple[Bin, ...]
    kind: BinKind
    ece: float
    """Expected calibration error: the mean distance of a bin's score from its share of right steps, by steps."""
    ece_interval: Interval | None
    log_loss: float
    """In nats. A score nearer than 1e-7 to 0 or 1 is taken as this far away."""
    steps: int
    solutions: int

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def known_steps(steps: Sequence[str], scores: Sequence[float | None], label: int) -> list[Known]:
    """The scored steps of a solution whose truth is known. `label` is its first wrong step, or -1."""
    return [
        (score, at != label)
        for at, score in judged(steps, scores)
        if score is not None and (label == -1 or at <= label)
    ]


def are_probabilities(scores: Iterable[float | None]) -> bool:
    """Whether every score lies in 0..1; one that is missing says nothing."""
    return all(score is None or 0.0 <= score <= 1.0 for score in scores)


def reliability(
    solutions: Sequence[Sequence[Known]],
    *,
    bins: int = 10,
    kind: BinKind = "width",
    bootstrap: Bootstrap | None = None,
) -> Reliability | None:
    """The curve over the steps of these solutions; None when there is no step, or a score is no probability."""
    if bins < 1:
        raise OptionError(f"bins={bins} hold nothing. Give a number above 0.")
    if kind not in ("width", "mass"):
        raise OptionError(f"kind={kind!r} is not offered. Choose 'width' or 'mass'.")
    solutions = [solution for solution in solutions if solution]
    if not solutions or not are_probabilities(score for solution in solutions for score, _ in solution):
        return None
    scores = np.array([score for solution in solutions for score, _ in solution])
    right = np.array([right for solution in solutions for _, right in solution], dtype=np.float64)
    edges = _edges(scores, bins, kind)
    counts = len(edges) - 1
    # One row a solution: in every bin the steps, the sum of their scores, and the right ones among them.
    owner = np.repeat(np.arange(len(solutions)), [len(solution) for solution in solutions])
    place = np.searchsorted(edges[1:-1], scores, side="right")
    table = np.zeros((len(solutions), 3, counts))
    for row, values in enumerate((np.ones_like(scores), scores, right)):
        np.add.at(table[:, row], (owner, place), values)
    draws, whole = bootstrap or Bootstrap(0), table.sum(axis=0)
    drawn = draws.sums("reliability", table.reshape(len(solutions), -1)).reshape(-1, 3, counts)
    shares = ratio(drawn[:, 2], drawn[:, 0])
    count, score, hits = whole
    return Reliability(
        bins=tuple(
            Bin(
                low=float(edges[at]),
                high=float(edges[at + 1]),
                count=int(count[at]),
                score=float(score[at] / count[at]) if count[at] else None,
                right=float(hits[at] / count[at]) if count[at] else None,
                interval=draws.interval(shares[:, at]) if count[at] else None,
            )
            for at in range(counts)
        ),
        kind=kind,
        ece=float(np.abs(_gaps(whole[None])).sum()),
        ece_interval=_ece_interval(_gaps(whole[None])[0], _gaps(drawn), draws) if draws.draws else None,
        log_loss=log_loss(scores, right),
        steps=len(scores),
        solutions=len(solutions),
    )


def log_loss(scores: Numbers, right: Numbers) -> float:
    """The mean surprise at the truth, in nats."""
    safe = np.clip(scores, EDGE, 1.0 - EDGE)
    return float(-np.where(right > 0.5, np.log(safe), np.log1p(-safe)).mean())


def _edges(scores: Numbers, bins: int, kind: BinKind) -> Numbers:
    # Not linspace, whose 0.3 is a little more than the score 0.3.
    shares = np.arange(bins + 1) / bins
    if kind == "width":
        return shares
    inner = np.quantile(scores, shares[1:-1])
    return np.unique(np.concatenate([[0.0], inner, [1.0]]))


def _gaps(sums: Numbers) -> Numbers:
    """For every draw and bin: the sum of scores less the right ones, by all steps. The ECE sums their sizes."""
    gaps: Numbers = (sums[:, 1] - sums[:, 2]) / sums[:, 0].sum(axis=1, keepdims=True)
    return gaps


def _ece_interval(gaps: Numbers, drawn: Numbers, draws: Bootstrap) -> Interval | None:
    """An interval that holds the true ECE about as often as it says.

    Noise adds to an ECE and never cancels, and a draw has the noise twice: so the middle of the draws alone lies too
    high, and never holds the 0 of perfect scores. Therefore it is mirrored at the estimate too, and both are covered;
    and where the gaps are no larger than noise, perfect scores are not refuted and 0 is in it.
    """
    ece = float(np.abs(gaps).sum())
    middle = draws.interval(np.abs(drawn).sum(axis=1))
    if middle is None:
        return None
    noise = float(np.quantile(np.abs(drawn - gaps).sum(axis=1), draws.level))
    low = 0.0 if ece <= noise else min(middle.low, 2.0 * ece - middle.high)
    return Interval(max(low, 0.0), min(max(middle.high, 2.0 * ece - middle.low), 1.0))
