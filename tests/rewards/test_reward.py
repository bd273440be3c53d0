"""Rewards are sums of named terms, and None if a needed term is missing."""

from __future__ import annotations

import json
import pickle
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import surefoot
from surefoot.core import aggregation
from surefoot.core.aggregation import AGGREGATIONS
from surefoot.core.result import NO_STEPS, Scale, SolutionScore, StepScore
from surefoot.errors import InputError, OptionError
from surefoot.rewards.recipes import RECIPES, find_recipe
from surefoot.rewards.reward import Missing, Reward, Term
from surefoot.rewards.terms import answered, coverage, has_steps, outcome, process
from surefoot.text.split import split

QUESTION = "What is 2 + 3 * 4?"
SOLUTION = "Step 1: 3 * 4 = 12.\nStep 2: 2 + 12 = 14.\nFinal Answer: 14"


def scored(*scores: float | None, answer: str | None = None, scale: Scale = "probability") -> SolutionScore:
    """A result with these scores, as the scorer would make it."""
    steps = tuple(
        StepScore("some words", 20 * at, 20 * at + 10, score, "over_length" if score is None else "scored", at)
        for at, score in enumerate(scores)
    )
    reason = NO_STEPS if not scores else "1 step ends past the limit." if None in scores else None
    return SolutionScore(steps, "a model", answer=answer, reason=reason, scale=scale)


def test_the_seed_recipe_is_that_of_the_original_scorer() -> None:
    result = RECIPES["final+mean+correct_prefix"](scored(0.9, 0.8, 0.4, 0.7))
    assert result.terms == {"final": 0.7, "mean": pytest.approx(0.7), "correct_prefix": 0.5}
    assert result.value == pytest.approx(0.45 * 0.7 + 0.35 * 0.7 + 0.20 * 0.5)
    assert result.reason is None


def test_a_real_score_gives_the_aggregates_of_its_result(scorer: surefoot.Scorer) -> None:
    score = scorer.score(QUESTION, SOLUTION)
    for name in ("mean", "min", "final", "product"):
        assert RECIPES[name](score).value == getattr(score, name)
    full = RECIPES["outcome+process"](score, "14")
    assert score.min is not None
    assert full.value == pytest.approx(0.7 + 0.3 * score.min)
    assert full.score is score
    assert json.loads(json.dumps(full.to_dict()))["score"]["steps"][0]["text"] == "3 * 4 = 12."


@given(st.lists(st.one_of(st.none(), st.floats(0, 1)), max_size=6), st.sampled_from(sorted(RECIPES)))
@settings(max_examples=400, deadline=None)
def test_a_missing_score_is_never_a_number(scores: list[float | None], name: str) -> None:
    result = RECIPES[name](scored(*scores, answer="14"), "14")
    needed = {term.name for term in RECIPES[name].terms if term.weight}
    missing = [term for term in needed if result.terms[term] is None]
    assert (result.value is None) == bool(missing)
    assert (result.reason is None) == (result.value is not None)
    if None in scores and name not in ("final", "outcome"):
        assert result.value is None
    if not scores and name != "outcome":
        assert result.value is None


@pytest.mark.parametrize(
    ("answer", "gold", "value", "reason"),
    [
        ("14", "14", 1.0, None),
        ("\\frac{28}{2}", "14.0", 1.0, None),
        ("15", "14", 0.0, None),
        (None, "14", 0.0, None),  # the policy stated no answer: wrong
        ("14", None, None, "no gold answer was given"),  # unknown
        (None, None, None, "no gold answer was given"),
        ("14", "  ", None, "the gold answer is empty"),
        ("14", "3 * 4 is 12, and 2 more is 14.\n#### 14", 1.0, None),
        ("12", "3 * 4 is 12, and 2 more is 14.\n#### 14", 0.0, None),
        ("x" * 3000, "14", None, "could not be compared"),
    ],
)
def test_outcome(answer: str | None, gold: str | None, value: float | None, reason: str | None) -> None:
    result = RECIPES["outcome"](scored(0.9, answer=answer), gold)
    assert result.value == value
    assert result.terms == {"outcome": value}
    assert result.reason is None if reason is None else reason in (result.reason or "")


def test_an_invalid_solution_has_no_outcome(scorer: surefoot.Scorer) -> None:
    broken, empty = scorer.score_stream([(QUESTION, "half a pair: \ud800"), (QUESTION, "  ")])
    result = RECIPES["outcome"](broken, "14")
    assert result.value is None
    assert "surrogate" in (result.reason or "")
    assert RECIPES["outcome"](empty, "14").value == 0.0, "an empty solution is valid: its outcome is wrong"
    for term in (answered(), has_steps()):
        assert isinstance(term.read(broken, None), Missing)
        assert term.read(empty, None) == 0.0
    assert isinstance(coverage().read(empty, None), Missing)


def test_the_reward_of_an_empty_solution_can_be_set(scorer: surefoot.Scorer) -> None:
    broken, empty = scorer.score_stream([(QUESTION, "half a pair: \ud800"), (QUESTION, "")])
    assert RECIPES["min"](empty).value is None
    strict = Reward("strict", RECIPES["min"].terms, empty=-1.0)
    assert strict(empty).value == -1.0
    assert strict(broken).value is None
    assert strict(scored(0.5, None)).value is None, "a solution that is too long is not empty"


