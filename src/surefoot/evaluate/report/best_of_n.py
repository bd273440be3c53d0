"""The report of a best-of-N result.

The rule: the list is one of problems: the solution that the best rule picks out of all of them, and, where that is
wrong and a right one was there, the right one that the rule ranked highest.
"""

from __future__ import annotations

from surefoot.core.result import Scale
from surefoot.display.html import ShownStep, classed, escape, steps_html
from surefoot.evaluate.best_of_n import BestOfNResult, Candidate, Curve
from surefoot.evaluate.report import figures
from surefoot.evaluate.report.content import Card, Content, Entry, Panel, Table, card
from surefoot.evaluate.tables import curve_rows, model_of
from surefoot.text.split import split

KINDS = (
    ("missed", "wrong one picked"),
    ("hopeless", "none is right"),
    ("right", "right one picked"),
    ("unscored", "unscored"),
)
NAMES = dict(KINDS)


def content(result: BestOfNResult) -> Content:
    """Everything that the page shows."""
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
    head, rows = curve_rows(result)
    return Content(
        title="Best of N",
        model=model_of(result),
        facts=facts,
        cards=_cards(result, rule),
        panels=[
            Panel(
                "The best is picked",
                "Accuracy of the solution with the highest score, by how its step scores are made into one number.",
                svg=figures.choices("Accuracy of the best of N by rule", result, "best"),
            ),
            *_votes(result),
            *_histogram(result, rule),
            Panel("All numbers", "95% intervals by bootstrap over problems.", table=Table(head, rows), wide=True),
        ],
        noun="problems",
        kinds=KINDS,
        group_name="",
        entries=[entry(group, rule, result.scale) for group in groups.values()],
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


def _votes(result: BestOfNResult) -> list[Panel]:
    if not result.weighted:
        return []
    return [
        Panel(
            "Votes are weighted",
            "Accuracy of the answer with the most votes, each solution voting with its score.",
            svg=figures.choices("Accuracy of weighted votes by rule", result, "weighted"),
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


def entry(group: list[Candidate], rule: str, scale: Scale) -> Entry:
    """One problem of the list."""
    ranked = [(each.values[rule], each) for each in group if each.values is not None and each.correct is not None]
    ranked.sort(key=lambda pair: -pair[0])
    right = [pair for pair in ranked if pair[1].correct]
    shown: list[tuple[str, float | None, Candidate]]
    if not ranked:
        kind, badness, shown = "unscored", -1.0, [("left out", None, group[0])]
    else:
        value, picked = ranked[0]
        shown = [("picked", value, picked)]
        if picked.correct:
            kind, badness = "right", 0.0
        elif right:
            kind, badness = "missed", 1.0 + value - right[0][0]
            shown.append(("best right one", *right[0]))
        else:
            kind, badness = "hopeless", 0.5
    row = group[0].row
    facts = f"{row.group if len(row.group) < 60 else row.group[:60] + '…'} · {len(right)} of {len(group)} right"
    if row.reference is not None:
        facts += f" · right answer: {row.reference}"
    return Entry(
        html=(
            f"<header><span{classed('badge', f'k-{kind}')}>{escape(NAMES[kind])}</span>"
            f"<span{classed('id')}>{escape(facts)}</span></header><p{classed('problem')}>{escape(row.problem)}</p>"
            + "".join(_candidate(*each, rule, scale) for each in shown)
        ),
        kind=kind,
        group="",
        split="",
        badness=badness,
    )


def _candidate(role: str, value: float | None, candidate: Candidate, rule: str, scale: Scale) -> str:
    title = [role]
    if value is not None:
        title.append(f"{rule.replace('_', ' ')} {value:.3f}")
    title.append(f"answer {candidate.row.answer or 'none'}")
    title.append({True: "right", False: "wrong", None: "not decided"}[candidate.correct])
    reason = "" if candidate.reason is None else f"<p{classed('why')}>{escape(candidate.reason)}</p>"
    steps = steps_html(_steps(candidate), classed, scale)
    return f"<p{classed('role')}>{escape(' · '.join(title))}</p>{steps}{reason}"


def _steps(candidate: Candidate) -> list[ShownStep]:
    solution = candidate.row.solution
    if isinstance(solution, str):
        found = [step.text for step in split(solution).steps]
        if len(found) != len(candidate.scores):  # ready-made scores, of steps that somebody else found
            numbers = ", ".join("no score" if score is None else f"{score:.3f}" for score in candidate.scores)
            return [ShownStep(f"{solution}\n\nStep scores: {numbers}", None, why="text")]
        solution = tuple(found)
    return [
        ShownStep(step, score, why="no score" if step.strip() else "blank")
        for step, score in zip(solution, candidate.scores, strict=True)
    ]
