"""The tables of a comparison, as cells for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Sequence

from surefoot.core.intervals import Interval
from surefoot.display.tables import DASH, Cells, decimal, percent
from surefoot.evaluate.search.curves import SampleCurves
from surefoot.evaluate.search.measures import Accuracy, Baseline, SearchMeasurement


def points(value: float | None, interval: Interval | None) -> str:
    """Format a difference of accuracies as `+3.0 [-1.2 to +7.1]`.

    >>> points(0.03, None)
    '+3.0'
    """
    if value is None:
        return DASH
    text = f"{100 * value:+.1f}"
    return text if interval is None else f"{text} [{100 * interval.low:+.1f} to {100 * interval.high:+.1f}]"


def count(value: float | None) -> str:
    """Format a number of tokens or calls: `1,234`, or `7.5` below 100."""
    if value is None:
        return DASH
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"


def main_baselines(search: SearchMeasurement) -> list[Baseline]:
    """Return the baselines that use no scores or the aggregation of the search."""
    return [
        each
        for each in search.baselines
        if each.method is None or each.method.aggregation in (None, search.aggregation)
    ]


def baseline_name(baseline: Baseline) -> str:
    """What tables call a baseline."""
    return "greedy decoding" if baseline.method is None else baseline.method.label()


def budget_sentence(search: SearchMeasurement) -> str:
    """State the tokens of a search and the samples that they buy."""
    equal = search.equal_tokens
    text = f"{count(search.costs.generated_tokens)} generated tokens per question"
    if equal.samples is None:
        return f"{text}; no samples to compare with."
    return f"{text}; N is {equal.samples:.1f} samples on average, with {count(equal.sample_tokens)} tokens."


def summary_cells(search: SearchMeasurement) -> Cells:
    """Return the table of one search: its accuracy, the main baselines, and the differences."""
    header = ["method", "accuracy", "questions", "search minus it", "won", "lost"]
    rows = [[search.label, *_accuracy(search.accuracy), "", "", ""]]
    return header, rows + [_baseline_row(each) for each in main_baselines(search)]


def all_baseline_cells(search: SearchMeasurement) -> Cells:
    """Return the table of all baselines of one search, with every aggregation."""
    header = ["baseline at equal tokens", "accuracy", "questions", "search minus it", "won", "lost"]
    return header, [_baseline_row(each) for each in search.baselines]


def selection_cells(search: SearchMeasurement) -> Cells:
    """Return the accuracy of one search by every selection and aggregation."""
    header = ["selection from the same trees", "accuracy", "questions"]
    rows = [[method.label("paths"), *_accuracy(at)] for method, at in search.selections.items()]
    return header, rows


def overview_cells(searches: Sequence[SearchMeasurement]) -> Cells:
    """Return one row per search, with its main baselines at equal tokens next to it."""
    names = dict.fromkeys(_kind(each) for search in searches for each in main_baselines(search))
    header = ["search", "tokens", "accuracy", *names]
    rows = []
    for search in searches:
        found = {_kind(each): percent(each.accuracy.value) for each in main_baselines(search)}
        cells = [count(search.costs.generated_tokens), percent(search.accuracy.value, search.accuracy.interval)]
        rows.append([search.label, *cells, *(found.get(name, DASH) for name in names)])
    return header, rows


def budget_cells(searches: Sequence[SearchMeasurement]) -> Cells:
    """Return what the tokens of each search buy as independent samples."""
    header = [
        "search",
        "questions with samples",
        "tokens of the search",
        "samples for them",
        "tokens of these",
        "too few samples",
        "first sample too long",
    ]
    rows = []
    for search in searches:
        at = search.equal_tokens
        means = [count(at.search_tokens), decimal(at.samples), count(at.sample_tokens)]
        rows.append([search.label, str(at.questions), *means, str(at.used_up), str(at.exceeded)])
    return header, rows


def cost_cells(searches: Sequence[SearchMeasurement]) -> Cells:
    """Return the costs of each search per question."""
    header = [
        "search",
        "questions",
        "generated tokens",
        "prompt tokens",
        "generator calls",
        "PRM tokens",
        "if rescored",
        "ratio",
        "no finished path",
        "ended by",
    ]
    rows = []
    for search in searches:
        costs = search.costs
        numbers = [
            costs.generated_tokens,
            costs.prompt_tokens,
            costs.generator_calls,
            costs.prm_tokens,
            costs.prm_tokens_rescored,
        ]
        rows.append(
            [
                search.label,
                str(costs.questions),
                *map(count, numbers),
                DASH if costs.prm_ratio is None else f"{costs.prm_ratio:.1f}x",
                f"{costs.unfinished} ({percent(costs.unfinished / costs.questions)}%)",
                ", ".join(f"{reason} {times}" for reason, times in costs.stops.items()),
            ]
        )
    return header, rows


def curve_cells(curves: SampleCurves) -> Cells:
    """Return the accuracy of samples without a search: one row per number of samples."""
    header = ["samples", "tokens", *(method.label("k") for method in curves.curves)]
    rows = [
        [str(k), count(tokens), *(percent(curve[k].value, curve[k].interval) for curve in curves.curves.values())]
        for k, tokens in curves.tokens.items()
    ]
    return header, rows


def _accuracy(at: Accuracy) -> list[str]:
    return [percent(at.value, at.interval), str(at.questions)]


def _baseline_row(each: Baseline) -> list[str]:
    difference = each.difference
    counts = [DASH, DASH] if difference.value is None else [str(difference.won), str(difference.lost)]
    return [baseline_name(each), *_accuracy(each.accuracy), points(difference.value, difference.interval), *counts]


def _kind(each: Baseline) -> str:
    """What a column of the overview calls a baseline, whatever the aggregation of the search is."""
    kinds = {"majority": "majority", "best": "best of N", "weighted": "weighted vote", "oracle": "pass@N (oracle)"}
    return "greedy" if each.method is None else kinds[each.method.kind]
