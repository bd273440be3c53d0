"""Searches next to baselines at equal tokens: against values computed by hand, and against a plain implementation."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.search_records import ROOT, found, of_nodes, of_samples, random_records, record, sample
from surefoot.core.search_result import SearchNode, SearchRecord, SearchResult, Spent
from surefoot.errors import InputError, OptionError
from surefoot.evaluate.search import SearchComparison, SearchMeasurement, compare_searches, read_search_records
from surefoot.evaluate.search.measures import Baseline, Method

MAJORITY, ORACLE = Method("majority"), Method("oracle")
BEST = Method("best", "min")
WEIGHTED = Method("weighted", "min")


def baseline(search: SearchMeasurement, method: Method | None) -> Baseline:
    return next(each for each in search.baselines if each.method == method)


def values(search: SearchMeasurement) -> dict[Method | None, float | None]:
    return {each.method: each.accuracy.value for each in search.baselines}


# --- by hand --------------------------------------------------------------------------------------------------------


def by_hand() -> list[SearchRecord]:
    """Three questions whose right answer is 14. The comments say what 30 tokens buy."""
    return [
        # 10 + 10 + 10 tokens: three samples, 14 14 20. The fourth is not paid for.
        record(
            {"beam": found("14", 30)},
            [sample("14", scores=[0.3]), sample("14", scores=[0.4]), sample("20", scores=[0.9]), sample("20")],
            greedy=found("14", 12),
            index=0,
        ),
        # 10 + 15 tokens, and 10 more would be 35: two samples. The first was cut off and has no vote.
        record(
            {"beam": found("20", 30)},
            [sample("14", end="cut_off"), sample("14", 15, [0.2]), sample("20", scores=[0.9])],
            greedy=found("20", 16),
            index=1,
        ),
        # 40 tokens: more than the search. One sample is used anyway.
        record({"beam": found("14", 30)}, [sample("20", 40), sample("14")], greedy=found(None, 20), index=2),
    ]


def test_samples_that_fit_into_the_tokens_of_the_search() -> None:
    (search,) = compare_searches(by_hand()).searches
    assert search.accuracy.value == 2 / 3
    equal = search.equal_tokens
    assert (equal.questions, equal.used_up, equal.exceeded) == (3, 0, 1)
    assert equal.samples == (3 + 2 + 1) / 3
    assert equal.sample_tokens == (30 + 25 + 40) / 3
    assert equal.search_tokens == 30
    # Question 0: majority 14, best 20 (0.9), weights 0.7 to 0.9. Question 1: 14. Question 2: 20.
    assert values(search)[MAJORITY] == 2 / 3
    assert values(search)[BEST] == 1 / 3
    assert values(search)[WEIGHTED] == 1 / 3
    assert values(search)[ORACLE] == 2 / 3
    assert values(search)[None] == 1 / 3


def test_differences_count_the_questions_that_were_won_and_lost() -> None:
    comparison = compare_searches(by_hand())
    (search,) = comparison.searches
    majority = baseline(search, MAJORITY).difference
    assert (majority.value, majority.won, majority.lost, majority.questions) == (0, 1, 1, 3)
    best = baseline(search, BEST).difference
    assert (best.value, best.won, best.lost) == (1 / 3, 2, 1)
    greedy = baseline(search, None).difference
    assert (greedy.value, greedy.won, greedy.lost) == (1 / 3, 1, 0)
    assert comparison.greedy.tokens == 16
    assert "on 1 of 3 questions the first sample alone cost more tokens" in " ".join(comparison.notes)


def test_used_up_samples_are_counted_and_reported() -> None:
    records = [
        record({"beam": found("14", 100)}, [sample("14", 50), sample("14", 50)]),
        record({"beam": found("14", 101)}, [sample("14", 50), sample("14", 50)]),
    ]
    comparison = compare_searches(records)
    assert comparison.searches[0].equal_tokens.used_up == 1
    assert any("on 1 of 2 questions all recorded samples cost fewer tokens" in note for note in comparison.notes)


def test_costs_are_means_and_the_ratio_is_of_sums() -> None:
    records = [
        record({"beam": found("14", 10)}, index=0),
        record({"beam": found(None, 30, stop="tokens")}, index=1),
    ]
    comparison = compare_searches(records)
    costs = comparison.searches[0].costs
    assert (costs.generated_tokens, costs.generator_calls, costs.prm_tokens, costs.prm_ratio) == (20, 2, 20, 3)
    assert costs.unfinished == 1
    assert costs.stops == {"finished": 1, "tokens": 1}
    assert "1 (50.0%)" in str(comparison)


def test_curves_are_expectations_over_draws() -> None:
    # Of 14 (0.2), 14 (0.4), 20 (0.9) and one that was cut off.
    samples = [
        sample("14", 10, [0.2]),
        sample("14", 20, [0.4]),
        sample("20", 30, [0.9]),
        sample("9", 40, end="cut_off"),
    ]
    curves = compare_searches([record({"beam": found("14", 10)}, samples)]).curves
    assert curves is not None
    assert curves.tokens == {1: 25, 2: 50, 4: 100}
    at = {method: {k: point.value for k, point in curve.items()} for method, curve in curves.curves.items()}
    assert at[MAJORITY][1] == at[BEST][1] == at[ORACLE][1] == pytest.approx(2 / 4)
    # Pairs: 14 14; 14 20 (twice, a tie); 14 and cut off (twice); 20 and cut off.
    assert at[MAJORITY][2] == pytest.approx((1 + 2 * 0.5 + 2 * 1 + 0) / 6)
    assert at[BEST][2] == at[WEIGHTED][2] == pytest.approx((1 + 2 * 0 + 2 * 1 + 0) / 6)
    assert at[ORACLE][2] == pytest.approx(5 / 6)
    assert (at[MAJORITY][4], at[BEST][4], at[WEIGHTED][4], at[ORACLE][4]) == (1, 0, 0, 1)
    assert not curves.estimated


# --- against a plain implementation -----------------------------------------------------------------------------------


def plain_choice(samples: list[SearchNode], kind: str) -> str | None:
    """Select by `min`, written without any code of the package. Ties go to the answer that came first."""
    usable = [(each.answer, min(step.score or 0.0 for step in each.steps)) for each in samples if each.end == "answer"]
    totals: dict[str, list[float]] = {}
    for answer, value in usable:
        if answer is not None:
            totals.setdefault(answer, []).append(value)
    if not totals:
        return None
    rank: Any = {"majority": len, "weighted": sum, "best": max}[kind]
    highest = max(rank(each) for each in totals.values())
    return next(answer for answer, each in totals.items() if rank(each) == highest)


def plain_count(samples: list[SearchNode], budget: int) -> int:
    """How many samples fit, by trying every number."""
    fitting = [k for k in range(len(samples) + 1) if sum(each.tokens for each in samples[:k]) <= budget]
    return max(1, fitting[-1])


def children(result: SearchResult | None) -> list[SearchNode]:
    assert result is not None
    return list(result.nodes[1:])


ANSWERS = st.sampled_from(["14", "20", "24", None])
SCORES = st.lists(st.floats(0.01, 0.99), min_size=1, max_size=3)
SAMPLES = st.lists(
    st.builds(sample, ANSWERS, st.integers(0, 60), SCORES, st.sampled_from(["answer", "answer", "cut_off", "error"])),
    min_size=1,
    max_size=7,
)
RECORDS = st.lists(
    st.builds(
        lambda answer, tokens, samples: record({"beam": found(answer, tokens)}, samples),
        ANSWERS,
        st.integers(0, 250),
        SAMPLES,
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=60, deadline=None)
@given(RECORDS)
def test_the_accounting_of_equal_tokens_holds_for_random_records(records: list[SearchRecord]) -> None:
    comparison = compare_searches(records, draws=20)
    (search,) = comparison.searches
    counts, chosen = [], dict.fromkeys(("majority", "best", "weighted"), 0)
    used_up = exceeded = passed = 0
    for each, outcome in zip(records, comparison.outcomes, strict=True):
        samples, budget = children(each.samples), each.searches["beam"].spent.generated_tokens
        k = plain_count(samples, budget)
        assert outcome["beam"].samples == k
        # The next sample would not fit; those taken do, unless it is the first alone.
        assert k == len(samples) or sum(one.tokens for one in samples[: k + 1]) > budget
        assert k == 1 or sum(one.tokens for one in samples[:k]) <= budget
        counts.append(k)
        used_up += sum(one.tokens for one in samples) < budget
        exceeded += samples[0].tokens > budget
        for kind in chosen:
            chosen[kind] += plain_choice(samples[:k], kind) == "14"
        passed += any(one.answer == "14" for one in samples[:k])
    assert (search.equal_tokens.used_up, search.equal_tokens.exceeded) == (used_up, exceeded)
    assert search.equal_tokens.samples == pytest.approx(sum(counts) / len(counts))
    total = len(records)
    assert values(search)[MAJORITY] == pytest.approx(chosen["majority"] / total)
    assert values(search)[BEST] == pytest.approx(chosen["best"] / total)
    assert values(search)[WEIGHTED] == pytest.approx(chosen["weighted"] / total)
    assert values(search)[ORACLE] == pytest.approx(passed / total)
    for against in search.baselines:
        at = against.difference
        assert at.questions == (total if against.method else 0)
        if at.value is not None:
            assert at.value == pytest.approx((at.won - at.lost) / total)
            assert at.value == pytest.approx((search.accuracy.value or 0) - (against.accuracy.value or 0))


def test_curves_agree_with_listing_all_draws() -> None:
    rng = random.Random(3)
    for _ in range(20):
        # Distinct sums of scores, so that weighted votes and the best have no ties.
        samples = [sample(rng.choice(["14", "20", None]), 10, [rng.random()]) for _ in range(5)]
        curves = compare_searches([record({"beam": found("14", 10)}, samples)], draws=0).curves
        assert curves is not None
        for k in (1, 2, 4, 5):
            draws = [list(draw) for draw in itertools.combinations(samples, k)]
            for method, kind in ((BEST, "best"), (WEIGHTED, "weighted")):
                expected = np.mean([plain_choice(draw, kind) == "14" for draw in draws])
                assert curves.curves[method][k].value == pytest.approx(expected)
            passed = np.mean([any(each.answer == "14" for each in draw) for draw in draws])
            assert curves.curves[ORACLE][k].value == pytest.approx(passed)


def test_the_interval_of_a_difference_is_that_of_resampled_questions() -> None:
    """A bootstrap over indices, as in any textbook, gives the same interval up to the noise of its draws."""
    outcomes = [(True, False)] * 30 + [(False, True)] * 15 + [(True, True)] * 40 + [(False, False)] * 15
    name = {True: "14", False: "20"}
    records = [
        record({"beam": found(name[mine], 10)}, [sample(name[other])], index=at)
        for at, (mine, other) in enumerate(outcomes)
    ]
    (search,) = compare_searches(records, draws=4000).searches
    interval = baseline(search, MAJORITY).difference.interval
    assert interval is not None
    gaps = np.array([mine - other for mine, other in outcomes])
    drawn = gaps[np.random.default_rng(9).integers(0, 100, (20000, 100))].mean(axis=1)
    assert list(interval) == pytest.approx(list(np.quantile(drawn, [0.025, 0.975])), abs=0.011)
    # The standard error of a paired difference: sqrt((won + lost) / n - difference ** 2) / sqrt(n).
    spread = np.sqrt(0.45 - 0.15**2) / 10
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * spread, rel=0.05)


# --- what is missing -------------------------------------------------------------------------------------------------


def test_every_selection_and_aggregation_of_the_search_is_measured() -> None:
    samples = [sample("14", scores=[0.2, 0.8]), sample("14", scores=[0.3, 0.3]), sample("20", scores=[0.4, 0.5])]
    tree = of_samples(samples, selection="majority")
    (search,) = compare_searches([record({"beam": tree}, samples)]).searches
    assert search.accuracy.value == 1
    at = {method: accuracy.value for method, accuracy in search.selections.items()}
    # By hand. min: 0.2 0.3 | 0.4; mean: 0.5 0.3 | 0.45; final: 0.8 0.3 | 0.5; product: 0.16 0.09 | 0.2.
    best = {"min": 0, "mean": 1, "final": 1, "product": 0, "geometric_mean": 0}
    weighted = {"min": 1, "mean": 1, "final": 1, "product": 1, "geometric_mean": 1}
    assert {method.aggregation: value for method, value in at.items() if method.kind == "best"} == best
    assert {method.aggregation: value for method, value in at.items() if method.kind == "weighted"} == weighted
    assert (at[MAJORITY], at[ORACLE]) == (1, 1)


def test_without_references_there_are_costs_and_a_reason() -> None:
    comparison = compare_searches([replace(each, gold=None) for each in by_hand()])
    (search,) = comparison.searches
    assert search.accuracy.value is None
    assert search.accuracy.reason == "no question has a reference answer"
    assert all(each.accuracy.value is None and each.accuracy.reason for each in search.baselines)
    assert all(each.difference.value is None for each in search.baselines)
    assert comparison.curves is None
    assert search.costs.generated_tokens == 30
    assert search.equal_tokens.samples == 2
    assert "No question has a reference answer" in str(comparison)


def test_questions_without_a_reference_count_for_costs_only() -> None:
    records = by_hand()
    comparison = compare_searches([*records, replace(records[0], gold=None)])
    (search,) = comparison.searches
    assert (search.accuracy.questions, search.costs.questions, comparison.with_reference) == (3, 4, 3)
    assert any("1 of 4 questions have no reference answer" in note for note in comparison.notes)


def test_undecided_answers_are_excluded_and_counted() -> None:
    # `101` and `101_2`: the texts do not tell whether the base was meant.
    unclear = record({"beam": found("101_2", 30)}, [sample("101")], gold="101")
    clear = record({"beam": found("14", 30)}, [sample("20")])
    comparison = compare_searches([unclear, clear])
    (search,) = comparison.searches
    assert (search.accuracy.value, search.accuracy.questions, search.accuracy.undecided) == (1, 1, 1)
    assert baseline(search, MAJORITY).accuracy.questions == 2
    assert baseline(search, MAJORITY).difference.questions == 1
    assert any("beam: 1 question was excluded" in note for note in comparison.notes)
    unclear = replace(unclear, samples=of_samples([sample("101_2"), sample("7")]))
    comparison = compare_searches([unclear, clear])
    assert baseline(comparison.searches[0], ORACLE).accuracy.undecided == 1
    assert comparison.curves is not None
    assert (comparison.curves.questions, comparison.curves.undecided) == (1, 1)
    (alone,) = compare_searches([unclear]).searches
    assert alone.accuracy.value is None
    assert alone.accuracy.reason == "no answer could be compared with its reference"


def test_no_answer_is_incorrect() -> None:
    failed = record({"beam": found(None, 10, stop="error")}, [sample("14", end="cut_off")], greedy=found(None, 5))
    comparison = compare_searches([failed])
    (search,) = comparison.searches
    assert search.accuracy.value == 0
    assert set(values(search).values()) == {0.0}
    assert any("beam failed on 1 question" in note for note in comparison.notes)


def test_records_without_samples_or_greedy_answers_are_counted() -> None:
    full, bare = by_hand()[0], record({"beam": found("14", 30)}, index=5)
    comparison = compare_searches([full, bare])
    (search,) = comparison.searches
    assert (search.equal_tokens.questions, search.equal_tokens.without_samples) == (1, 1)
    assert search.accuracy.questions == 2
    assert baseline(search, MAJORITY).accuracy.questions == 1
    assert baseline(search, None).accuracy.questions == 1
    text = " ".join(comparison.notes)
    assert "1 of 2 questions have no samples" in text
    assert "1 of 2 questions have no greedy answer" in text
    (alone,) = compare_searches([bare]).searches
    assert alone.equal_tokens.samples is None
    assert baseline(alone, MAJORITY).accuracy.reason == "no question with a reference answer has samples"


def test_searches_may_be_missing_from_questions() -> None:
    first, second = by_hand()[:2]
    second = replace(second, searches={"dvts": second.searches["beam"]})
    comparison = compare_searches([first, second])
    assert [(each.label, each.costs.questions, each.accuracy.value) for each in comparison.searches] == [
        ("beam", 1, 1.0),
        ("dvts", 1, 0.0),
    ]
    assert [list(each) for each in comparison.outcomes] == [["beam"], ["dvts"]]
    assert sum("ran on 1 of 2 questions only" in note for note in comparison.notes) == 2


def test_repeated_questions_count_each() -> None:
    comparison = compare_searches([by_hand()[0]] * 4)
    assert comparison.searches[0].accuracy.questions == 4
    assert any("3 of 4 records repeat a question" in note for note in comparison.notes)


def test_unscored_samples_are_not_taken_for_incorrect_ones() -> None:
    samples = [sample("14", scores=[None]), sample("14", scores=[None])]
    comparison = compare_searches([record({"beam": found("14", 30)}, samples)])
    (search,) = comparison.searches
    assert baseline(search, BEST).accuracy.value is None
    assert baseline(search, BEST).accuracy.reason == "the solutions are unscored"
    assert values(search)[MAJORITY] == 1
    assert comparison.curves is not None
    assert list(comparison.curves.curves) == [MAJORITY, ORACLE]


def test_unscored_samples_are_left_out_of_weighted_votes_and_counted() -> None:
    samples = [sample("14", scores=[0.5]), sample("20", scores=[None]), sample("20", scores=[0.4])]
    comparison = compare_searches([record({"beam": found("14", 30)}, samples)])
    (search,) = comparison.searches
    assert (values(search)[MAJORITY], values(search)[WEIGHTED]) == (0, 1)
    assert any("Independent samples: 1 with an answer is unscored." in note for note in comparison.notes)


def test_notes_count_what_failed_and_what_was_cut_off() -> None:
    """By label. Identical continuations count each; a continuation that could not be scored failed."""
    tree = [
        ROOT,
        SearchNode(1, 0, "a", "step", fate="expanded", count=2),
        SearchNode(2, 0, "b", "cut_off", fate="pruned", count=3),
        SearchNode(3, 1, "", "error", fate="failed"),
        SearchNode(4, 1, "c", "answer", fate="finished", answer="14"),
        SearchNode(5, 1, "d", "cut_off", fate="failed"),
    ]
    beam = of_nodes(tree, spent=Spent(30))
    drawn = [sample("14"), sample(None, end="error"), sample(None, end="cut_off"), sample(None, end="error")]
    comparison = compare_searches(
        [
            record({"beam": beam, "dvts": found("14", 10)}, drawn, greedy=found(None, 5)),
            record({"beam": beam, "dvts": found(None, 10)}, [sample("14")], greedy=found("14", 5), index=1),
        ]
    )
    (note,) = [note for note in comparison.notes if "cut off" in note]
    assert note.endswith(
        "have no vote and cannot be selected. beam: 4 failed and 6 cut off of 16; dvts: 1 cut off of 2; "
        "independent samples: 2 failed and 1 cut off of 5; greedy decoding: 1 cut off of 2."
    )
    whole = compare_searches([record({"beam": found("14", 10)}, [sample("14")], greedy=found("14", 5))])
    assert not any("cut off" in note or "unscored" in note for note in whole.notes)


def test_scores_that_are_not_probabilities_have_no_weighted_votes() -> None:
    drawn = [sample("14", scores=[-0.9]), sample("20", scores=[-0.5]), sample("14", end="cut_off")]
    samples = of_samples(drawn, scale="margin")
    comparison = compare_searches([replace(record({"beam": found("14", 30, scale="margin")}), samples=samples)])
    (search,) = comparison.searches
    assert {method.kind for method in search.selections} == {"majority", "best", "oracle"}
    assert Method("best", "product") not in search.selections
    assert values(search)[BEST] == 0
    # Pairs: 20 is better than 14, and each of them is chosen before the one that was cut off.
    assert comparison.curves is not None
    assert comparison.curves.curves[BEST][2].value == pytest.approx(1 / 3)
    assert any("not probabilities" in note for note in comparison.notes)


def test_nothing_to_compare_is_an_error() -> None:
    for nothing in ([], [record({})]):
        with pytest.raises(InputError, match="no search to compare"):
            compare_searches(nothing)
    for options in ({"vote_draws": 0}, {"draws": -1}, {"aggregation": "median"}):
        with pytest.raises(OptionError):
            compare_searches(by_hand(), **options)


def test_the_same_records_give_the_same_result() -> None:
    records = random_records(12, nodes=20)
    assert compare_searches(records).to_dict() == compare_searches(records).to_dict()
    assert compare_searches(records, draws=0).searches[0].accuracy.interval is None


def test_records_from_a_file_give_the_same_result(tmp_path: Path) -> None:
    records = random_records(8, nodes=20)
    place = tmp_path / "searches.jsonl"
    place.write_text("".join(json.dumps(each.to_dict()) + "\n" for each in records), encoding="utf-8")
    comparison = compare_searches(read_search_records(place))
    assert comparison.to_dict() == compare_searches(records).to_dict()
    json.dumps(comparison.to_dict(), allow_nan=False)
    place.write_text('{"question": "x"}\n', encoding="utf-8")
    with pytest.raises(InputError, match="line 1.*not the record of a search"):
        read_search_records(place)


def test_the_text_shows_every_search_next_to_its_baselines() -> None:
    comparison: SearchComparison = compare_searches(by_hand(), draws=0)
    lines = [line.split() for line in str(comparison).splitlines()]
    assert "beam: 30 generated tokens per question; N is 2.0 samples on average, with 31.7 tokens." in str(comparison)
    assert ["beam", "66.7", "3"] in lines
    assert ["majority", "of", "N", "66.7", "3", "+0.0", "1", "1"] in lines
    assert ["best", "of", "N", "by", "min", "33.3", "3", "+33.3", "2", "1"] in lines
    assert ["greedy", "decoding", "33.3", "3", "+33.3", "1", "0"] in lines
