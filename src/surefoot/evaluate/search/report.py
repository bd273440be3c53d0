"""The report of a comparison: one self-contained HTML file with tables, a figure, and every tree to explore."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from surefoot.core.aggregation import find_aggregation
from surefoot.core.search_result import SearchRecord
from surefoot.data.output import check_place
from surefoot.display.counting import counted
from surefoot.display.search_tree import search_tree_script, search_tree_style
from surefoot.errors import InputError, OptionError
from surefoot.evaluate.provenance import provenance
from surefoot.evaluate.report_page import figures
from surefoot.evaluate.report_page.content import Card, Content, Panel, Table, card
from surefoot.evaluate.report_page.figures import Line, TokenPoint
from surefoot.evaluate.report_page.page import embedded_json, lay_out, static
from surefoot.evaluate.search.measures import Accuracy, SearchMeasurement
from surefoot.evaluate.search.packing import ENDS, FATES, pack
from surefoot.evaluate.search.result import QuestionOutcome, SearchComparison
from surefoot.evaluate.search.tables import (
    all_baseline_cells,
    budget_cells,
    budget_sentence,
    cost_cells,
    count,
    curve_cells,
    overview_cells,
    points,
    selection_cells,
    summary_cells,
)

SELECTED_BY = {"best": "best path", "weighted": "weighted vote", "majority": "majority"}


def write_search_report(
    comparison: SearchComparison,
    records: Sequence[SearchRecord],
    path: str | Path,
    *,
    title: str = "Search",
    command: str | None = None,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write the report of a comparison. `records` are those that were compared.

    `metadata` is what the report says about how it was made (default: date and versions).

        write_search_report(compare_searches(records), records, "report.html")

    Needs `pip install "surefoot[report]"`.
    """
    figures.require()
    check_place("report", path)
    made = provenance() if metadata is None else metadata
    text = search_report_html(comparison, records, title=title, command=command, metadata=made)
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise OptionError(f"The report cannot be written to {path}: {error}") from error


def search_report_html(
    comparison: SearchComparison,
    records: Sequence[SearchRecord],
    *,
    title: str = "Search",
    command: str | None = None,
    metadata: Mapping[str, str] | None = None,
) -> str:
    """Return the report as text."""
    if len(records) != len(comparison.outcomes):
        raise InputError(
            f"The comparison is about {len(comparison.outcomes)} records, but {len(records)} were passed. Pass the "
            "records that were compared."
        )
    content = Content(
        title=title,
        model=f"{comparison.generator} with {comparison.model}",
        facts=[
            ("questions", f"{comparison.questions:,}"),
            ("with a reference answer", f"{comparison.with_reference:,}"),
            ("searches", f"{len(comparison.searches):,}"),
        ],
        cards=_cards(comparison),
        panels=_panels(comparison),
        noun="questions",
        kinds=(),
        group_name="",
        entries=(),
        scale=comparison.scale,
        notes=comparison.notes,
        made={**(metadata or {}), **({} if command is None else {"command": command})},
    )
    labels = [search.label for search in comparison.searches]
    rows = [_row(record, found) for record, found in zip(records, comparison.outcomes, strict=True)]
    return lay_out(
        "questions.html.j2",
        content,
        scripts=[search_tree_script(), static("questions.js")],
        styles=[static("questions.css"), search_tree_style()],
        texts=_texts(records),
        labels=labels,
        judged=bool(comparison.with_reference),
        data=embedded_json({"labels": labels, "ends": ENDS, "fates": FATES, "questions": rows}),
        trees=[embedded_json(_runs(record)) for record in records],
    )


def _texts(records: Sequence[SearchRecord]) -> Iterator[str]:
    """Yield the questions, and the texts of all trees."""
    for record in records:
        yield record.question
        for run in (*record.searches.values(), record.samples, record.greedy):
            yield from (node.text for node in (() if run is None else run.nodes))


def _row(record: SearchRecord, outcomes: Mapping[str, QuestionOutcome]) -> list[Any]:
    """Return what the list shows of a question before a tree is opened."""
    found = {
        label: [each.answer, each.correct, each.majority, each.finished, each.samples, each.tokens]
        for label, each in outcomes.items()
    }
    return [record.id, record.question, record.gold, found, record.samples is not None, record.greedy is not None]


def _runs(record: SearchRecord) -> dict[str, Any]:
    runs = {f"search:{label}": pack(search) for label, search in record.searches.items()}
    for name, run in (("samples", record.samples), ("greedy", record.greedy)):
        if run is not None:
            runs[name] = pack(run)
    return runs


def _cards(comparison: SearchComparison) -> list[Card]:
    if not comparison.with_reference:
        return [
            Card(search.label, count(search.costs.generated_tokens), "generated tokens per question")
            for search in comparison.searches
        ]
    return [*map(_search_card, comparison.searches), *_greedy_card(comparison)]