def test_no_wrong_answer_is_rewarded_as_much_as_a_correct_one() -> None:
    for name in ("outcome+process", "outcome+process+format"):
        best_wrong = RECIPES[name](scored(1.0, 1.0, answer="15"), "14").value
        worst_right = RECIPES[name](scored(0.0, 0.0, answer="14"), "14").value
        assert best_wrong is not None
        assert worst_right is not None
        assert best_wrong < worst_right


def test_format_terms() -> None:
    text = "Let us see.\nStep 1: 3 * 4 = 12.\nFinal Answer: 12\nHope that helps!"
    steps = split(text)
    score = SolutionScore(
        tuple(StepScore(s.text, s.start, s.end, 0.5, "scored", s.index, s.kind) for s in steps.steps),
        "a model",
        answer=steps.answer,
        outside=steps.outside,
    )
    assert answered().read(score, None) == 1.0
    assert has_steps().read(score, None) == 1.0
    assert has_steps(at_least=2).read(score, None) == 0.0, "the closing answer does not count"
    outer = len("Let us see.") + len("Hope that helps!")
    inner = len("3 * 4 = 12.") + len("Final Answer: 12")
    assert coverage().read(score, None) == pytest.approx(inner / (inner + outer))


def test_skipped_thinking_is_not_charged(scorer: surefoot.Scorer) -> None:
    score = scorer.score("What is 3 * 4?", "<think>\nLong thoughts.\n</think>\nStep 1: 3 * 4 = 12.\nFinal Answer: 12")
    assert score.skipped == ((0, 31),)
    assert coverage().read(score, None) == 1.0
    assert score.unscored_chars == 0


def test_other_scales_raise_where_they_cannot_be_weighed() -> None:
    score = scored(-3.0, 2.0, answer="14", scale="log_ratio")
    for name, expected in (("mean", -0.5), ("min", -3.0), ("final", 2.0)):
        assert RECIPES[name](score).value == expected
    for name in ("final+mean+correct_prefix", "product", "geometric_mean", "clip", "outcome+process"):
        with pytest.raises(OptionError, match="(?s)needs probabilities.*'log_ratio'"):
            RECIPES[name](score, "14")
    for name in ("product", "geometric_mean", "correct_prefix", "clip"):
        with pytest.raises(OptionError, match=f"'{name}' needs probabilities, so any_scale"):
            process(name, any_scale=True)
    assert RECIPES["outcome"](score, "14").value == 1.0


def test_a_term_with_weight_zero_is_logged_but_not_needed() -> None:
    recipe = RECIPES["min"].plus(outcome(weight=0.0), process("mean", weight=0.0), name="min, logged")
    assert not recipe.needs_gold
    result = recipe(scored(0.9, 0.5))
    assert result.value == 0.5
    assert result.terms == {"min": 0.5, "outcome": None, "mean": pytest.approx(0.7)}


def test_a_term_that_is_not_finite_is_missing() -> None:
    recipe = RECIPES["min"].plus(Term("odd", lambda score, gold: float("nan")))
    result = recipe(scored(0.9))
    assert result.value is None
    assert "odd" in (result.reason or "")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: find_recipe("best"), "no recipe 'best'.*outcome"),
        (lambda: process("median"), "no aggregation 'median'.*soft_min"),
        (lambda: process("min", temperature=1.0), "does not take these options"),
        (lambda: process("soft_min", temperature=0.0), "not above 0"),
        (lambda: Reward("nothing", (process("min", weight=0.0),)), "no term with a weight"),
        (lambda: Reward("twice", (process("min"), process("min"))), "terms of the same name"),
        (lambda: Reward("r", (process("min"),), empty=float("inf")), "empty=inf is not a reward"),
        (lambda: process("min", weight=float("nan")), "finite"),
    ],
)
def test_invalid_options_raise(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(OptionError, match=message):
        make()


def test_a_gold_answer_that_is_not_text_raises() -> None:
    with pytest.raises(InputError, match="gold answer is int"):
        RECIPES["outcome"](scored(0.9, answer="14"), 14)  # type: ignore[arg-type]


def test_recipes_can_be_pickled() -> None:
    for recipe in RECIPES.values():
        copy = pickle.loads(pickle.dumps(recipe))
        assert copy(scored(0.9, 0.2, answer="14"), "14").value == recipe(scored(0.9, 0.2, answer="14"), "14").value


def test_soft_minimum_lies_between_the_minimum_and_the_mean() -> None:
    rng = random.Random(0)
    for _ in range(200):
        scores = [rng.random() for _ in range(rng.randint(1, 9))]
        low, high = min(scores), aggregation.mean(scores)
        soft = aggregation.soft_minimum(scores, 0.1)
        assert soft is not None
        assert high is not None
        assert low - 1e-12 <= soft <= high + 1e-12
        assert aggregation.soft_minimum(scores, 1e-4) == pytest.approx(low, abs=1e-3)
        assert aggregation.soft_minimum(scores, 1e6) == pytest.approx(high, abs=1e-5)
    assert aggregation.soft_minimum([0.9, None]) is None


def test_every_aggregation_of_nothing_is_none() -> None:
    for each in AGGREGATIONS.values():
        assert each.function([]) is None
        assert each.function([None]) is None
