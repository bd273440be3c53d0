"""The content of a best-of-N report.

The list shows problems: the solution that the most accurate aggregation selects, and, if that is incorrect and a
correct one exists, the correct one with the highest score.
"""

from __future__ import annotations

from collections.abc import Mapping

from surefoot.display.html import StepItem
from surefoot.evaluate.best_of_n.result import BestOfNResult, Candidate, Curve, curve_cells
from surefoot.evaluate.header import model_label
from surefoot.evaluate.report_page import figures
from surefoot.evaluate.report_page.content import Card, Content, Entry, Panel, Section, Table, card
from surefoot.text.split import split

KINDS = (
    ("missed", "wrong one picked"),
    ("hopeless", "none is right"),
    ("right", "right one picked"),
    ("unscored", "unscored"),
)
NAMES = dict(KINDS)


def content(result: BestOfNResult) -> Content:
    """Builds the content of the page."""
    last = result.ns[-1]
    rule = max(result.best, key=lambda name: result.best[name][last].value)
    groups: dict[str, list[Candidate]] = {}
    for candidate in result.candidates:
        groups.setdefault(candidate.row.group, []).append(candidate)
    facts = [
        ("problems", f"{result.problems:,}"),
        ("solutions", f"{result.solutions:,}"),
        ("best rule here", rule.replace("_", " ")),
    ]
    return Content(
        title="Best of N",
        model=model_label(result),
        facts=facts,
        cards=_cards(result, rule),
        panels=[
            Panel(
                "The best is picked",
                "Accuracy of the solution with the highest score, by how its step scores are made into one number.",
                svg=_figure("Accuracy of the best of N by rule", result, result.best),
            ),
            *_votes(result),
            *_histogram(result, rule),
            Panel(
                "All numbers", "95% intervals by bootstrap over problems.", table=Table(*curve_cells(result)), wide=True
            ),
        ],
        noun="problems",
        kinds=KINDS,
        group_name="",
        entries=[entry(group, rule) for group in groups.values()],
        scale=result.scale,
        notes=result.notes,
    )


def _cards(result: BestOfNResult, rule: str) -> list[Card]:
    last = result.ns[-1]

    def made(label: str, curve: Curve) -> Card:
        return card(label, curve[last].value, curve[last].interval)

    votes = sorted(result.weighted, key=lambda name: -result.weighted[name][last].value)[:1]
    first = result.best[rule][result.ns[0]]
    return [
        made(f"best of {last} by {rule}".replace("_", " "), result.best[rule]),
        *(made(f"vote of {last} by {vote}".replace("_", " "), result.weighted[vote]) for vote in votes),
        made(f"majority of {last}", result.majority),
        made(f"oracle of {last}", result.oracle),
        card("one at random" if result.ns[0] == 1 else f"best of {result.ns[0]}", first.value, first.interval),
    ]


def _figure(about: str, result: BestOfNResult, curves: Mapping[str, Curve]) -> str:
    def values(curve: Curve) -> dict[int, float]:
        return {n: point.value for n, point in curve.items()}

    return figures.accuracy_by_n(
        about,
        {name.replace("_", " "): values(curve) for name, curve in curves.items()},
        {"majority": values(result.majority), "oracle": values(result.oracle)},
    )


def _votes(result: BestOfNResult) -> list[Panel]:
    if not result.weighted:
        return []
    return [
        Panel(
            "Votes are weighted",
            "Accuracy of the answer with the most votes, each solution voting with its score.",
            svg=_figure("Accuracy of weighted votes by rule", result, result.weighted),
        )
    ]


def _histogram(result: BestOfNResult, rule: str) -> list[Panel]:
    kinds: dict[str, list[float]] = {"right solutions": [], "wrong solutions": []}
    for candidate in result.candidates:
        if candidate.values is not None and candidate.correct is not None:
            kinds["right solutions" if candidate.correct else "wrong solutions"].append(candidate.values[rule])
    if not any(kinds.values()):
        return []
    name = rule.replace("_", " ")
    return [
        Panel(
            "Scores of solutions",
            f"How the scores ({name}) of right and of wrong solutions are spread.",
            svg=figures.histogram("Scores of right and of wrong solutions", kinds, xlabel=name),
        )
    ]


def entry(group: list[Candidate], rule: str) -> Entry:
    """Builds the entry of one problem."""
    ranked = [(each.values[rule], each) for each in group if each.values is not None and each.correct is not None]
    ranked.sort(key=lambda pair: -pair[0])
    right = [pair for pair in ranked if pair[1].correct]
    shown: list[tuple[str, float | None, Candidate]]
    if not ranked:
        kind, severity, shown = "unscored", -1.0, [("left out", None, group[0])]
    else:
        value, picked = ranked[0]
        shown = [("picked", value, picked)]
        if picked.correct:
            kind, severity = "right", 0.0
        elif right:
            kind, severity = "missed", 1.0 + value - right[0][0]
            shown.append(("best right one", *right[0]))
        else:
            kind, severity = "hopeless", 0.5
    row = group[0].row
    facts = f"{row.group if len(row.group) < 60 else row.group[:60] + '…'} · {len(right)} of {len(group)} right"
    if row.reference is not None:
        facts += f" · right answer: {row.reference}"
    return Entry(
        kind=kind,
        badge=NAMES[kind],
        facts=facts,
        problem=row.problem,
        sections=[_section(*each, rule) for each in shown],
        severity=severity,
    )


def _section(role: str, value: float | None, candidate: Candidate, rule: str) -> Section:
    title = [role]
    if value is not None:
        title.append(f"{rule.replace('_', ' ')} {value:.3f}")
    title.append(f"answer {candidate.row.answer or 'none'}")
    title.append({True: "right", False: "wrong", None: "not decided"}[candidate.correct])
    return Section(_steps(candidate), candidate.reason, " · ".join(title))


def _steps(candidate: Candidate) -> list[StepItem]:
    solution = candidate.row.solution
    if isinstance(solution, str):
        found = [step.text for step in split(solution).steps]
        if len(found) != len(candidate.scores):  # precomputed scores for another split
            numbers = ", ".join("no score" if score is None else f"{score:.3f}" for score in candidate.scores)
            return [StepItem(f"{solution}\n\nStep scores: {numbers}", None, placeholder="text")]
        solution = tuple(found)
    return [
        StepItem(step, score, placeholder="no score" if step.strip() else "blank")
        for step, score in zip(solution, candidate.scores, strict=True)
    ]
