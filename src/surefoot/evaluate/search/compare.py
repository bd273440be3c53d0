"""Compare searches with what the same number of generated tokens buys without them.

Invariant: a baseline gets, on every question, the samples that fit into the tokens which the search generated there.
Where it got fewer or more tokens, the result counts the questions and says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from statistics import fmean

from surefoot.core.aggregation import find_aggregation
from surefoot.core.intervals import Bootstrap
from surefoot.core.search_result import SearchRecord, SearchResult, Spent
from surefoot.errors import InputError, OptionError
from surefoot.evaluate.search.curves import sample_curves
from surefoot.evaluate.search.judge import Judge, MethodVerdicts
from surefoot.evaluate.search.measures import (
    Accuracy,
    Baseline,
    Costs,
    EqualTokens,
    GreedyMeasurement,
    Method,
    SearchMeasurement,
    Verdict,
    accuracy,
    difference,
)
from surefoot.evaluate.search.notes import notes
from surefoot.evaluate.search.result import QuestionOutcome, SearchComparison
from surefoot.evaluate.search.samples import Taken, take

NO_REFERENCE = "no question has a reference answer"
NO_SAMPLES = "no question with a reference answer has samples"
NO_GREEDY = "no question with a reference answer has a greedy answer"


def compare_searches(
    records: Iterable[SearchRecord],
    *,
    aggregation: str | None = None,
    draws: int = 1000,
    seed: int = 0,
    vote_draws: int = 200,
    timeout: float = 3.0,
) -> SearchComparison:
    """Measure searches, and next to them majority, best of N, weighted votes and pass@N at equal tokens.

        print(compare_searches(read_search_records("searches.jsonl")))

    On every question, a baseline gets the samples that fit into the tokens that the search generated there: in the
    order of sampling, and at least one. Undecided answers are excluded and counted; no answer is incorrect.
    `aggregation` is that of the curves over tokens; it defaults to the one that the samples were recorded with.
    `draws=0` turns intervals off. Votes are estimated from `vote_draws` draws where there are more. Comparing two
    answers takes at most `timeout` seconds.
    """
    everything = tuple(records)
    bootstrap = Bootstrap(draws, seed)
    if vote_draws < 1:
        raise OptionError(f"vote_draws={vote_draws} is invalid. Pass a number above 0.")
    if aggregation is not None:
        find_aggregation(aggregation)
    labels = tuple(dict.fromkeys(label for record in everything for label in record.searches))
    if not labels:
        raise InputError("There is no search to compare. Pass the records of at least one question with a search.")
    judge = Judge(timeout)
    greedy = {
        at: judge.method(record.gold, record.greedy, Method("majority"))
        for at, record in enumerate(everything)
        if record.gold is not None and record.greedy is not None
    }
    outcomes: list[dict[str, QuestionOutcome]] = [{} for _ in everything]
    searches = tuple(_measure(label, everything, greedy, judge, bootstrap, outcomes) for label in labels)
    curves = sample_curves(
        everything, judge, aggregation or _recorded_aggregation(everything), bootstrap, vote_draws=vote_draws
    )
    first = next(search for record in everything for search in record.searches.values())
    return SearchComparison(
        model=first.model,
        generator=first.generator,
        scale=first.scale,
        questions=len(everything),
        with_reference=sum(record.gold is not None for record in everything),
        searches=searches,
        greedy=_greedy(everything, greedy, bootstrap),
        curves=curves,
        notes=tuple(notes(everything, searches, curves)),
        outcomes=tuple(outcomes),
    )


def _measure(
    label: str,
    records: Sequence[SearchRecord],
    greedy: dict[int, Verdict],
    judge: Judge,
    bootstrap: Bootstrap,
    outcomes: list[dict[str, QuestionOutcome]],
) -> SearchMeasurement:
    """Measure one search, and add what it did to the outcomes of each question."""
    found = {at: record.searches[label] for at, record in enumerate(records) if label in record.searches}
    taken = {at: take(records[at].samples, search.spent.generated_tokens) for at, search in found.items()}
    methods = _methods([*found.values(), *(each.result for each in taken.values() if each is not None)])
    returned: dict[int, Verdict] = {}
    selected = {method: MethodVerdicts() for method in methods}
    baselines = {method: MethodVerdicts() for method in methods}
    for at, search in found.items():
        gold, samples = records[at].gold, taken[at]
        if gold is not None:
            returned[at] = judge.answer(gold, search.answer)
            for method, into in selected.items():
                into.verdicts[at] = judge.method(gold, search, method)
            if samples is not None:
                judge.collect(at, gold, samples.result, baselines)
        outcomes[at][label] = QuestionOutcome(
            answer=search.answer,
            correct=returned.get(at),
            majority=baselines[Method("majority")].verdicts.get(at),
            finished=bool(search.finished),
            samples=None if samples is None else samples.count,
            tokens=search.spent.generated_tokens,
        )
    has_gold = any(records[at].gold is not None for at in found)
    absent = NO_SAMPLES if has_gold else NO_REFERENCE

    def measured(into: MethodVerdicts) -> Accuracy:
        return accuracy(into.verdicts, bootstrap, absent=absent, unscored=into.unscored)

    against_greedy = {at: greedy[at] for at in found if at in greedy}
    first = next(iter(found.values()))
    return SearchMeasurement(
        label=label,
        selection=first.selection,
        aggregation=first.aggregation,
        accuracy=accuracy(returned, bootstrap, absent=NO_REFERENCE),
        selections={
            method: accuracy(into.verdicts, bootstrap, absent=NO_REFERENCE) for method, into in selected.items()
        },
        baselines=(
            *(
                Baseline(method, measured(into), difference(returned, into.verdicts, bootstrap, f"{label} {method}"))
                for method, into in baselines.items()
            ),
            Baseline(
                None,
                accuracy(against_greedy, bootstrap, absent=NO_GREEDY if has_gold else NO_REFERENCE),
                difference(returned, against_greedy, bootstrap, f"{label} greedy"),
            ),
        ),
        equal_tokens=_equal_tokens([(found[at], each) for at, each in taken.items()]),
        costs=_costs(list(found.values())),
    )


def _methods(results: Sequence[SearchResult]) -> list[Method]:
    """Return the methods that apply to all results: majority first, the oracle last."""
    names = [name for name in results[0].aggregations if all(name in each.aggregations for each in results)]
    probabilities = all(each.scale == "probability" for each in results)
    found = [Method("majority"), *(Method("best", name) for name in names)]
    if probabilities:
        found += [Method("weighted", name) for name in names]
    return [*found, Method("oracle")]


def _equal_tokens(pairs: Sequence[tuple[SearchResult, Taken | None]]) -> EqualTokens:
    """Sum up what the tokens of a search bought. All searches count, whether or not there is a reference."""
    found = [(search, taken) for search, taken in pairs if taken is not None]
    return EqualTokens(
        questions=len(found),
        without_samples=len(pairs) - len(found),
        search_tokens=_mean(search.spent.generated_tokens for search, _ in found),
        sample_tokens=_mean(taken.tokens for _, taken in found),
        samples=_mean(taken.count for _, taken in found),
        used_up=sum(taken.used_up for _, taken in found),
        exceeded=sum(taken.exceeded for _, taken in found),
    )


def _costs(results: Sequence[SearchResult]) -> Costs:
    names = {field.name for field in fields(Spent)} & {field.name for field in fields(Costs)}
    sums = {name: sum(getattr(each.spent, name) for each in results) for name in names}
    computed, rescored = sums["prm_tokens"], sums["prm_tokens_rescored"]
    return Costs(
        questions=len(results),
        prm_ratio=rescored / computed if computed else None,
        unfinished=sum(not each.finished for each in results),
        stops=dict(Counter(each.stop for each in results).most_common()),
        **{name: total / len(results) for name, total in sums.items()},
    )


def _greedy(records: Sequence[SearchRecord], verdicts: dict[int, Verdict], bootstrap: Bootstrap) -> GreedyMeasurement:
    found = [record.greedy for record in records if record.greedy is not None]
    absent = NO_GREEDY if any(record.gold is not None for record in records) else NO_REFERENCE
    return GreedyMeasurement(
        accuracy=accuracy(verdicts, bootstrap, absent=absent),
        questions=len(found),
        tokens=_mean(each.spent.generated_tokens for each in found),
    )


def _recorded_aggregation(records: Sequence[SearchRecord]) -> str | None:
    """Return the aggregation that the samples were recorded with: the most common one, the first of equals."""
    found = Counter(record.samples.aggregation for record in records if record.samples is not None)
    return found.most_common(1)[0][0] if found else None


def _mean(values: Iterator[int]) -> float | None:
    listed = list(values)
    return fmean(listed) if listed else None
