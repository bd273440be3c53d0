"""The result of comparing searches with baselines at equal tokens, as data and as tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from surefoot.display.counting import counted
from surefoot.display.tables import join_sections, table
from surefoot.evaluate.search.curves import SampleCurves
from surefoot.evaluate.search.measures import GreedyMeasurement, SearchMeasurement, Verdict
from surefoot.evaluate.search.tables import budget_sentence, cost_cells, curve_cells, summary_cells

if TYPE_CHECKING:
    from surefoot.core.result import Scale


@dataclass(frozen=True)
class QuestionOutcome:
    """What one search did on one question."""

    answer: str | None
    correct: Verdict
    """None if undecided or if there is no reference."""
    majority: Verdict
    """That of the majority at equal tokens; None without samples, too."""
    finished: bool
    samples: int | None
    """Samples that its tokens pay for."""
    tokens: int


@dataclass(frozen=True)
class SearchComparison:
    """Searches next to baselines at equal tokens. Accuracies are fractions of 1."""

    model: str
    """The scorer."""
    generator: str
    scale: Scale
    questions: int
    with_reference: int
    searches: tuple[SearchMeasurement, ...]
    greedy: GreedyMeasurement
    curves: SampleCurves | None
    notes: tuple[str, ...]
    outcomes: tuple[Mapping[str, QuestionOutcome], ...] = ()
    """By question, in the order of the records: what each search did."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, without the individual questions."""
        return {
            "model": self.model,
            "generator": self.generator,
            "scale": self.scale,
            "questions": self.questions,
            "with_reference": self.with_reference,
            "searches": [search.to_dict() for search in self.searches],
            "greedy": asdict(self.greedy) | {"accuracy": self.greedy.accuracy.to_dict()},
            "samples": None if self.curves is None else self.curves.to_dict(),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        sections = [f"Search: {self.generator} with {self.model}, {counted(self.questions, 'question')}"]
        if self.with_reference:
            for search in self.searches:
                sections.append(f"{search.label}: {budget_sentence(search)}\n{table(*summary_cells(search))}")
        if self.curves is not None:
            sections.append("Samples without a search, expected accuracy\n" + table(*curve_cells(self.curves)))
        sections.append("Costs per question\n" + table(*cost_cells(self.searches)))
        return join_sections(sections, self.notes)