def _search_card(search: SearchMeasurement) -> Card:
    majority = search.baselines[0]
    at = search.accuracy
    shown = _accuracy_card(search.label, at, at.reason or counted(at.questions, "question"))
    if majority.accuracy.value is None:
        return shown
    gained = points(majority.difference.value, majority.difference.interval)
    return replace(shown, beside=f"{gained} points against majority at equal tokens")


def _greedy_card(comparison: SearchComparison) -> list[Card]:
    greedy = comparison.greedy
    if greedy.accuracy.value is None:
        return []
    total = f"{counted(greedy.accuracy.questions, 'question')}, {count(greedy.tokens)} tokens each"
    return [_accuracy_card("greedy decoding", greedy.accuracy, total)]


def _accuracy_card(label: str, at: Accuracy, total: str) -> Card:
    """Build a card that says that its value is an accuracy in percent."""
    shown = card(label, at.value, at.interval, total)
    value = shown.value if at.value is None else f"{shown.value}%"
    return replace(shown, value=value, detail=f"accuracy\n{shown.detail}")


def _panels(comparison: SearchComparison) -> list[Panel]:
    panels: list[Panel] = []
    searches = comparison.searches
    if comparison.with_reference:
        panels += _figure(comparison)
        panels.append(
            Panel(
                "Accuracy at equal tokens",
                "The accuracy of each search, and of independent samples that cost no more generated tokens than the "
                "search on the same question. Prompt tokens and the tokens of the PRM are not part of the budget. "
                f"Greedy decoding has its own cost: {count(comparison.greedy.tokens)} tokens.",
                table=Table(*overview_cells(searches)),
                wide=True,
            )
        )
        for search in searches:
            panels += _search_panels(search)
    panels.append(
        Panel(
            "What the tokens buy",
            "Samples are taken in the order of sampling while they fit into the tokens that the search spent on the "
            "question, and at least one. Too few samples: all of them together cost less than the search, so the "
            "baseline had fewer tokens. First sample too long: it cost more than the search.",
            table=Table(*budget_cells(searches)),
            wide=True,
        )
    )
    panels.append(
        Panel(
            "Costs",
            "Means per question. If rescored: PRM tokens if every candidate were scored from scratch.",
            table=Table(*cost_cells(searches)),
            wide=True,
        )
    )
    return panels


def _search_panels(search: SearchMeasurement) -> list[Panel]:
    chosen = f"{SELECTED_BY[search.selection]}, score: {find_aggregation(search.aggregation).label}"
    about = (
        f"Selects by {chosen}. {budget_sentence(search)} "
        "Differences are in percentage points, with 95% intervals by paired bootstrap over questions. Won: only the "
        "search is correct; lost: only the baseline is."
    )
    return [
        Panel(search.label, about, table=Table(*summary_cells(search)), wide=True),
        Panel(
            f"{search.label}: every selection",
            "What the same trees give with every selection and aggregation.",
            table=Table(*selection_cells(search)),
            folded=True,
        ),
        Panel(
            f"{search.label}: every baseline",
            "All baselines at equal tokens, with every aggregation.",
            table=Table(*all_baseline_cells(search)),
            folded=True,
        ),
    ]


def token_series(comparison: SearchComparison) -> tuple[list[Line], list[TokenPoint]]:
    """Return accuracy over tokens: samples as lines, searches and greedy decoding as points."""
    curves = comparison.curves
    lines: list[Line] = []
    if curves is not None:
        shown = [k for k, tokens in curves.tokens.items() if tokens > 0]  # the axis is logarithmic
        lines = [
            Line(method.label("k"), [curves.tokens[k] for k in shown], [curve[k].value for k in shown])
            for method, curve in curves.curves.items()
            if shown
        ]
    greedy = comparison.greedy
    measured = [(each.label, each.costs.generated_tokens, each.accuracy) for each in comparison.searches]
    if greedy.tokens is not None:
        measured.append(("greedy", greedy.tokens, greedy.accuracy))
    found = [
        TokenPoint(name, tokens, at.value, at.interval)
        for name, tokens, at in measured
        if at.value is not None and tokens
    ]
    return lines, found


def _figure(comparison: SearchComparison) -> list[Panel]:
    curves = comparison.curves
    lines, found = token_series(comparison)
    if not found and not lines:
        return []
    about = "Lines: k independent samples, for k = 1, 2, 4, ...; points: searches and greedy decoding, 95% intervals."
    if curves is not None:
        exact = "Lines show exact expectations over all draws of k samples; ties count by their expected accuracy."
        if curves.estimated:
            exact = (
                "Best of k and pass@k are exact expectations over all draws of k samples; votes are means over "
                f"{curves.vote_draws} random draws where there are more. Ties count by their expected accuracy."
            )
        about += f" {exact} Over {counted(curves.questions, 'question')}."
    return [
        Panel(
            "Accuracy over tokens",
            about,
            svg=figures.accuracy_by_tokens("Accuracy against generated tokens per question", lines, found),
            keys=figures.token_keys(lines, found),
            table=None if curves is None else Table(*curve_cells(curves)),
            folded=True,
            wide=True,
        )
    ]
