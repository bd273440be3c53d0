"""The result of a comparison, as data and as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from surefoot.core.intervals import Interval
from surefoot.display.tables import DASH, Cells, decimal, join_sections, percent, table
from surefoot.evaluate.baselines import PREFIX, Baseline
from surefoot.evaluate.comparison.paired import Agreement, Difference, agreement_dict
from surefoot.evaluate.comparison.scorers import ComparedScorer

if TYPE_CHECKING:
    from surefoot.core.result import Scale

SHOWN = 3
"""Disagreements that the terminal shows."""


@dataclass(frozen=True)
class ComparedSolution:
    """A solution with the scores of every scorer."""

    steps: tuple[str, ...]
    scores: tuple[tuple[float | None, ...], ...]
    """One tuple per scorer, one score per step."""
    title: str = ""
    """Best of N: who selected it, its answer, and whether that is correct."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        title = {"title": self.title} if self.title else {}
        return title | {"steps": list(self.steps), "scores": [list(scores) for scores in self.scores]}


@dataclass(frozen=True)
class Disagreement:
    """A solution, or a problem, on which the scorers predict different things."""

    id: str
    split: str
    problem: str
    label: str
    """What people say: the first error, or the reference answer."""
    label_index: int | None
    """The index of the labelled first error, or -1; None for best of N."""
    predicted: tuple[str, ...]
    """What each scorer says, in words."""
    predicted_indices: tuple[int | None, ...]
    """The first error that each scorer reports, -1 for none, None if unscored. Best of N: the selected solution."""
    right: tuple[bool | None, ...]
    """Whether each scorer is right; None without a prediction."""
    size: float | None
    """How far apart the scorers are, from 0 to 1; None if one of them has no prediction."""
    solutions: tuple[ComparedSolution, ...]
    """The solution; best of N: those that were selected."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "id": self.id,
            "split": self.split,
            "problem": self.problem,
            "label": self.label if self.label_index is None else self.label_index,
            "predicted": list(self.predicted_indices),
            "right": list(self.right),
            "size": self.size,
            "solutions": [solution.to_dict() for solution in self.solutions],
        }


@dataclass(frozen=True)
class Pair:
    """Two of the compared scorers."""

    first: int
    second: int
    differences: tuple[Difference, ...]
    agreement: Agreement

    def find(self, metric: str, group: str | None = None) -> Difference:
        """Return a difference by its metric, and by its group unless that is the main one."""
        return next(each for each in self.differences if each.metric == metric and group in (None, each.group))


@dataclass(frozen=True)
class Comparison:
    """Several scorers on the same solutions. `print(comparison)` shows its tables."""

    benchmark: str
    title: str
    scorers: tuple[ComparedScorer, ...]
    pairs: tuple[Pair, ...]
    """Every scorer against every later one. The main group of their differences comes first."""
    metrics: tuple[tuple[str, tuple[tuple[float | None, Interval | None], ...]], ...]
    """By name of a metric: the value of each scorer over all that it judged, and its interval."""
    disagreements: tuple[Disagreement, ...]
    """The largest first; those without a size last."""
    rows: int
    """The number of solutions, or of problems, that were compared."""
    noun: str
    """What the rows are, in the plural."""
    baselines: tuple[Baseline, ...]
    baseline_keys: tuple[str, ...]
    """The keys of the baselines' values, in the order of `metrics`."""
    notes: tuple[str, ...] = ()
    scales: tuple[Scale, ...] = field(default=())

    @property
    def complete(self) -> bool:
        """Whether every scorer could judge every solution."""
        return all(scorer.result.complete for scorer in self.scorers)

    def pair(self, first: int = 0, second: int = 1) -> Pair:
        """Return the comparison of two scorers, by their positions."""
        return next(pair for pair in self.pairs if (pair.first, pair.second) == (first, second))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, with every disagreement."""
        return {
            "benchmark": self.benchmark,
            "rows": self.rows,
            "scorers": [
                {"letter": scorer.letter, "name": scorer.name}
                | {"cost": None if scorer.cost is None else scorer.cost.to_dict()}
                | {"result": scorer.result.to_dict()}
                for scorer in self.scorers
            ],
            "pairs": [
                {
                    "first": self.scorers[pair.first].letter,
                    "second": self.scorers[pair.second].letter,
                    "differences": [each.to_dict() for each in pair.differences],
                    "agreement": dict(agreement_dict(pair.agreement)),
                }
                for pair in self.pairs
            ],
            "baselines": [baseline.to_dict() for baseline in self.baselines],
            "disagreements": [each.to_dict() for each in self.disagreements],
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        names = "\n".join(f"{scorer.label}" for scorer in self.scorers)
        sections = [
            f"{self.title}: {len(self.scorers)} scorers on {self.rows} {self.noun}\n{names}",
            table(*scorer_cells(self)),
            table(*difference_cells(self)),
            table(*agreement_cells(self)),
            *_largest(self),
        ]
        return join_sections(sections, self.notes)


def points(difference: Difference) -> str:
    """Format a difference in percentage points: `+3.0 [-1.2 to +7.1]`."""
    if difference.value is None:
        return DASH
    text, interval = f"{100 * difference.value:+.1f}", difference.interval
    return text if interval is None else f"{text} [{100 * interval.low:+.1f} to {100 * interval.high:+.1f}]"


def scorer_cells(comparison: Comparison) -> Cells:
    """Return the table of scorers and baselines: metrics, unscored solutions, and costs."""
    header = ["scorer", *(name for name, _ in comparison.metrics), "unscored", "tokens", "seconds"]
    rows = []
    for at, scorer in enumerate(comparison.scorers):
        cost = scorer.cost
        rows.append(
            [
                scorer.label,
                *(percent(*values[at]) for _, values in comparison.metrics),
                str(scorer.result.unscored),
                DASH if cost is None else f"{cost.tokens:,}",
                DASH if cost is None else decimal(cost.seconds),
            ]
        )
    for baseline in comparison.baselines:
        values = [percent(baseline.values.get(key)) for key in comparison.baseline_keys]
        rows.append([PREFIX + baseline.name, *values, *[""] * 3])
    return header, rows


def difference_cells(comparison: Comparison) -> Cells:
    """Return the table of paired differences."""
    header = ["difference in points", "metric", "first", "second", "second - first", "won", "lost", "p", "better"]
    rows = []
    for pair in comparison.pairs:
        letters = [comparison.scorers[at].letter for at in (pair.first, pair.second)]
        for each in pair.differences:
            rows.append(
                [
                    f"{letters[1]} - {letters[0]}, {each.group}",
                    each.metric,
                    percent(each.first),
                    percent(each.second),
                    points(each),
                    DASH if each.won is None else str(each.won),
                    DASH if each.lost is None else str(each.lost),
                    p_text(each.p_value),
                    "undecided" if each.better is None else letters[each.better],
                ]
            )
    return header, rows


def p_text(p_value: float | None) -> str:
    """Format a p-value: `0.031`, or `<0.001`."""
    return DASH if p_value is None else "<0.001" if p_value < 0.001 else f"{p_value:.3f}"


def agreement_cells(comparison: Comparison) -> Cells:
    """Return the table of solutions on which two scorers are right together, or not."""
    header = ["first, second", "same prediction", "both right", "only first", "only second", "neither", "excluded"]
    rows = []
    for pair in comparison.pairs:
        found, letters = pair.agreement, [comparison.scorers[at].letter for at in (pair.first, pair.second)]
        counts = (found.same, found.both, found.first_only, found.second_only, found.neither, found.excluded)
        rows.append([", ".join(letters), *map(str, counts)])
    return header, rows


def _largest(comparison: Comparison) -> Sequence[str]:
    """Return the largest disagreements for the terminal."""
    if not comparison.disagreements:
        return [f"The scorers agree on all {comparison.noun}."]
    letters = [scorer.letter for scorer in comparison.scorers]
    shown = comparison.disagreements[:SHOWN]
    title = f"Disagreements: {len(comparison.disagreements)} of {comparison.rows} {comparison.noun}"
    sections = [title + (f"; the largest {len(shown)}:" if len(shown) < len(comparison.disagreements) else ":")]
    for each in shown:
        verdicts = ", ".join(f"{letter}: {says}" for letter, says in zip(letters, each.predicted, strict=True))
        lines = [f"{each.id} ({each.split})" if each.split else each.id, _one_line(each.problem)]
        lines.append(f"label: {each.label}; {verdicts}")
        for solution in each.solutions:
            rows = [
                [str(at + 1), *(decimal(scores[at], 3) for scores in solution.scores), _one_line(step)]
                for at, step in enumerate(solution.steps)
            ]
            lines += [solution.title] if solution.title else []
            lines += [
                "  ".join([row[0].rjust(3), *(cell.rjust(6) for cell in row[1:-1]), row[-1]])
                for row in [["", *letters, ""], *rows]
            ]
        sections.append("\n".join(line.rstrip() for line in lines))
    return sections


def _one_line(text: str, limit: int = 100) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"
