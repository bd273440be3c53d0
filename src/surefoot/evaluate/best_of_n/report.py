"""The content of a best-of-N report.

The list shows problems: the solution that the chosen aggregation selects, and, if that is incorrect and a
correct one exists, the correct one with the highest score.
"""

from __future__ import annotations

from collections.abc import Mapping

from surefoot.core.aggregation import AGGREGATIONS
from surefoot.display.html import StepItem
from surefoot.evaluate.baselines import about as about_baselines
from surefoot.evaluate.best_of_n.result import BestOfNResult, Candidate, Curve, curve_cells
from surefoot.evaluate.header import model_label
from surefoot.evaluate.report_page import figures
from surefoot.evaluate.report_page.content import Card, Content, Entry, Kind, Panel, Section, Table, card, step_item
from surefoot.text.split import split

KINDS = (
    Kind("missed", "incorrect selected", "although a correct solution exists"),
    Kind("unsolved", "none correct", "no solution to select is correct"),
    Kind("right", "correct selected", "the selected solution is correct"),
    Kind("unscored", "unscored", "no solution has both a score and a verdict on its answer"),
)
NAMES = {kind.key: kind.name for kind in KINDS}


def content(result: BestOfNResult) -> Content:
    """Build the content of the page."""
    aggregation = result.aggregation
    groups: dict[str, list[Candidate]] = {}
    for candidate in result.candidates:
        groups.setdefault(candidate.row.group, []).append(candidate)
    facts = [
        ("problems", f"{result.problems:,}"),
        ("solutions", f"{result.solutions:,}"),
        ("aggregation", result.aggregation_label),
    ]
    return Content(
        title="Best of N",
        model=model_label(result),
        facts=facts,
        cards=_cards(result, aggregation),
        panels=[
            Panel(
                "Selecting the best",
                "Accuracy of the solution with the highest score, by aggregation of its step scores.",
                svg=_figure("Accuracy of best of N by aggregation", result, result.best),
            ),
            *_votes(result),
            *_histogram(result, aggregation),
            Panel(
                "All accuracies",
                f"95% intervals by bootstrap over problems. {about_baselines(result.baselines)}",
                table=Table(*curve_cells(result)),
                wide=True,
            ),
        ],
        noun="problems",
        kinds=KINDS,
        group_name="",
        entries=[entry(group, aggregation) for group in groups.values()],
        scale=result.scale,
        notes=result.notes,
    )


def _label(aggregation: str) -> str:
    return AGGREGATIONS[aggregation].label


def _cards(result: BestOfNResult, aggregation: str) -> list[Card]:
    last = result.ns[-1]

    def last_point(label: str, curve: Curve) -> Card:
        return card(label, curve[last].value, curve[last].interval)

    votes = [name for name in result.weighted if name == aggregation]
    first = result.best[aggregation][result.ns[0]]
    return [
        last_point(f"best of {last} by {_label(aggregation)}", result.best[aggregation]),
        *(last_point(f"vote of {last} by {_label(vote)}", result.weighted[vote]) for vote in votes),
        last_point(f"majority of {last}", result.majority),
        last_point(f"oracle of {last}", result.oracle),
        card("one at random" if result.ns[0] == 1 else f"best of {result.ns[0]}", first.value, first.interval),
    ]


def _figure(about: str, result: BestOfNResult, curves: Mapping[str, Curve]) -> str:
    def values(curve: Curve) -> dict[int, float]:
        return {n: point.value for n, point in curve.items()}

    return figures.accuracy_by_n(
        about,
        {_label(name): values(curve) for name, curve in curves.items()},
        {"majority": values(result.majority), "oracle": values(result.oracle)},
    )


def _votes(result: BestOfNResult) -> list[Panel]:
    if not result.weighted:
        return []
    return [
        Panel(
            "Weighted votes",
            "Accuracy of the answer with the most votes, weighted by the scores of the solutions.",
            svg=_figure("Accuracy of weighted votes by aggregation", result, result.weighted),
        )
    ]


def _histogram(result: BestOfNResult, aggregation: str) -> list[Panel]:
    kinds: dict[str, list[float]] = {"correct": [], "incorrect": []}
    for candidate in result.candidates:
        if candidate.values is not None and candidate.correct is not None:
            kinds["correct" if candidate.correct else "incorrect"].append(candidate.values[aggregation])
    if not any(kinds.values()):
        return []
    name = _label(aggregation)
    return [
        Panel(
            "Scores of solutions",
            f"Distribution of the scores ({name}) of correct and incorrect solutions.",
            svg=figures.histogram("Scores of correct and incorrect solutions", kinds, xlabel=name),
        )
    ]


def entry(group: list[Candidate], aggregation: str) -> Entry:
    """Build the entry of one problem."""
    ranked = [
        (each.values[aggregation], each) for each in group if each.values is not None and each.correct is not None
    ]
    ranked.sort(key=lambda pair: -pair[0])
    correct = [pair for pair in ranked if pair[1].correct]
    shown: list[tuple[str, float | None, Candidate]]
    if not ranked:
        kind, severity, shown = "unscored", -1.0, [("excluded", None, group[0])]
    else:
        value, selected = ranked[0]
        shown = [("selected", value, selected)]
        if selected.correct:
            kind, severity = "right", 0.0
        elif correct:
            kind, severity = "missed", 1.0 + value - correct[0][0]
            shown.append(("best correct one", *correct[0]))
        else:
            kind, severity = "unsolved", 0.5
    row = group[0].row
    facts = f"{row.group if len(row.group) < 60 else row.group[:60] + '…'} · {len(correct)} of {len(group)} correct"
    if row.reference is not None:
        facts += f" · reference answer: {row.reference}"
    return Entry(
        kind=kind,
        badge=NAMES[kind],
        facts=facts,
        problem=row.problem,
        sections=[_section(*each, aggregation) for each in shown],
        severity=severity,
    )


def _section(role: str, value: float | None, candidate: Candidate, aggregation: str) -> Section:
    title = [role]
    if value is not None:
        title.append(f"{_label(aggregation)} {value:.3f}")
    title.append(f"answer {candidate.row.answer or 'none'}")
    title.append({True: "correct", False: "incorrect", None: "undecided"}[candidate.correct])
    return Section(_steps(candidate), candidate.reason, " · ".join(title))


def _steps(candidate: Candidate) -> list[StepItem]:
    solution = candidate.row.solution
    if isinstance(solution, str):
        found = [step.text for step in split(solution).steps]
        if len(found) != len(candidate.scores):  # precomputed scores for another split
            numbers = ", ".join("no score" if score is None else f"{score:.3f}" for score in candidate.scores)
            return [StepItem(f"{solution}\n\nStep scores: {numbers}", None, placeholder="text")]
        solution = tuple(found)
    return [step_item(step, score) for step, score in zip(solution, candidate.scores, strict=True)]
