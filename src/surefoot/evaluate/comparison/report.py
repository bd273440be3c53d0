"""The HTML report of a comparison: numbers, paired differences, costs, and every disagreement step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from surefoot.errors import OptionError
from surefoot.evaluate.baselines import about as about_baselines
from surefoot.evaluate.comparison.result import (
    ComparedSolution,
    Comparison,
    Disagreement,
    agreement_cells,
    difference_cells,
    scorer_cells,
)
from surefoot.evaluate.provenance import provenance
from surefoot.evaluate.report import prepare_report
from surefoot.evaluate.report_page import figures
from surefoot.evaluate.report_page.content import (
    Card,
    ComparedStep,
    Content,
    Entry,
    Kind,
    Panel,
    ScorerChip,
    Section,
    Table,
    card,
)
from surefoot.evaluate.report_page.page import page

ABOUT = {
    "processbench": "In percent, over all solutions that each scorer judged, as averages over splits. Error: erroneous "
    "solutions whose first error is found; correct: correct solutions that are accepted.",
    "best-of-n": "Accuracy of the selected solution in percent, over all solutions that each scorer judged.",
}
"""What the numbers of each benchmark are."""
NO_F1 = "it needs scored solutions with and without an error"
"""Why F1, the only headline number that may be missing, is not defined."""


def write_comparison(comparison: Comparison, path: str | Path, *, made: Mapping[str, str] | None = None) -> None:
    """Write the report as one self-contained HTML file. `made` is what it says about how it was made (default: date
    and versions).

        evaluate.write_comparison(comparison, "compare.html", made=evaluate.provenance(data="rows.jsonl"))

    Needs `pip install "surefoot[report]"`.
    """
    prepare_report(path)
    text = comparison_html(comparison, made=provenance() if made is None else made)
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise OptionError(f"The report cannot be written to {path}: {error}") from error


def comparison_html(comparison: Comparison, *, made: Mapping[str, str] | None = None) -> str:
    """Return the report as text. Without `made`, equal comparisons give equal texts."""
    return page(replace(content(comparison), made=made or {}))


def content(comparison: Comparison) -> Content:
    """Build the content of the page."""
    listed = comparison.disagreements
    return Content(
        title=f"Comparison on {comparison.title}",
        model=" vs ".join(scorer.label for scorer in comparison.scorers),
        facts=[
            (comparison.noun, f"{comparison.rows:,}"),
            ("disagreements", f"{len(listed):,}"),
        ],
        cards=_cards(comparison),
        panels=[*_figures(comparison), *_tables(comparison)],
        noun="disagreements",
        kinds=_kinds(comparison),
        group_name="",
        entries=[_entry(comparison, each, len(listed) - at) for at, each in enumerate(listed)],
        scale="probability",
        notes=comparison.notes,
        order="largest first",
    )


def _cards(comparison: Comparison) -> list[Card]:
    name, values = comparison.metrics[0] if comparison.benchmark == "processbench" else comparison.metrics[-1]
    cards = [
        card(f"{scorer.letter}: {name}", value, interval, scorer.name, reason=NO_F1)
        for scorer, (value, interval) in zip(comparison.scorers, values, strict=True)
    ]
    for pair in comparison.pairs:
        main = pair.differences[0]
        letters = [comparison.scorers[at].letter for at in (pair.first, pair.second)]
        verdict = "undecided" if main.better is None else f"{letters[main.better]} is better"
        interval = main.interval
        between = "" if interval is None else f"{100 * interval.low:+.1f} to {100 * interval.high:+.1f} (95%, paired)"
        why = "not defined for one of them" if main.value is None else ""
        detail = "\n".join(part for part in (between, why, f"{main.total:,} {comparison.noun}") if part)
        value = "not defined" if main.value is None else f"{100 * main.value:+.1f}"
        label = f"{letters[1]} − {letters[0]}: {main.metric}, {main.group}"
        cards.append(Card(label, value, detail, verdict))
    return cards


def _figures(comparison: Comparison) -> list[Panel]:
    panels = []
    metrics = comparison.metrics[:1] if comparison.benchmark == "processbench" else comparison.metrics[-1:]
    for name, values in metrics:
        rows = [
            (scorer.letter, value, interval)
            for scorer, (value, interval) in zip(comparison.scorers, values, strict=True)
            if value is not None
        ]
        if rows:
            legend = ", ".join(scorer.label for scorer in comparison.scorers)
            about = f"{name} of each scorer with its 95% interval. {legend}."
            svg = figures.bars(f"{name} of each scorer", rows, xlabel=name)
            panels.append(Panel(name, about, svg=svg))
    drawn = []
    for pair in comparison.pairs:
        letters = [comparison.scorers[at].letter for at in (pair.first, pair.second)]
        main = pair.differences[0].group
        drawn += [
            (f"{letters[1]} − {letters[0]}: {each.metric}{'' if each.group == main else f', {each.group}'}", each)
            for each in pair.differences
            if (each.group == main or comparison.benchmark != "processbench") and each.value is not None
        ]
    if drawn:
        rows = [(name, each.value or 0.0, each.interval) for name, each in drawn]
        panels.append(
            Panel(
                "Paired differences",
                "Both scorers judge the same solutions, and both see the same bootstrap draws. An interval that does "
                "not cross 0 shows a difference.",
                svg=figures.differences("Paired differences in percentage points", rows),
            )
        )
    return panels


def _tables(comparison: Comparison) -> list[Panel]:
    costs = [
        [
            scorer.label,
            f"{cost.tokens:,}",
            f"{cost.seconds:.1f}",
            "" if cost.load_seconds is None else f"{cost.load_seconds:.1f}",
            f"{cost.cached:,}",
        ]
        for scorer in comparison.scorers
        if (cost := scorer.cost) is not None
    ]
    cost_about = (
        "Tokens that the scorer read, and the wall time of scoring and loading in seconds. Scores from the cache take "
        "no time."
    )
    cost_table = Table(["scorer", "tokens", "seconds", "loading", "cached prompts"], costs)
    return [
        Panel(
            "Scorers and baselines",
            f"{ABOUT[comparison.benchmark]} {about_baselines(comparison.baselines)}",
            table=Table(*scorer_cells(comparison)),
            wide=True,
        ),
        Panel(
            "Differences",
            "In percentage points, over the solutions that both scorers judged, with 95% intervals by paired "
            "bootstrap. Won: only the second is right; lost: only the first is; p: exact McNemar test of the two.",
            table=Table(*difference_cells(comparison)),
            wide=True,
        ),
        Panel(
            "Agreement",
            "Excluded: a scorer has no prediction.",
            table=Table(*agreement_cells(comparison)),
            wide=True,
        ),
        *([Panel("Cost", cost_about, table=cost_table, wide=True)] if costs else []),
    ]


def _kinds(comparison: Comparison) -> list[Kind]:
    return [
        *(
            Kind(f"only-{scorer.letter.lower()}", f"only {scorer.letter} right", f"{scorer.name} alone is right")
            for scorer in comparison.scorers
        ),
        Kind("several", "several right", "more than one scorer is right, but not all of them"),
        Kind("all", "all right", "every scorer selects a correct solution, but not the same one"),
        Kind("none", "none right", "no scorer is right, and they are wrong in different ways"),
        Kind("unscored", "unscored", "a scorer has no prediction"),
    ]


def _kind(comparison: Comparison, each: Disagreement) -> tuple[str, str]:
    """Return the filter and the badge of a disagreement."""
    right = [scorer.letter for scorer, hit in zip(comparison.scorers, each.right, strict=True) if hit]
    if None in each.right:
        return "unscored", "unscored by a scorer"
    if not right:
        return "none", "none right"
    if len(right) == len(each.right):
        return "all", "all right"
    names = " and ".join(right)
    return (f"only-{right[0].lower()}", f"only {names} right") if len(right) == 1 else ("several", f"{names} right")


def _entry(comparison: Comparison, each: Disagreement, severity: int) -> Entry:
    kind, badge = _kind(comparison, each)
    letters = [scorer.letter for scorer in comparison.scorers]
    verdicts = " · ".join(f"{letter}: {says}" for letter, says in zip(letters, each.predicted, strict=True))
    size = "" if each.size is None else f" · distance {each.size:.2f}"
    return Entry(
        kind=kind,
        badge=badge,
        facts=" · ".join(part for part in (each.split, each.id) if part) + size,
        verdict=f"label: {each.label} · {verdicts}",
        problem=each.problem,
        sections=[_section(comparison, each, solution) for solution in each.solutions],
        severity=float(severity),
        split=each.split,
    )


def _section(comparison: Comparison, each: Disagreement, solution: ComparedSolution) -> Section:
    letters = [scorer.letter for scorer in comparison.scorers]
    located = each.label_index is not None
    steps = [
        ComparedStep(
            text,
            [
                ScorerChip(letter, scores[at], scale)
                for letter, scores, scale in zip(letters, solution.scores, comparison.scales, strict=True)
            ],
            label="✗ true first error" if located and at == each.label_index else "",
            predictions=_predictions(letters, each.predicted_indices, at) if located else (),
        )
        for at, text in enumerate(solution.steps)
    ]
    return Section((), title=solution.title, compared=steps)


def _predictions(letters: Sequence[str], predicted: Sequence[int | None], at: int) -> list[str]:
    return [f"▸ {letter}" for letter, index in zip(letters, predicted, strict=True) if index == at]
