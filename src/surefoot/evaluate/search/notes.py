"""What a reader of a comparison has to know besides the numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from surefoot.core.search_result import SearchRecord, SearchResult
from surefoot.evaluate.search.curves import SampleCurves
from surefoot.evaluate.search.measures import SearchMeasurement
from surefoot.evaluate.search.samples import samples_of


def notes(
    records: Sequence[SearchRecord], searches: Sequence[SearchMeasurement], curves: SampleCurves | None
) -> Iterator[str]:
    """Yield one sentence or two for everything that limits the comparison."""
    total = len(records)
    yield from _about_references(records)
    yield from _about_runs(records)
    for search in searches:
        yield from _about(search, total)
    yield from _about_failures(records)
    yield from _about_unscored(records)
    if curves is not None:
        yield from _about_curves(curves)


def _about_references(records: Sequence[SearchRecord]) -> Iterator[str]:
    without = sum(record.gold is None for record in records)
    if without == len(records):
        yield "No question has a reference answer, so there are no accuracies."
    elif without:
        yield f"{without} of {len(records)} questions have no reference answer and count for costs only."
    if repeated := len(records) - len({record.question for record in records}):
        yield f"{repeated} of {len(records)} records repeat a question. Each counts as a question of its own."


def _about_runs(records: Sequence[SearchRecord]) -> Iterator[str]:
    total = len(records)
    if (without := sum(not samples_of(record.samples) for record in records)) == total:
        yield "No question has independent samples, so there are no baselines at equal tokens."
    elif without:
        yield f"{without} of {total} questions have no samples and are missing from the baselines."
    if 0 < (without := sum(record.greedy is None for record in records)) < total:
        yield f"{without} of {total} questions have no greedy answer."
    runs = [search for record in records for search in (*record.searches.values(), record.samples) if search]
    for name, of in (("scorer", {run.model for run in runs}), ("generator", {run.generator for run in runs})):
        if len(of) > 1:
            yield f"The records are not all of the same {name}: {', '.join(sorted(of))}."


def _about(search: SearchMeasurement, total: int) -> Iterator[str]:
    costs, equal, name = search.costs, search.equal_tokens, search.label
    if costs.questions < total:
        yield f"{name} ran on {costs.questions} of {total} questions only; its numbers are about those."
    if undecided := search.accuracy.undecided:
        yield (
            f"{name}: {undecided} {_questions(undecided)} excluded, because the answer could not be compared with the "
            "reference."
        )
    if errors := costs.stops.get("error", 0):
        yield f"{name} failed on {errors} {_questions(errors)}; no answer counts as incorrect."
    if equal.used_up:
        yield (
            f"{name}: on {equal.used_up} of {equal.questions} questions all recorded samples cost fewer tokens than "
            "the search, so the baselines had fewer tokens there. Record more samples for a fair comparison."
        )
    if equal.exceeded:
        yield (
            f"{name}: on {equal.exceeded} of {equal.questions} questions the first sample alone cost more tokens than "
            "the search; it was used anyway."
        )
    unscored = max((each.accuracy.unscored for each in search.baselines), default=0)
    if unscored:
        yield f"{name}: {unscored} {_questions(unscored)} excluded from best of N or weighted votes: unscored samples."
    if not any(method.kind == "weighted" for method in search.selections):
        yield f"{name}: the scores are not probabilities, so there are no weighted votes and no products."


def _about_failures(records: Sequence[SearchRecord]) -> Iterator[str]:
    """Count by label what failed and what was cut off, in one note: many searches would have as many notes."""
    runs: dict[str, list[SearchResult]] = {}
    for record in records:
        for label, run in record.searches.items():
            runs.setdefault(label, []).append(run)
    samples = [record.samples for record in records if record.samples is not None]
    greedy = [record.greedy for record in records if record.greedy is not None]
    named = [*runs.items(), ("independent samples", samples), ("greedy decoding", greedy)]
    counts = [f"{name}: {text}" for name, of in named if (text := _failures(of))]
    if counts:
        yield (
            "Continuations that failed or were cut off at a limit of tokens have no vote and cannot be selected. "
            f"{'; '.join(counts)}."
        )


def _failures(runs: Sequence[SearchResult]) -> str:
    """Return how many continuations failed or were cut off; identical ones count each."""
    nodes = [node for run in runs for node in run.nodes if node.parent is not None]
    failed = sum(node.count for node in nodes if node.fate == "failed" or node.end == "error")
    cut_off = sum(node.count for node in nodes if node.end == "cut_off" and node.fate != "failed")
    found = " and ".join(f"{count} {kind}" for count, kind in ((failed, "failed"), (cut_off, "cut off")) if count)
    return f"{found} of {sum(node.count for node in nodes)}" if found else ""


def _about_unscored(records: Sequence[SearchRecord]) -> Iterator[str]:
    runs = [record.samples for record in records if record.samples is not None]
    unscored = sum(
        run.path_value(node, run.aggregation) is None for run in runs for each in run.answers for node in each.nodes
    )
    if unscored:
        yield (
            f"Independent samples: {unscored} with an answer {'is' if unscored == 1 else 'are'} unscored. They count "
            "for majority, but neither for best of N nor for weighted votes."
        )


def _about_curves(curves: SampleCurves) -> Iterator[str]:
    if curves.undecided:
        yield (
            f"Accuracy over tokens: {curves.undecided} {_questions(curves.undecided)} excluded, because the answer of "
            "a sample could not be compared with the reference."
        )
    if curves.unscored:
        yield (
            f"Accuracy over tokens: {curves.unscored} {_questions(curves.unscored)} excluded, because a sample is "
            "unscored."
        )
    if curves.short:
        most = max(curves.tokens)
        yield (
            f"Accuracy over tokens: {curves.short} of {curves.questions} questions have fewer than {most} samples; all "
            "of theirs were used."
        )


def _questions(count: int) -> str:
    return "question was" if count == 1 else "questions were"
